"""Account of where a job's time went, which always adds up to wall time; pure.

Each moment is booked in exactly one bucket. Time that is classified only afterwards (how long a fault went
unnoticed, which steps are repeated) is moved from one bucket to another, never created; so the sum is the wall time
by construction. Integer milliseconds, no clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from hajob.domain.errors import HajobInputError


class Bucket(StrEnum):
    """Category of a job's time."""

    SCHEDULING = "Scheduling"
    START_UP = "StartUp"
    TRAINING = "Training"
    LOST_STEPS = "LostSteps"
    DETECTION = "Detection"
    DECISION = "Decision"
    RECOVERY = "Recovery"
    CHECKPOINTING = "Checkpointing"
    PAUSED = "Paused"
    SHRUNK = "DegradedByShrink"
    WAITING = "WaitingForCapacity"
    SUSPENDED = "Suspended"


PROGRESS: Final = frozenset({Bucket.TRAINING, Bucket.LOST_STEPS})
"""Buckets of time in which ranks finish steps."""
ASKED_FOR: Final = frozenset({Bucket.PAUSED, Bucket.SUSPENDED})
"""Buckets of time in which somebody wanted the job to stand: no loss, and no sign of a bad cluster."""


@dataclass(frozen=True, slots=True)
class Account:
    """Milliseconds per bucket.

    Attributes:
        since_ms: time up to which the account is booked.
        bucket: the current bucket, None once the job has ended.
        missing: of `TRAINING`, the part (missing of desired data-parallel ranks) that goes to `SHRUNK` instead.
        desired: data-parallel ranks at full size.
        booked: milliseconds of each bucket so far.
        furthest_step: the newest step that was ever finished: steps below it are repeated ones.
        disturbed: bucket before the current outage began; None while there is none.
        undetected_ms: the unnoticed part of that outage, as far as it has been moved to `DETECTION`.
    """

    since_ms: int
    bucket: Bucket | None = Bucket.SCHEDULING
    missing: int = 0
    desired: int = 1
    booked: Mapping[Bucket, int] = field(default_factory=dict)
    furthest_step: int = -1
    disturbed: Bucket | None = None
    undetected_ms: int = 0

    def book_until(self, now_ms: int) -> "Account":
        """Book the time up to now; a clock that went back books nothing."""
        elapsed = now_ms - self.since_ms
        # Wall clocks of two leaders may differ: time is booked once, by whoever is ahead.
        if elapsed <= 0:
            return self
        if self.bucket is None:
            return replace(self, since_ms=now_ms)
        booked = dict(self.booked)
        lost = elapsed * self.missing // self.desired if self.bucket is Bucket.TRAINING else 0
        for bucket, amount in ((self.bucket, elapsed - lost), (Bucket.SHRUNK, lost)):
            if amount:
                booked[bucket] = booked.get(bucket, 0) + amount
        return replace(self, since_ms=now_ms, booked=booked)

    def switch_bucket(self, bucket: Bucket | None, now_ms: int) -> "Account":
        """Book time into another bucket from now on; None ends the account."""
        return replace(self.book_until(now_ms), bucket=bucket)

    def set_missing(self, missing: int, desired: int, now_ms: int) -> "Account":
        """Set how many data-parallel ranks are missing from now on; 0 is full size."""
        if desired < 1 or not 0 <= missing < desired:
            raise HajobInputError(
                f"{missing} of {desired} data-parallel ranks missing: not between 0 and {desired - 1}"
            )
        return replace(self.book_until(now_ms), missing=missing, desired=desired)

    def move_time(self, source: Bucket, target: Bucket, milliseconds: int) -> "Account":
        """Move booked time to another bucket; never more than the source holds."""
        amount = max(0, min(milliseconds, self.booked.get(source, 0)))
        if not amount or source is target:
            return self
        booked = {**self.booked, source: self.booked[source] - amount}
        booked[target] = booked.get(target, 0) + amount
        return replace(self, booked=booked)

    def begin_outage(self, bucket: Bucket | None, now_ms: int) -> "Account":
        """Begin or continue an outage: book time into another bucket and remember the one before."""
        if self.disturbed is None and self.bucket in PROGRESS:
            return replace(self.switch_bucket(bucket, now_ms), disturbed=self.bucket, undetected_ms=0)
        return self.switch_bucket(bucket, now_ms)

    def book_training(self, step: int, now_ms: int) -> "Account":
        """Book training at this step (-1: unknown): as progress, or as repeated steps."""
        again = step < self.furthest_step if step >= 0 else self.bucket is Bucket.LOST_STEPS
        account = self.switch_bucket(Bucket.LOST_STEPS if again else Bucket.TRAINING, now_ms)
        return replace(account, furthest_step=max(step, self.furthest_step), disturbed=None)

    def note_step(self, step: int, now_ms: int) -> "Account":
        """Note that training has come to this step; return the same account where that is nothing new."""
        known = self.bucket is Bucket.TRAINING and step == self.furthest_step
        return self if known or self.bucket not in PROGRESS else self.book_training(step, now_ms)

    def move_unnoticed(self, milliseconds: int) -> "Account":
        """Move the unnoticed time of the current outage, booked as training so far, to `DETECTION`.

        May be repeated, also for an outage that is over: only the increase is moved.
        """
        more = milliseconds - self.undetected_ms
        if self.disturbed is None or more <= 0:
            return self
        lost = more * self.missing // self.desired if self.disturbed is Bucket.TRAINING else 0
        account = self.move_time(self.disturbed, Bucket.DETECTION, more - lost).move_time(
            Bucket.SHRUNK, Bucket.DETECTION, lost
        )
        return replace(account, undetected_ms=milliseconds)

    @property
    def total_ms(self) -> int:
        """All booked time."""
        return sum(self.booked.values())

    @property
    def percent_training(self) -> int:
        """Percentage of training time, rounded down; 0 before anything is booked."""
        return self._percent_of(self.total_ms)

    @property
    def percent_of_wanted(self) -> int:
        """Percentage of training in the time that was not `ASKED_FOR`, rounded down; 0 before anything is booked."""
        return self._percent_of(self.total_ms - sum(self.booked.get(bucket, 0) for bucket in ASKED_FOR))

    def _percent_of(self, whole_ms: int) -> int:
        return 100 * self.booked.get(Bucket.TRAINING, 0) // whole_ms if whole_ms else 0
