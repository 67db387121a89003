"""Reasons for refusing a checkpoint, declared once for agents, operator, status and docs.

The sidecar does the check itself, which needs a directory (`trainer_sidecar.checkpoints`); these reasons travel.
docs/user/checkpoints.md explains each reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class RefusalReason(StrEnum):
    """Reason why a checkpoint is refused."""

    TEMPORARY_LEFT_BEHIND = "TemporaryLeftBehind"
    NOT_COMMITTED = "NotCommitted"
    WRONG_TRACKER = "WrongTracker"
    MISSING_SHARD = "MissingShard"
    TRUNCATED_FILE = "TruncatedFile"
    MIXED_STEPS = "MixedSteps"
    MISSING_STRATEGY = "MissingStrategy"
    LOAD_FAILED = "LoadFailed"


SENTENCE: Final = {
    RefusalReason.TEMPORARY_LEFT_BEHIND: "saving it was begun and never finished",
    RefusalReason.NOT_COMMITTED: "the tracker does not name it yet, so whoever saved it did not get to the end",
    RefusalReason.WRONG_TRACKER: "the tracker does not name a checkpoint that is there",
    RefusalReason.MISSING_SHARD: "a shard is not there",
    RefusalReason.TRUNCATED_FILE: "a file is cut off or damaged",
    RefusalReason.MIXED_STEPS: "its shards are of different steps",
    RefusalReason.MISSING_STRATEGY: "the strategy files that are needed to spread it over the ranks are not all there",
    RefusalReason.LOAD_FAILED: "it looks whole, and the training could not load it",
}
"""Sentence for people of each reason."""

MOST_REFUSALS: Final = 8
"""Refusals that are sent in full; the rest is only counted."""


@dataclass(frozen=True, slots=True)
class CheckpointRefusal:
    """One refused checkpoint: its name below the directory, the reason, and what was found."""

    name: str
    reason: str
    detail: str = ""

    @property
    def refusal_message(self) -> str:
        """Sentence for people; the reason of another version is shown as it is."""
        known = SENTENCE.get(RefusalReason(self.reason)) if self.reason in set(RefusalReason) else self.reason
        return f"{known}: {self.detail}" if self.detail else f"{known}"


def describe_checkpoints(refused: Sequence[CheckpointRefusal], step: int) -> str:
    """Return one line for a condition or an event: what is loaded, and what is not."""
    loaded = f"resumes from step {step}" if step >= 0 else "no complete checkpoint is left, starts from step 0"
    if not refused:
        return loaded
    shown = "; ".join(f"{one.name} ({one.reason}: {one.detail})" for one in refused[:MOST_REFUSALS])
    return f"{loaded}; refused: {shown}"
