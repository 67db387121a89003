"""Processes that a rank leaves behind in sessions of its own: data loaders, compilers, profilers, uploaders.

The kernel kills a process group with its leader, but a helper in a session of its own is in another group, and one that
holds a chip keeps the next process of the rank from it. They are known by a variable that they have inherited; once the
rank has ended they are the launcher's children. docs/protocols/launcher.md#processes
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Iterable, List, Tuple

from .foreign_launchers import environment_of_process, process_family
from .variables import TOKEN

CHIPS = ("/dev/davinci", "/dev/devmm_svm", "/dev/hisi_hdc")


def processes_left_by(token: str, roots: Iterable[int]) -> List[int]:
    """Return the processes below `roots` that have inherited this token."""
    mark = "{}={}".format(TOKEN, token).encode()
    return [each.pid for root in roots for each in process_family(root) if mark in environment_of_process(each.pid)]


def holds_chip(pid: int, chips: Tuple[str, ...] = CHIPS) -> bool:
    """Return whether a process has the device of a chip open."""
    directory = "/proc/{}/fd".format(pid)
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(directory):
            with contextlib.suppress(OSError):
                if os.readlink(os.path.join(directory, descriptor)).startswith(chips):
                    return True
    return False


def end_helpers(token: str, roots: Iterable[int], *, only_with_chip: bool, chips: Tuple[str, ...] = CHIPS) -> List[int]:
    """End what a rank has left; after a finish only processes that hold a chip, since an upload may go on."""
    ended = [pid for pid in processes_left_by(token, roots) if not only_with_chip or holds_chip(pid, chips)]
    for pid in ended:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return ended
