"""Cgroups of version 1 that a run made for its nodes: the one thing of a run that does not go with its processes.

Standard library only, for the reaper and for `make down`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
_POLL_SECONDS: Final = 0.2


def of_run(run: str) -> str:
    """The name of a run's group in every hierarchy."""
    return f"hajob-{run}"


def make(name: str, root: Path = CGROUPS) -> None:
    """Make a group in every hierarchy, in which something may run. OSError: it cannot be made."""
    for hierarchy in _hierarchies(root):
        made = hierarchy / name
        made.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group, and then nothing may run there
            if (made / file).exists():
                (made / file).write_text((hierarchy / file).read_text())


def remove(name: str, root: Path = CGROUPS, seconds: float = 0.0) -> str:
    """Remove a group with all below it, innermost first; why that is not possible, or nothing.

    Its last processes may still be going: it is tried for some seconds.
    """
    deadline = time.monotonic() + seconds
    while (problem := _remove(name, root)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return problem


def _remove(name: str, root: Path) -> str:
    try:
        for group in (hierarchy / name for hierarchy in _hierarchies(root)):
            if group.is_dir():
                below = [path for path in group.rglob("*") if path.is_dir()]
                for path in (*sorted(below, reverse=True), group):
                    path.rmdir()
    except OSError as error:
        return str(error)
    return ""


def _hierarchies(root: Path) -> list[Path]:
    """All of them, the unified one beside them, too; none where there are no cgroups."""
    if not root.is_dir():
        return []
    return [path for path in sorted(root.iterdir()) if path.is_dir() and not path.is_symlink()]
