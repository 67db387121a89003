"""The controller's process and all that it has started, ended together.

MindSpore's scheduler is a process of the controller's and has a port; the next controller wants the same one at once.
So what is left when the controller's process is gone becomes the host's, and the host waits for its end, too.
"""

from __future__ import annotations

import contextlib
import os
import signal


def lead(pid: int) -> None:
    """Have a child, or with 0 this process, lead a group; both sides call it, so that it is one whoever comes first."""
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)


def end(leader: int) -> int:
    """End a child and its group, return when all of it is gone; the child's wait status, its own if it had ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    _, status = os.waitpid(leader, 0)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-leader, 0)
    return status
