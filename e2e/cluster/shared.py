"""One control plane for a whole test session, also when the session runs in several processes.

The first worker that asks starts it, the others join it. Its owner is the session's main process, which outlives
the workers and ends it at the end; if that process is killed, the reaper does it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from e2e.bootstrap.paths import runs_directory
from e2e.cluster.control_plane import LAYOUT_FILE, ControlPlane
from e2e.cluster.processes import Process
from e2e.cluster.run import Run, described_runs


def session_owner() -> Process:
    """The main process of this test session: the parent in a worker of pytest-xdist, else this process."""
    return Process.of(os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid())


def shared_control_plane(owner: Process) -> ControlPlane:
    """The control plane of the session that `owner` leads; started if it is not there yet."""
    runs_directory().mkdir(parents=True, exist_ok=True)
    with _lock_file(owner).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if directory := _find(owner):
            return ControlPlane.join(Run.join(directory))
        return ControlPlane.start(Run.start("test", owner))


def end_shared_control_plane(owner: Process) -> None:
    """End the control plane of the session that `owner` leads, if there is one, and wait until it has gone."""
    if directory := _find(owner):
        Run.join(directory).close()
    _lock_file(owner).unlink(missing_ok=True)


def _find(owner: Process) -> Path | None:
    for directory, description in described_runs():
        if description.get("owner") == [owner.pid, owner.start] and (directory / LAYOUT_FILE).exists():
            return directory
    return None


def _lock_file(owner: Process) -> Path:
    return runs_directory() / f"session-{owner.pid}-{owner.start}.lock"
