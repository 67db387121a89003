"""End the controller's process together with all that it has started.

MindSpore's scheduler is a child of the controller's process and holds a port that the next controller needs at once. So
what outlives the controller's process becomes the host's child, and the host waits for its end, too.
"""

from __future__ import annotations

import contextlib
import os
import signal


def make_group_leader(pid: int) -> None:
    """Make a child, or with 0 this process, lead a group; both sides call it, so that the order does not matter."""
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)


def end_process_group(leader: int) -> int:
    """End a child and its group, return when all of it has ended; the child's wait status, its own if it had ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    _, status = os.waitpid(leader, 0)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-leader, 0)
    return status
