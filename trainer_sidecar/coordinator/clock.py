"""The clock of leases and silence, which also counts the time in which the machine was suspended."""

from __future__ import annotations

import time

NANOSECONDS = 1_000_000_000


def now() -> float:
    """Return the seconds since the machine was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
