"""The files with the ranks' output: their names, and which of them to delete.

The launcher writes them, `trainer_sidecar.logs` reads them in another container and maybe another pod, so only this
module defines the meaning of a name. A process's name (rank, incarnation, start) is used once, and so is its file's:
kept output is never overwritten. docs/protocols/launcher.md#output
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import List, NamedTuple

from . import plogs

PROCESS_LIMIT = 20
"""Processes kept of one rank and attempt. A rank that is restarted in place for months must not fill the volume."""

TURNED_OVER = ".1"
"""Suffix of the rotated file, with the output before the current file."""

_NAME = re.compile(r"rank-(\d{1,9})\.(\d{1,18})(?:\.(\d{1,9}))?\.log")


class KeptProcess(NamedTuple):
    """The process whose output a file holds; those of one rank are ordered by age."""

    rank: int
    incarnation: int
    start: int


def file_name(process: KeptProcess) -> str:
    """Return `rank-R.I.log`, from the second start within an incarnation on `rank-R.I.S.log`."""
    start = ".{}".format(process.start) if process.start else ""
    return "rank-{}.{}{}.log".format(process.rank, process.incarnation, start)


def parse_file_name(name: str) -> KeptProcess | None:
    """Return the process whose newest output a file of this name holds, None for every other name."""
    found = _NAME.fullmatch(name)
    return KeptProcess(int(found.group(1)), int(found.group(2)), int(found.group(3) or 0)) if found else None


def kept_processes(directory: str, rank: int) -> List[KeptProcess]:
    """Return the processes of a rank with output in an attempt's directory, oldest first. OSError: it can't be read."""
    found = {
        parse_file_name(name[: -len(TURNED_OVER)] if name.endswith(TURNED_OVER) else name)
        for name in os.listdir(directory)
    }
    return sorted(process for process in found if process is not None and process.rank == rank)


def kept_attempts(directory: str) -> List[int]:
    """Return the attempts that have a directory, oldest first. OSError: it can't be read."""
    return sorted(int(name) for name in os.listdir(directory) if name.isdigit())


def link_to_file(path: str, target: str) -> None:
    """Make `path` a link to `target`, replacing an older link; leave anything else there alone."""
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.islink(path):
            os.unlink(path)
        os.symlink(os.path.abspath(target), path)


def delete_beyond_limits(directory: str, rank: int, attempt: int, attempt_limit: int, node: str) -> None:
    """Delete this rank's output and its node's plogs beyond the limits, before a process of `attempt` starts.

    Keep the newest `attempt_limit` attempts, this one included, and the first one that is there: restarts repeat what
    it began with. Of an attempt keep 20 processes, the starting one included. Other ranks' files are left alone:
    every rank deletes its own, so that none waits for another.
    """
    with contextlib.suppress(OSError):
        there = kept_attempts(directory)
        # The first attempt is kept however old it is: restarts repeat what it began with.
        for number in there:
            inside = os.path.join(directory, str(number))
            if there[0] < number <= attempt - attempt_limit:
                _delete_output(inside, rank, 0)
                plogs.delete_attempt(directory, number, node)
                with contextlib.suppress(OSError):  # another rank's files are still in it
                    os.rmdir(inside)
            elif number == attempt:
                _delete_output(inside, rank, PROCESS_LIMIT - 1)
                plogs.delete_beyond_limit(directory, number, node)


def _delete_output(directory: str, rank: int, left: int) -> None:
    """Delete the output of a rank's processes except for the newest `left`."""
    with contextlib.suppress(OSError):
        found = kept_processes(directory, rank)
        for process in found[: len(found) - left] if left else found:
            path = os.path.join(directory, file_name(process))
            for each in (path, path + TURNED_OVER):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(each)
