"""One timer for the earliest of a job's deadlines; a new leader arms it again from the journal.

An operator that stood still, or has just begun to lead, may see a past deadline before it has read that the deadline
was met. So after a pause it first listens to the coordinator, and only then calls a deadline missed
(docs/decisions/0011-one-clock.md). An operator that is cut off from the coordinator waits likewise for as long as that
lasts (docs/decisions/0021-an-operator-cut-off.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from hajob.clock import Alarm, Clock, JobTime

LOOK_SECONDS: Final = 1.0
"""How often a deadline is looked at: so a suspension is noticed, and a deadline that nobody took is told again."""
AWAY_SECONDS: Final = 2.0
"""A look that comes later by so much means that this process did not run; a busy operator is late by less."""
QUIET_SECONDS: Final = 1.5
"""A report that comes so long after the return is none of those that were waiting to be read."""
HEAR_SECONDS: Final = 10.0
"""A coordinator that was not heard for so long after the return cannot be reached."""


class DeadlineTimer:
    """Calls `reached` with the name of the earliest deadline when it has passed, and repeats until another is earliest.

    Args:
        clock: of the machine.
        time: by which the job lives.
        reached: called with the name.
        cut_off: whether this operator is cut off from the job's coordinator.
    """

    def __init__(
        self, clock: Clock, time: JobTime, reached: Callable[[str], None], cut_off: Callable[[], bool] = lambda: False
    ) -> None:
        self._clock, self._time, self._reached, self._cut_off = clock, time, reached, cut_off
        self._alarm = Alarm(clock)
        self._look_at = inf
        self._back = self._heard = clock.monotonic()

    def heard(self) -> None:
        """Note that the coordinator has reported."""
        self._notice_absence()
        self._heard = self._clock.monotonic()

    def arm(self, deadlines: Mapping[str, int]) -> None:
        """Replace the deadlines: name to job time in milliseconds."""
        self._notice_absence()
        self.cancel()
        if deadlines:
            self._wait(*min(deadlines.items(), key=lambda item: item[1]))

    def cancel(self) -> None:
        """Clear all deadlines."""
        self._alarm.cancel()
        self._look_at = inf

    def _notice_absence(self) -> None:
        now = self._clock.monotonic()
        if now - self._look_at > AWAY_SECONDS:
            self._back = self._look_at = now

    def _wait(self, name: str, at_ms: int, at_least: float = 0.0) -> None:
        rest = (at_ms - self._time.now()) / 1000
        delay = min(max(rest, at_least), LOOK_SECONDS)
        self._look_at = self._clock.monotonic() + delay
        self._alarm.set_alarm(delay, self._look, name, at_ms)

    def _look(self, name: str, at_ms: int) -> None:
        self._notice_absence()
        cut_off = self._cut_off()
        if cut_off:
            self._back = self._clock.monotonic()
        come = self._time.now() >= at_ms and self._has_listened()
        self._wait(name, at_ms, at_least=LOOK_SECONDS if come or cut_off else 0.1)
        if come:
            self._reached(name)

    def _has_listened(self) -> bool:
        """Whether the coordinator has reported since this operator is back, or had the time to."""
        away = self._clock.monotonic() - self._back < HEAR_SECONDS
        return not away or self._heard - self._back >= QUIET_SECONDS
