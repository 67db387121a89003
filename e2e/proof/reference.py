"""The undisturbed training whose every step the cells are compared with; kept in the cache, it takes a minute.

It is made by the trainer and NumPy alone, so it is good as long as these are the same; the MindIO package does not
enter into it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import numpy as np

from e2e.bootstrap.paths import CHECKOUT, cache_directory
from e2e.cluster.run import Run
from e2e.harness.images import mindio_directory

KEPT = "reference"
TRAINER = CHECKOUT / "e2e/trainer"
NUMERIC = ("collectives", "corpus", "layout", "model", "noise", "optimizer", "settings", "summation", "training")
"""Modules of the trainer that the numbers depend on."""


def reference(run: Run, steps: int) -> Path:
    """Log directory of an undisturbed training of so many steps, tensor 2 and data 4, with digests.

    Raises:
        RuntimeError: The training did not end well; the message ends with its last words.
    """
    directory = cache_directory() / "tmp" / KEPT / f"{_fingerprint()}-{steps}"
    if not directory.is_dir():
        made = run.directory / KEPT
        command = [sys.executable, "-m", "e2e.trainer.local", "--tensor", "2", "--data", "4", "--timeout", "1200"]
        process = run.spawn(
            KEPT,
            [*command, "--log-dir", str(made), "--", "--train-iters", str(steps), "--log-digests"],
            {"HAJOB_MINDIO": str(mindio_directory()), "PYTHONPATH": str(CHECKOUT)},
        )
        if process.wait() != 0:
            words = (run.logs / f"{KEPT}.log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"the undisturbed training failed: {words}")
        fresh = directory.parent / f"{directory.name}.{os.getpid()}"
        shutil.copytree(made, fresh)
        try:
            fresh.rename(directory)
        except OSError:  # somebody else has just made the same
            shutil.rmtree(fresh)
    return directory


def _fingerprint() -> str:
    """Of everything that enters into the numbers."""
    found = hashlib.sha256(f"{sys.version} {np.__version__}".encode())
    for name in NUMERIC:
        found.update((TRAINER / f"{name}.py").read_bytes())
    return found.hexdigest()[:16]
