"""Exponential backoff without an end: the only retry rule of the operator.

Jitter keeps the jobs of a cluster from coming back in step after an outage of the API.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

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
