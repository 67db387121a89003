"""`make down`: end the runs of this checkout and clean up what dead runs left; other checkouts' runs are not touched.

    python3 -m e2e.cluster.down

Standard library only: it must work when nothing else does.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from e2e.bootstrap.paths import CHECKOUT, logs_directory, runs_directory
from e2e.cluster.processes import Process
from e2e.cluster.reaper import finish
from e2e.cluster.run import described_runs

OWNER_SECONDS = 10.0
REAPER_SECONDS = 30.0
HALF_MADE_SECONDS = 60.0


def end_run(directory: Path, description: Mapping[str, object]) -> bool:
    """End one run, its owner included; whether nothing of it is left.

    The owner goes first: it would only see its processes die under it. If the run's reaper is dead, too, this
    process does the reaper's work.
    """
    owner, cleaner = _process(description["owner"]), _process(description["reaper"])
    if owner.signal(signal.SIGTERM) and not owner.wait_gone(OWNER_SECONDS):
        owner.signal(signal.SIGKILL)
    if cleaner.signal(signal.SIGTERM) and cleaner.wait_gone(REAPER_SECONDS):
        return not directory.exists()
    return finish(str(description["run"]), directory, logs_directory())


def main() -> int:
    """End all runs of this checkout; 1 when something is left."""
    left = 0
    ended = 0
    for directory, description in described_runs():
        if not description:
            _remove_half_made(directory)
        elif description["checkout"] == str(CHECKOUT):
            done = end_run(directory, description)
            ended += done
            left += not done
            print(f"run {description['run']} ({description['purpose']}): {'ended' if done else 'NOT ended'}")
        elif not _process(description["owner"]).alive() and not _process(description["reaper"]).alive():
            finish(str(description["run"]), directory, logs_directory())
    for lock in runs_directory().glob("session-*.lock"):
        _, pid, start = lock.stem.split("-")
        if not Process(int(pid), int(start)).alive():
            lock.unlink(missing_ok=True)
    if not ended and not left:
        print("nothing runs")
    if left:
        print(f"{left} runs left something behind: see the processes above", file=sys.stderr)
    return 1 if left else 0


def _process(value: object) -> Process:
    if not isinstance(value, list):
        raise TypeError(f"not a process: {value!r}")
    return Process(*value)


def _remove_half_made(directory: Path) -> None:
    """Remove a directory whose run died before it could say what it is; a fresh one may still be in the making."""
    if time.time() - directory.stat().st_mtime > HALF_MADE_SECONDS:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
