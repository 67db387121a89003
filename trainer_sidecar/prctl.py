"""Set parent-death signal and subreaper by prctl, and open a process: system calls for which Python has no function.

Part of every archive that `trainer_sidecar.install` packs: standard library, Python >= 3.7. The function is looked up
when this module is imported, so that a child between fork and exec only makes the call.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import cast

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PIDFD_OPEN = 434
"""The number of `pidfd_open` on every architecture, as of all calls since 424; Python has it from 3.9 on."""


def _find_prctl() -> Callable[..., int] | None:
    try:
        found = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):  # a Python without a usable C library: the container's end ends the processes
        return None
    found.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4  # whole registers, whatever the architecture
    return cast("Callable[..., int]", found)


PRCTL = _find_prctl()
"""The C library's function; None where there is no usable one."""


def become_subreaper() -> bool:
    """Make orphans below this process its children, so that it can reap and end them; False: not possible."""
    return PRCTL is not None and PRCTL(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def die_with_parent() -> bool:
    """Have the kernel kill this process when the thread that made it ends; False: not possible."""
    return PRCTL is not None and PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0


def open_process(pid: int) -> int:
    """Return a descriptor that is readable once the process has ended. OSError: it is gone, or cannot be opened so."""
    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError) as problem:
        raise OSError("this Python has no usable C library") from problem
    call.argtypes, call.restype = [ctypes.c_long] * 3, ctypes.c_long
    descriptor = int(call(PIDFD_OPEN, pid, 0))
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.set_inheritable(descriptor, False)
    return descriptor
