"""Set parent-death signal and subreaper by prctl, the system call for which Python has no function.

Part of every archive that `trainer_sidecar.install` packs: standard library, Python >= 3.7. The function is looked up
when this module is imported, so that a child between fork and exec only makes the call.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable
from typing import cast

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


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
