"""Step time at a job's current size, measured from the steps that it was seen to finish."""

from dataclasses import dataclass, replace
from typing import NamedTuple

ENOUGH_STEPS = 5
"""Steps to be seen before a pace is reported."""


class StepTimes(NamedTuple):
    """How long the last steps of a training took, in seconds, without outages.

    Attributes:
        median: half of them took no longer.
        slow: 95 of 100 took no longer.
    """

    median: float
    slow: float


@dataclass(frozen=True, slots=True)
class StepPace:
    """The steps of one period of training, from one end of an outage to the next outage.

    Attributes:
        size: data-parallel ranks that train.
        resumed_ms: end of the last outage; distinguishes the periods.
        began_ms: when its first step was seen.
        began: that step.
        at_ms: when the newest step was seen.
        step: that step.
        before_ms: milliseconds of a step in the period before, where it had the same size.
    """

    size: int = 0
    resumed_ms: int = -1
    began_ms: int = 0
    began: int = -1
    at_ms: int = 0
    step: int = -1
    before_ms: int | None = None

    @property
    def milliseconds_per_step(self) -> int | None:
        """Milliseconds of a step; None while too few were seen."""
        steps = self.step - self.began
        return max((self.at_ms - self.began_ms) // steps, 1) if steps >= ENOUGH_STEPS else self.before_ms

    def with_seen_step(self, size: int, resumed_ms: int, step: int, now_ms: int) -> "StepPace":
        """Record that the training of this size has come to this step (-1: unknown) since the last outage ended."""
        if step < 0:
            return self
        # Another size has another pace, and steps that are trained again after an outage were seen before: start anew,
        # and keep showing the former pace of this size until enough steps are seen.
        if (size, resumed_ms) != (self.size, self.resumed_ms) or step < self.step:
            return StepPace(
                size, resumed_ms, now_ms, step, now_ms, step, self.milliseconds_per_step if size == self.size else None
            )
        return self if step == self.step else replace(self, at_ms=now_ms, step=step)
