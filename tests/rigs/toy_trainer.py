"""The toy trainer as a process on this machine, its place in a job of MindSpore's, and its checkpoints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from e2e.trainer import checkpoint as toy
from e2e.trainer.layout import Layout as ToyLayout
from e2e.trainer.optimizer import KEYS, Shard

MINDSPORE_PLACE = {
    "RANK_ID": "1",
    "RANK_SIZE": "8",
    "MS_NODE_ID": "1",
    "MS_SCHED_HOST": "127.0.0.1",
    "MS_SCHED_PORT": "8118",
    "MS_TFT_IP": "127.0.0.1",
    "MS_TFT_PORT": "8000",
    "MINDIO_FOR_MINDSPORE": "1",
}


def run_toy_trainer(log_dir: Path, *arguments: str) -> None:
    """Run the toy trainer to its end; fails with what it printed where it fails."""
    command = [sys.executable, "-m", "e2e.trainer.local", "--log-dir", str(log_dir), "--timeout", "200", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def save_toy_checkpoint(root: Path, step: int) -> None:
    """Save a checkpoint of this step, as a toy trainer of four ranks does."""
    layout = ToyLayout(tensor=2, data=2, pipeline=1)
    for tensor in range(2):
        arrays = {key: np.zeros(8, dtype=np.float32) for key in KEYS}
        place = layout.coordinate(tensor)
        toy.write(root, step, place, layout, [Shard.from_arrays(arrays, step)], seed=1)
    toy.commit(root, step)
