"""Which scenarios only `make e2e` takes; what `make test` leaves to `make slow` has the marker `slow`."""

from __future__ import annotations

import os
from typing import Final

import pytest

EVERY_POINT: Final = "HAJOB_EVERY_POINT" in os.environ

only_e2e: Final = pytest.mark.skipif(not EVERY_POINT, reason="make e2e takes it")
"""For a scenario whose parts are shown by others, too: what it alone can show is that they work together."""
