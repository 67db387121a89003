"""The planner's records are guarded while it is tested, all but in the walk, which would take twice as long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hajob.domain.records import lock


@pytest.fixture(autouse=True)
def _locked_records(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.path.name == "test_table.py":
        yield
        return
    with lock():
        yield
