"""One authority for the session, as making keys is the slow part; and a store of torch's with ranks beside it."""

from __future__ import annotations

import pytest

from tests.rigs.certificates import Authority
from tests.rigs.controller_host import host
from tests.rigs.torch_store import rank, store

__all__ = ["host", "rank", "store"]


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()
