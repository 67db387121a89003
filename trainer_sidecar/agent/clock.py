"""The agent's clock as a port: nanoseconds that also count while the machine is suspended.

A lease by a clock that stops in a suspended machine would still be valid when the machine wakes up, so there is only
CLOCK_BOOTTIME here. Tests put their own clock in its place.
"""

from __future__ import annotations

from typing import Protocol

from trainer_sidecar.launcher.protocol import boottime_nanoseconds

SECOND = 1_000_000_000
MILLISECOND = 1_000_000


class Clock(Protocol):
    """The time, as nanoseconds since some moment that is the same for agent and launcher."""

    def now(self) -> int:
        """Return the time in nanoseconds, suspended time included."""


class BootClock:
    """The machine's CLOCK_BOOTTIME: nanoseconds since it was started."""

    now = staticmethod(boottime_nanoseconds)
