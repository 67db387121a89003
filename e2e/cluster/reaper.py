"""Ends what a run started once the run's owner is gone, however it went: finished, interrupted, killed.

A process of its own in a session of its own, so that neither Ctrl-C nor a closed terminal reaches it, and with the
standard library only, so that it is up before the first process of the run. It watches the owner by its pid; it is
told to finish early by SIGTERM. Last of all it lets go of the socket that claims the run's loopback addresses, which
it inherits: nobody gets them while a process of this run may still listen there.

    arguments: RUN-ID RUN-DIRECTORY LOGS-DIRECTORY OWNER-PID OWNER-START
"""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path
from types import FrameType

from e2e.cluster import cgroups
from e2e.cluster.processes import Process, end_marked, wait_end

KEEP = "keep-logs"
READY = "reaper-ready"
KEPT_RUNS = 10
CGROUP_SECONDS = 10.0


class _FinishNow(Exception):  # noqa: N818 - not an error
    """Somebody asked for the end of the run before its owner has ended."""


def finish(run: str, directory: Path, logs: Path) -> bool:
    """End all processes of `run`, remove its directory and its cgroups; whether nothing is left.

    Its logs move to `logs` if the file KEEP says that they are wanted.
    """
    left = end_marked(run)
    if (directory / KEEP).exists():
        keep_logs(directory / "logs", logs / run)
    for _ in range(50):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            break
        time.sleep(0.1)
    groups = cgroups.remove(cgroups.of_run(run), seconds=CGROUP_SECONDS)
    return left == 0 and not directory.exists() and not groups


def keep_logs(source: Path, target: Path) -> None:
    """Move the logs out of a run's directory; the oldest kept ones go, KEPT_RUNS stay."""
    if not source.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(source, target)
    kept = sorted(target.parent.iterdir(), key=lambda path: path.stat().st_mtime)
    for old in kept[:-KEPT_RUNS]:
        shutil.rmtree(old, ignore_errors=True)


def main(arguments: list[str]) -> None:
    """Wait for the owner's end, then finish the run."""
    run, directory, logs, pid, start = arguments

    def finish_now(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _FinishNow

    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, finish_now)
    try:
        Path(directory, READY).touch()
        wait_end(Process(int(pid), int(start)))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except _FinishNow:
        pass
    finish(run, Path(directory), Path(logs))
