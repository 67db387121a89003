"""One timer for the earliest of a job's deadlines; a new leader arms it again from the journal.

An operator that stood still, or has just begun to lead, may find a deadline long past while the news that it was kept
is on its way. So a deadline that is noticed late is held against nobody until the coordinator could be heard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from hajob.runtime.clock import Clock

LATE_MILLISECONDS: Final = 2_000
"""A busy operator is late by less."""
HEAR_MILLISECONDS: Final = 5_000
"""Time to reach the coordinator again and to hear its report."""


class DeadlineTimer:
    """Calls `reached` with the name of the earliest deadline once it has come."""

    def __init__(self, clock: Clock, reached: Callable[[str], None]) -> None:
        self._clock, self._reached = clock, reached
        self._timer: asyncio.TimerHandle | None = None
        self._excused: tuple[str, int] | None = None
        self._until_ms = 0

    def arm(self, deadlines: Mapping[str, int]) -> None:
        """These are the deadlines now: name and wall time in milliseconds."""
        self.cancel()
        if deadlines:
            self._wait(*min(deadlines.items(), key=lambda item: item[1]))

    def cancel(self) -> None:
        """There is none."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, name: str, at_ms: int) -> None:
        now = self._clock.now_milliseconds()
        if self._is_late(name, at_ms):
            self._excused, self._until_ms = (name, at_ms), now + HEAR_MILLISECONDS
        due = self._until_ms if self._excused == (name, at_ms) else at_ms
        self._timer = asyncio.get_running_loop().call_later(max(0, due - now) / 1000, self._come, name, at_ms)

    def _come(self, name: str, at_ms: int) -> None:
        if self._is_late(name, at_ms):
            self._wait(name, at_ms)
        else:
            self._reached(name)

    def _is_late(self, name: str, at_ms: int) -> bool:
        """Whether this is the first time that the deadline is looked at, and long after it."""
        return self._clock.now_milliseconds() - at_ms > LATE_MILLISECONDS and self._excused != (name, at_ms)
