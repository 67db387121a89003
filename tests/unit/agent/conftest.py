"""One authority for the session: making keys is the slow part."""

from __future__ import annotations

import pytest

from tests.unit.agent.certificates import Authority


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()
