"""One timer for the earliest of a job's deadlines; a new leader arms it again from the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from hajob.runtime.clock import Clock


class DeadlineTimer:
    """Calls `reached` with the name of the earliest deadline once it has come."""

    def __init__(self, clock: Clock, reached: Callable[[str], None]) -> None:
        self._clock, self._reached = clock, reached
        self._timer: asyncio.TimerHandle | None = None

    def arm(self, deadlines: Mapping[str, int]) -> None:
        """These are the deadlines now: name and wall time in milliseconds."""
        self.cancel()
        if deadlines:
            name, at_ms = min(deadlines.items(), key=lambda item: item[1])
            delay = max(0.0, (at_ms - self._clock.now_milliseconds()) / 1000)
            self._timer = asyncio.get_running_loop().call_later(delay, self._reached, name)

    def cancel(self) -> None:
        """There is none."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
