"""Waiting longer and longer, but never giving up: the only retry rule of the operator.

Jitter keeps the jobs of a cluster from coming back in step after an outage of the API.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from hajob.runtime.clock import Alarm, Clock

FIRST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 10.0


class Backoff:
    """Growing delays: each about twice the one before, up to a cap, half of it random."""

    def __init__(
        self,
        first: float = FIRST_SECONDS,
        longest: float = LONGEST_SECONDS,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self._first = first
        self._longest = longest
        self._random = rand
        self._next = first

    def reset(self) -> None:
        """Something worked: start again with the shortest delay."""
        self._next = self._first

    def delay(self) -> float:
        """Seconds to wait now."""
        ceiling = self._next
        self._next = min(self._next * 2, self._longest)
        return ceiling * (0.5 + 0.5 * self._random())


class Retry:
    """One thing that is tried again: not before its time has come, and then somebody is woken.

    Args:
        clock: of the machine.
        wake: called when the time has come.
        first: seconds before the second try.
        longest: cap of the delays, in seconds.
    """

    def __init__(
        self,
        clock: Clock,
        wake: Callable[[], None],
        first: float,
        longest: float,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self._clock, self._wake, self._random = clock, wake, rand
        self._backoff = Backoff(first, longest)
        self._alarm = Alarm(clock)
        self._at = 0.0

    @property
    def due(self) -> bool:
        """Whether it may be tried now."""
        return self._clock.monotonic() >= self._at

    def failed(self) -> None:
        """Wait, longer each time."""
        delay = self._backoff.delay()
        self._at = self._clock.monotonic() + delay
        self._alarm.set(delay, self._wake)

    def sooner(self, seconds: float) -> None:
        """What it failed of may have changed: try within so many seconds, at a moment of chance.

        Of many such calls the first one counts.
        """
        at = self._clock.monotonic() + seconds * self._random()
        if self._alarm.is_set and at < self._at - seconds:
            self._at = at
            self._alarm.set(at - self._clock.monotonic(), self._wake)

    def succeeded(self) -> None:
        """Begin with the shortest delay again."""
        self._backoff.reset()
        self.hurry()

    def hurry(self) -> None:
        """What it failed of may have changed."""
        self._at = 0.0
        self.cancel()

    def cancel(self) -> None:
        """Wake nobody."""
        self._alarm.cancel()
