"""In the middle of a repair a controller is lost: what another one can still do. One table, read from the first row.

How far the ranks are is told by their gates: which actions each process has answered since it last trained. Some may be
done once only until the rank trains again; where another controller asks for them once more, the gate answers in the
rank's place (docs/protocols/mindio.md §11.5).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

LOCKED, PAUSED, STOPPED, CLEANED, REPAIRED, ROLLED_BACK = 12, 14, 18, 20, 22, 24
SAVED, RENAMED, REBUILT = 5, 8, 32
DOWNGRADED, REBUILT_LARGER, REPAIRED_LARGER, ROLLED_BACK_LARGER = 30, 34, 36, 38
ELASTIC = frozenset({DOWNGRADED, REBUILT_LARGER, REPAIRED_LARGER, ROLLED_BACK_LARGER})
"""Types of answers (docs/protocols/mindio.md §9.6)."""


class Resumption(StrEnum):
    """What is done with a repair that was under way."""

    TRAINING = "training"  # there is none, or it is through: make the ranks known, that is all
    PLAIN = "plain"  # from the front, nothing has been done that cannot be done again
    RESUME = "resume"  # from the front, the gates answer what has been done
    REPAIRED = "repaired"  # the same, and what was repaired counts as well
    SAVE = "save"  # nothing is repaired any more: the ranks are locked again, and what they have is saved
    PAUSED = "paused"  # the gates answer who is held, so that all can be let go
    IMPOSSIBLE = "impossible"  # the job starts anew


@dataclass(frozen=True, slots=True)
class RepairProgress:
    """How far the repair is.

    Attributes:
        answered: By rank of a process that lives, what it has answered since it last trained.
        lost: Ranks whose process MindIO was told of as dead, and that are not repaired.
        kinds: What any rank has answered.
        moving: Second processes are about to take the places of others.
        half_repaired: Ranks give their data to successors that were not told to take them.
    """

    answered: Mapping[int, Collection[int]]
    lost: Collection[int] = ()
    moving: bool = False
    half_repaired: bool = False
    kinds: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        """Asked by every row, of thousands of ranks: what any rank has answered."""
        object.__setattr__(self, "kinds", frozenset().union(*self.answered.values()))

    def has_answered(self, *kinds: int) -> bool:
        """Return whether any rank has answered any of these."""
        return not self.kinds.isdisjoint(kinds)

    @property
    def successors_are_repaired(self) -> bool:
        """Whether every lost rank has a process that has taken part in the repair itself."""
        return all(REPAIRED in self.answered.get(rank, ()) for rank in self.lost)


@dataclass(frozen=True, slots=True)
class ResumptionRow:
    """The first row that fits counts. `reason`: for a person, where nothing can be done."""

    fits: str
    outcome: Resumption
    reason: str = ""


def row_of_progress(progress: RepairProgress) -> ResumptionRow:
    """Return the row for this progress."""
    return next(ROWS[name] for name, question in QUESTIONS if question(progress))


ROWS: Mapping[str, ResumptionRow] = {
    row.fits: row
    for row in (
        ResumptionRow(
            "stopped for a move",
            Resumption.IMPOSSIBLE,
            "it was lost after every rank had left its step for a move, which only that controller could end",
        ),
        ResumptionRow(
            "half repaired",
            Resumption.IMPOSSIBLE,
            "it was lost when it had told a rank to give its data, which it gives once, and nobody to take them",
        ),
        ResumptionRow("saved", Resumption.IMPOSSIBLE, "it was lost when the checkpoint of the fault was complete"),
        ResumptionRow("paused", Resumption.PAUSED),
        ResumptionRow(
            "repaired without its successor",
            Resumption.SAVE,
            "a rank has given its data to a successor that is gone, and gives them once: no repair can end",
        ),
        ResumptionRow("repaired", Resumption.REPAIRED),
        ResumptionRow("saving", Resumption.PLAIN),
        ResumptionRow("of another size", Resumption.RESUME),
        ResumptionRow("stopped", Resumption.RESUME),
        ResumptionRow("locked", Resumption.PLAIN),
        ResumptionRow("training", Resumption.TRAINING),
    )
}
QUESTIONS: tuple[tuple[str, Callable[[RepairProgress], bool]], ...] = (
    (
        "stopped for a move",
        lambda stage: stage.moving and stage.has_answered(PAUSED, REBUILT, REPAIRED, ROLLED_BACK),
    ),
    ("half repaired", lambda stage: stage.half_repaired),
    ("saved", lambda stage: stage.has_answered(RENAMED)),
    ("paused", lambda stage: stage.has_answered(PAUSED)),
    (
        "repaired without its successor",
        lambda stage: stage.has_answered(REPAIRED) and not stage.successors_are_repaired,
    ),
    ("repaired", lambda stage: stage.has_answered(REPAIRED)),
    ("saving", lambda stage: stage.has_answered(SAVED)),
    ("of another size", lambda stage: stage.has_answered(*ELASTIC)),
    ("stopped", lambda stage: stage.has_answered(STOPPED, CLEANED, REBUILT, ROLLED_BACK)),
    ("locked", lambda stage: stage.has_answered(LOCKED)),
    ("training", lambda _stage: True),
)
