"""What a look into a file tells, and the verdict of the rules; both layouts share them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hajob.domain.checkpoints import CheckpointRefusal, RefusalReason


@dataclass(frozen=True, slots=True)
class Look:
    """What the inside of a file says.

    Attributes:
        whole: nothing is cut off, as far as its format tells.
        step: the step it was saved at; None where the format does not say.
        partial: what several ranks hold is in the file of one of them only, so it cannot stand for another rank's.
    """

    whole: bool = True
    step: int | None = None
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """A file to make from another one that holds the same shard."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is complete, what is not, and what has to be done so that only the former is loaded.

    Attributes:
        name: the newest complete checkpoint; empty: there is none.
        step: its step; -1: there is none.
        refused: every newer one, newest first.
        copies: to be made first, so that it is complete.
        writes: text by path, to be written then: trackers that do not name it.
        aside: files to be renamed (`.refused` is added), because a training would load from them.
        doubt: every committed checkpoint breaks a rule of ours in the same way, so the rule does not fit this training:
            nothing is refused and nothing is to be done. Empty otherwise.
        tracked: the trackers name it already, so that a training that loads now gets this one.
    """

    name: str = ""
    step: int = -1
    refused: tuple[CheckpointRefusal, ...] = ()
    copies: tuple[Copy, ...] = ()
    writes: Mapping[str, str] | None = None
    aside: tuple[str, ...] = ()
    doubt: str = ""

    @property
    def is_tracked(self) -> bool:
        """Whether nothing has to be done."""
        return not (self.copies or self.writes or self.aside)


def refuse_checkpoint(name: str, reason: RefusalReason, detail: str = "") -> CheckpointRefusal:
    """Return a refusal of these rules."""
    return CheckpointRefusal(name, reason.value, detail)


def show_first_names(names: list[str], most: int = 3) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def step_in_tracker(text: str | None) -> int | None:
    """Return the step that a tracker's text names; None if it is no plain number."""
    stripped = (text or "").strip()
    return int(stripped) if stripped.isdecimal() and stripped.isascii() and len(stripped) <= 15 else None
