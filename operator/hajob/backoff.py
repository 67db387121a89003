"""Exponential backoff without an end: the only retry rule of the operator.

Jitter keeps the jobs of a cluster from coming back in step after an outage of the API.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from hajob.clock import Alarm, Clock

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

    def reset_delay(self) -> None:
        """Start again with the shortest delay, after a success."""
        self._next = self._first

    def next_delay(self) -> float:
        """Return the seconds to wait now."""
        ceiling = self._next
        self._next = min(self._next * 2, self._longest)
        return ceiling * (0.5 + 0.5 * self._random())


class Retry:
    """One operation that is repeated with backoff; `wake` is called when the next try is due.

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
    def is_try_due(self) -> bool:
        """Whether the operation may be tried now."""
        return self._clock.monotonic() >= self._at

    def note_failure(self) -> None:
        """Note a failure: the next try waits longer."""
        delay = self._backoff.next_delay()
        self._at = self._clock.monotonic() + delay
        self._alarm.set_alarm(delay, self._wake)

    def try_within(self, seconds: float) -> None:
        """Try within this many seconds, at a random moment, because the cause of the failure may be gone.

        Of repeated calls the first one counts.
        """
        at = self._clock.monotonic() + seconds * self._random()
        if self._alarm.is_set and at < self._at - seconds:
            self._at = at
            self._alarm.set_alarm(at - self._clock.monotonic(), self._wake)

    def note_success(self) -> None:
        """Note a success: the next failure begins with the shortest delay again."""
        self._backoff.reset_delay()
        self.try_at_once()

    def try_at_once(self) -> None:
        """Try at once, because the cause of the failure may be gone."""
        self._at = 0.0
        self.cancel()

    def cancel(self) -> None:
        """Cancel the pending call of `wake`."""
        self._alarm.cancel()
