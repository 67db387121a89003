"""How long each step is made to take: real trainings are not even (docs/internals/toy-trainer.md, "Manners").

A first step compiles: 1.7 to 444 times a steady one was seen, 8 times in the median. Later ones reach 2.7 times the
median. Both follow from the step's number, so that two runs of one training are alike.
"""

from __future__ import annotations

from typing import Final

FIRST: Final = 8.0
LONG: Final = 2.5
EVERY: Final = 47
"""One step of so many is a long one."""
JITTER: Final = 0.1
SAVE_STEPS: Final = 5.0
"""A periodic save takes as long as so many steps."""
EVALUATION: Final = 0.4
"""An iteration of an evaluation has no backward pass."""


class Pace:
    """The pace of one process: `seconds` of a steady step; 0: as fast as can be."""

    def __init__(self, seconds: float, *, is_uneven: bool) -> None:
        self.seconds = seconds
        self._is_uneven = is_uneven
        self._is_first = is_uneven

    def step(self, step: int) -> float:
        """Seconds that this step takes at least; the first one asked for compiles."""
        if not self._is_uneven:
            return self.seconds
        if self._is_first:
            self._is_first = False
            return self.seconds * FIRST
        if step % EVERY == 0:
            return self.seconds * LONG
        return self.seconds * (1 + JITTER * ((step * 7919) % 101 / 50 - 1))

    def has_compiled(self) -> None:
        """A restarted process compiles before it is ready, not in its first step."""
        self._is_first = False

    def save(self) -> float:
        """Seconds that a periodic save takes at least."""
        return self.seconds * SAVE_STEPS if self._is_uneven else 0.0

    def evaluation(self, iterations: int) -> float:
        """Seconds that an evaluation takes at least."""
        return self.seconds * EVALUATION * iterations
