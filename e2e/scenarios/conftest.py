"""What all scenarios share: undisturbed trainings to compare with, one per shape, made once a session."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cluster.control_plane import ControlPlane

Baseline = Callable[[int, int, int, int], Path]


@pytest.fixture(scope="session")
def baseline(control_plane: ControlPlane) -> Baseline:
    """Log directory of an undisturbed training: `baseline(tensor, pipeline, data, iterations)`."""

    def undisturbed(tensor: int, pipeline: int, data: int, iterations: int) -> Path:
        directory = control_plane.run.directory / f"undisturbed-{tensor}-{pipeline}-{data}-{iterations}"
        directory.mkdir(exist_ok=True)
        done = directory / "done"
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shape = ["--tensor", tensor, "--pipeline", pipeline, "--data", data]
                command = [sys.executable, "-m", "e2e.trainer.local", *map(str, shape), "--log-dir", str(directory)]
                subprocess.run([*command, "--", "--train-iters", str(iterations)], check=True, timeout=120)
                done.touch()
        return directory

    return undisturbed
