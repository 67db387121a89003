"""Describe refused file access in one sentence: the containers of a pod seldom run as the same user."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def describe_refusal(path: Path | str, error: OSError) -> str:
    """Return which access was refused to which user, and the path's owner; `error` may name a path of its own."""
    named = Path(os.fsdecode(error.filename)) if error.filename is not None else Path(path)
    if named.parts[:3] == ("/", "proc", "self"):  # how long paths of sockets are named
        named = Path(path)
    who = f"user {os.geteuid()} (group {os.getegid()})"
    return f"{who} may not open {named}: {error.strerror or error}{_describe_owner(named)}"


def _describe_owner(path: Path) -> str:
    """Return the owner of the path, or of the nearest directory above it that can be inspected."""
    for place in (path, *path.parents):
        try:
            found = place.stat()
        except OSError:
            continue
        mode = stat.S_IMODE(found.st_mode)
        return f"; {place} belongs to user {found.st_uid}, group {found.st_gid}, mode {mode:04o}"
    return ""
