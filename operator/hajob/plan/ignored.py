"""Reasons why an event changes nothing: labels of the metric `hajob_events_ignored`, and words for logs."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class IgnoreReason(StrEnum):
    """Reason why an event changed nothing; a closed set, so that it can be the label of a metric."""

    INVALID = "Invalid"
    DUPLICATE = "Duplicate"
    STALE = "Stale"
    KNOWN = "Known"
    DROPPED = "Dropped"
    TOLERATED = "Tolerated"
    UNKNOWN_STRATEGY = "UnknownStrategy"
    OTHER_ATTEMPT = "OtherAttempt"
    OTHER_INCARNATION = "OtherIncarnation"
    OLDER_ORDER = "OlderOrder"
    NOT_TRAINED = "NotTrained"
    SAVING = "Saving"
    ENDING = "Ending"
    ENDS_NOTHING = "EndsNothing"
    NOT_DUE = "NotDue"
    NOTHING_TO_DO = "NothingToDo"


IGNORE_SENTENCE: Final = {
    IgnoreReason.INVALID: "invalid for this job",
    IgnoreReason.DUPLICATE: "already known",
    IgnoreReason.STALE: "what it concerns is over",
    IgnoreReason.KNOWN: "its ranks are being recovered already",
    IgnoreReason.DROPPED: "its ranks left with a shrink",
    IgnoreReason.TOLERATED: "the policy tolerates it",
    IgnoreReason.UNKNOWN_STRATEGY: "MindIO has no such strategy",
    IgnoreReason.OTHER_ATTEMPT: "it belongs to another attempt",
    IgnoreReason.OTHER_INCARNATION: "it belongs to another incarnation",
    IgnoreReason.OLDER_ORDER: "it answers an older order",
    IgnoreReason.NOT_TRAINED: "a script that ends before its ranks trained is a fact",
    IgnoreReason.SAVING: "a checkpoint is being saved; its result or its deadline decides",
    IgnoreReason.ENDING: "nothing is left to train, and nothing is lost",
    IgnoreReason.ENDS_NOTHING: "a result that ends nothing",
    IgnoreReason.NOT_DUE: "not set, or not yet due",
    IgnoreReason.NOTHING_TO_DO: "nothing to do in this state",
}
"""Sentence of each reason in the table."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """An event that changed nothing: the reason and its details."""

    reason: IgnoreReason
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"
