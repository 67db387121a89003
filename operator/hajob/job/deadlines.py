"""When the earliest of a job's deadlines counts as missed.

An operator that stood still, or has just begun to lead, may see a past deadline before it has read that the deadline
was met. So after a pause it first listens to the coordinator, and only then calls a deadline missed
(docs/decisions/0011-one-clock.md). An operator that is cut off from the coordinator waits likewise for as long as that
lasts (docs/decisions/0021-an-operator-cut-off.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

LOOK_SECONDS: Final = 1.0
"""How often a deadline is looked at: so a suspension is noticed, and a deadline that nobody took is told again."""
SHORTEST_SECONDS: Final = 0.1
"""Between two looks at a deadline that has passed while the coordinator was not listened to long enough."""
AWAY_SECONDS: Final = 2.0
"""A look that comes later by so much means that this process did not run; a busy operator is late by less."""
QUIET_SECONDS: Final = 1.5
"""A report that comes so long after the return is none of those that were waiting to be read."""
HEAR_SECONDS: Final = 10.0
"""A coordinator that was not heard for so long after the return cannot be reached."""


@dataclass(slots=True)
class DeadlineWatch:
    """Whether this operator has listened long enough to call a deadline missed.

    All times are seconds of the monotonic clock, but for deadlines, which are job time in milliseconds.

    Attributes:
        back: since when this process has run without a pause, and was not cut off.
        heard: when the coordinator has last reported.
        look_at: when it is looked at the deadlines next; inf: there are none.
    """

    back: float
    heard: float
    look_at: float = inf

    def note_report(self, now: float) -> None:
        """Note that the coordinator has reported."""
        self._notice_absence(now)
        self.heard = now

    def delay_to_look(self, deadlines: Mapping[str, int], now: float, now_ms: int) -> float | None:
        """Return the seconds until it is to be looked at these deadlines; None: there are none."""
        self._notice_absence(now)
        if not deadlines:
            self.look_at = inf
            return None
        return self._next_look(min(deadlines.values()) - now_ms, now)

    def look_at_deadlines(
        self, deadlines: Mapping[str, int], now: float, now_ms: int, *, cut_off: bool
    ) -> tuple[str, float]:
        """Return the earliest deadline if it counts as missed (empty: not yet), and the seconds until the next look."""
        self._notice_absence(now)
        if cut_off:
            self.back = now
        name, at_ms = min(deadlines.items(), key=lambda item: item[1])
        missed = now_ms >= at_ms and self._has_listened(now)
        at_least = LOOK_SECONDS if missed or cut_off else SHORTEST_SECONDS
        return name if missed else "", self._next_look(at_ms - now_ms, now, at_least)

    def _notice_absence(self, now: float) -> None:
        if now - self.look_at > AWAY_SECONDS:
            self.back = self.look_at = now

    def _next_look(self, rest_ms: int, now: float, at_least: float = 0.0) -> float:
        delay = min(max(rest_ms / 1000, at_least), LOOK_SECONDS)
        self.look_at = now + delay
        return delay

    def _has_listened(self, now: float) -> bool:
        """Whether the coordinator has reported since this operator is back, or had the time to."""
        return now - self.back >= HEAR_SECONDS or self.heard - self.back >= QUIET_SECONDS
