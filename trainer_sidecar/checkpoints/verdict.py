"""The input and the verdict of the rules; both layouts share them.

The rules see a directory only through `Directory`, so that a test can put a dictionary behind it, and so that of a
large checkpoint only those files are opened that the verdict depends on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

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


class Directory(Protocol):
    """A directory of checkpoints; paths are relative, with `/`."""

    def sizes_of_files(self) -> Mapping[str, int]:
        """Return the size in bytes of every file that belongs to a checkpoint."""

    def top_level_names(self) -> Sequence[str]:
        """Return the names directly in the directory that may belong to a checkpoint."""

    def sizes_below(self, name: str) -> Mapping[str, int]:
        """Return the size in bytes of every file below one of `top_level_names`, by its path from the directory."""

    def look_into_file(self, path: str) -> Look:
        """Look into a file."""

    def look_into_files(self, paths: Sequence[str]) -> Iterator[tuple[str, Look]]:
        """Look into many files, in their order; several are read at once. TimeoutError: it takes too long."""

    def text_of_file(self, path: str) -> str | None:
        """Return the content of a small text file; None: missing, or no text."""

    def content_of_file(self, path: str) -> bytes | None:
        """Return the content of a small file; None: missing."""


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
