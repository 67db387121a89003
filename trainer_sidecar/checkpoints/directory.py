"""The thin side: a real directory for the rules, and what they ask to be done, done atomically.

Everything is made under another name and renamed, and what has been renamed is synced with its directory, so that a
node that dies in the middle leaves what was there before or what was wanted, never half of it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trainer_sidecar.checkpoints import formats
from trainer_sidecar.checkpoints.verdict import Look, Verdict

SMALL: Final = 1 << 20
DEPTH: Final = 4
TEMPORARY: Final = ".hajob-tmp"
REFUSED: Final = ".refused"
_OF_INTEREST: Final = ("iter_", "release", "latest_checkpointed", "rank_", "ckpt_dir", "checkpoint", "strategy")


class RealDirectory:
    """A directory on a volume, listed once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[str, int] | None = None

    def files(self) -> Mapping[str, int]:
        """Sizes by path; empty while the directory is not there. OSError: it cannot be read."""
        if self._files is None:
            self._files = {}
            self._list(self._root, _OF_INTEREST)
            if self._root.name == "checkpoint":  # MindFormers puts it beside the strategies
                self._list(self._root.parent, ("strategy",))
        return self._files

    def _list(self, root: Path, wanted: tuple[str, ...]) -> None:
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(root):
                if entry.name.startswith(wanted):
                    self._add(entry, "", DEPTH)

    def _add(self, entry: os.DirEntry[str], above: str, depth: int) -> None:
        assert self._files is not None
        path = f"{above}{entry.name}"
        # Files come and go while a training saves: what is gone by now was not there.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if entry.is_dir():
                for inner in os.scandir(entry.path) if depth else ():
                    self._add(inner, f"{path}/", depth - 1)
            elif TEMPORARY not in entry.name and not entry.name.endswith(REFUSED):
                self._files[path] = entry.stat().st_size

    def look(self, path: str) -> Look:
        """What is inside. OSError: it is there and cannot be read, which says nothing about it."""
        try:
            return formats.look(self._root / path)
        except FileNotFoundError:
            return formats.CUT_OFF

    def content(self, path: str) -> bytes | None:
        """Content of a small file. OSError: it is there and cannot be read."""
        try:
            with (self._root / path).open("rb") as file:
                return file.read(SMALL)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def text(self, path: str) -> str | None:
        """Content of a small text file."""
        content = self.content(path)
        try:
            return content.decode() if content is not None else None
        except UnicodeDecodeError:
            return None


def carry_out(root: Path, verdict: Verdict) -> None:
    """Do what a verdict asks for: copies, then trackers, then what is put aside. OSError names the file.

    The tracker is last but one: a crash before it leaves the job as it was, to be looked at again.
    """
    for copy in verdict.copies:
        target = root / copy.target
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = _fresh(target)
        shutil.copyfile(root / copy.source, fresh)
        _put(fresh, target)
    for path, text in (verdict.writes or {}).items():
        target = root / path
        fresh = _fresh(target)
        fresh.write_text(text)
        _put(fresh, target)
    for path in verdict.aside:
        target = root / path
        target.replace(target.with_name(target.name + REFUSED))


def _fresh(target: Path) -> Path:
    """A name of its own: an agent that fell silent may still be at the same work."""
    return target.with_name(f"{target.name}{TEMPORARY}-{secrets.token_hex(4)}")


def _put(fresh: Path, target: Path) -> None:
    """Give a finished file its name, on the disk."""
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    fresh.replace(target)
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
