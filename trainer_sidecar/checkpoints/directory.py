"""The directory that the rules look at, read only: the launcher makes the changes (launcher/user_files.py).

Of a large checkpoint only those files are opened that the verdict depends on.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from hajob.domain.text import counted_noun
from trainer_sidecar.checkpoints import formats
from trainer_sidecar.checkpoints.verdict import Look
from trainer_sidecar.launcher.user_files import REFUSED, TEMPORARY

# Trackers and descriptions are a few kilobytes: of anything larger under their names the beginning tells enough.
SMALL: Final = 1 << 20
READERS: Final = 16
"""Number of files read at once: a share's latency takes the time, not this machine's work."""
LOOK_ALL_SECONDS: Final = 300.0
"""Time limit for the files of one checkpoint; beyond it the checkpoint is not verified, and the job starts anyway."""
DEPTH: Final = 4
_OF_INTEREST: Final = (
    *("iter_", "release", "latest_checkpointed"),
    *("iteration_", "rank_", "ckpt_dir", "checkpoint", "strategy", "ttp_saved_", "tft_saved_"),
)


class Directory:
    """A directory of checkpoints on a volume, listed once; paths are relative, with `/`."""

    def __init__(self, root: Path, look_all_seconds: float = LOOK_ALL_SECONDS) -> None:
        self._root = root
        self._look_all_seconds = look_all_seconds
        self._names: dict[str, os.DirEntry[str]] | None = None
        self._below: dict[str, dict[str, int]] = {}

    def top_level_names(self) -> Sequence[str]:
        """Return the names at the top that may belong to a checkpoint; empty while the directory does not exist.

        Raises:
            OSError: it cannot be read.
        """
        return tuple(self._top_entries())

    def sizes_of_files(self) -> Mapping[str, int]:
        """Return the size in bytes of every file that belongs to a checkpoint. OSError: it cannot be read."""
        found = {path: size for name in self._top_entries() for path, size in self.sizes_below(name).items()}
        if self._root.name == "checkpoint":  # MindFormers puts it beside the strategies
            for entry in _scan_entries(self._root.parent, ("strategy",)).values():
                found |= _sizes_below(entry, "", DEPTH)
        return found

    def sizes_below(self, name: str) -> Mapping[str, int]:
        """Return the size of every file below one of `top_level_names`; the name itself if it is a file."""
        if name not in self._below:
            entry = self._top_entries().get(name)
            self._below[name] = _sizes_below(entry, "", DEPTH) if entry is not None else {}
        return self._below[name]

    def _top_entries(self) -> Mapping[str, os.DirEntry[str]]:
        if self._names is None:
            self._names = _scan_entries(self._root, _OF_INTEREST)
        return self._names

    def look_into_file(self, path: str) -> Look:
        """Look into a file. OSError: it exists and cannot be read, which says nothing about it."""
        try:
            return formats.look_into_file(self._root / path)
        except FileNotFoundError:
            return formats.CUT_OFF

    def look_into_files(self, paths: Sequence[str]) -> Iterator[tuple[str, Look]]:
        """Look into many files, in their order; several are read at once.

        Raises:
            OSError: as `look_into_file`.
            TimeoutError: the share is too slow.
        """
        readers = concurrent.futures.ThreadPoolExecutor(READERS, thread_name_prefix="checkpoint")
        try:
            found = readers.map(self.look_into_file, paths, timeout=self._look_all_seconds)
            yield from zip(paths, found, strict=True)
        except TimeoutError:
            raise TimeoutError(
                f"reading {counted_noun(len(paths), 'file')} took more than {self._look_all_seconds:.0f} s"
            ) from None
        finally:
            # A read that hangs in the kernel cannot be ended: whoever waits for the verdict must not hang with it.
            readers.shutdown(wait=False, cancel_futures=True)

    def content_of_file(self, path: str) -> bytes | None:
        """Return the content of a small file; None: missing. OSError: it exists and cannot be read."""
        try:
            with (self._root / path).open("rb") as file:
                return file.read(SMALL)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    def text_of_file(self, path: str) -> str | None:
        """Return the content of a small text file; None: missing, or no text."""
        content = self.content_of_file(path)
        try:
            return content.decode() if content is not None else None
        except UnicodeDecodeError:
            return None


def _scan_entries(root: Path, wanted: tuple[str, ...]) -> dict[str, os.DirEntry[str]]:
    try:
        return {entry.name: entry for entry in os.scandir(root) if entry.name.startswith(wanted)}
    except FileNotFoundError:
        return {}


def _sizes_below(entry: os.DirEntry[str], above: str, depth: int) -> dict[str, int]:
    """Return the size of a file, or of every file below a directory, by path."""
    path = f"{above}{entry.name}"
    found: dict[str, int] = {}
    # Files come and go while a training saves: what is gone by now was not there.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if entry.is_dir():
            for inner in os.scandir(entry.path) if depth else ():
                found |= _sizes_below(inner, f"{path}/", depth - 1)
        elif TEMPORARY not in entry.name and not entry.name.endswith(REFUSED):
            found[path] = entry.stat().st_size
    return found
