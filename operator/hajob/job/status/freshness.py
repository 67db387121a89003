"""How old the values of a status that move by themselves may become: the step, its time, goodput, checkpoints.

People look at a job while it is young or in trouble, so it is refreshed often then, and rarely while all is well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from hajob.api import status as api
from hajob.api.conditions import ConditionType, Reason, find_condition
from hajob.api.enums import ConditionStatus

OFTEN_SECONDS: Final = 10
"""Age at which a young job, or one in trouble, is refreshed."""
RARELY_SECONDS: Final = 600
"""Age at which progress alone causes a write; otherwise it rides on other writes."""
WATCHED_SECONDS: Final = 600
"""So long a job is young, and so long after an incident it is watched."""

RATE: Final = 0.2
"""Refreshes a second, of all jobs together: a hundred jobs at rest take most of them."""
BURST: Final = 5.0
"""Refreshes that may be saved up."""


def longest_age_of_progress(status: api.HATrainingJobStatus) -> int:
    """Return the age in seconds at which the moving values of this status are to be written again."""
    progress = status.progress
    if progress is None or status.completion_time is not None:
        return RARELY_SECONDS
    begun = [status.start_time, status.incidents[0].start_time if status.incidents else None]
    ages = [(progress.observed_time - one).total_seconds() for one in begun if one is not None]
    return OFTEN_SECONDS if any(age < WATCHED_SECONDS for age in ages) or _is_in_trouble(status) else RARELY_SECONDS


def _is_in_trouble(status: api.HATrainingJobStatus) -> bool:
    """Whether a job stands that should train; one that was asked to stand is in no trouble."""
    running = find_condition(status.conditions, ConditionType.RUNNING)
    at_rest = {Reason.RUNNING_SUSPENDED.word, Reason.PAUSED.word, Reason.RUNNING_ENDED.word}
    return running is not None and running.status != ConditionStatus.TRUE and running.reason not in at_rest


def waits_for_nodes(status: api.HATrainingJobStatus) -> bool:
    """Return whether the job waits for nodes: what others have of them moves by itself."""
    scheduled = find_condition(status.conditions, ConditionType.SCHEDULED)
    return scheduled is not None and scheduled.reason == Reason.WAITING_FOR_CAPACITY.word


def without_moving_words(conditions: Sequence[api.Condition]) -> tuple[api.Condition, ...]:
    """Return conditions without the words that move by themselves: of a wait for nodes they are counted anew."""
    moving = Reason.WAITING_FOR_CAPACITY.word
    return tuple(one.model_copy(update={"message": ""}) if one.reason == moving else one for one in conditions)


def is_older_than(old: api.HATrainingJobStatus, new: api.HATrainingJobStatus, seconds: int) -> bool:
    """Return whether the written values are so old that the new ones are worth a write."""
    if old.progress is None or new.progress is None:
        return False
    return (new.progress.observed_time - old.progress.observed_time).total_seconds() >= seconds


class Refreshes:
    """The refreshes that all jobs share; a job that is refreshed rarely always may."""

    def __init__(self) -> None:
        self._left, self._at = BURST, -math.inf

    def take_refresh(self, now: float, *, always: bool = False) -> bool:
        """Return whether a job may be refreshed, and count it; `now`: monotonic seconds."""
        # A bucket that fills by RATE, so that a quiet hour pays for one burst and for no more.
        if self._at > -math.inf:
            self._left = min(BURST, self._left + (now - self._at) * RATE)
        self._at = now
        if self._left < 1 and not always:
            return False
        self._left = max(self._left - 1, -BURST)
        return True
