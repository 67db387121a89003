"""Every stream of the wire is a descriptor of the process, and the soft limit is for programs that use select()."""

from __future__ import annotations

import resource


def raise_limit() -> int:
    """Use as many descriptors as the kernel allows this process; how many. Each entry calls it before it connects."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
