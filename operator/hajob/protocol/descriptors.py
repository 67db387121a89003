"""Limit of file descriptors: every gRPC stream takes one, and the soft limit is for programs that use select()."""

from __future__ import annotations

import resource


def raise_limit() -> int:
    """Raise the limit to what the kernel allows this process and return it. Each entry calls it before it connects."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
