"""MindFormers' checkpoints with `use_legacy_format: False`: a directory for each step, which all ranks write together.

`<output>/checkpoint/iteration_NNNNNNNN/` holds `model-IIIIIII-TTTTTTT.safetensors` and `opt-…` of each rank,
`common.json` and `metadata.json`; the tracker beside the directories is written last (MindFormers
`checkpoint/checkpoint.py`, `checkpoint/utils.py`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from e2e.trainer.checkpoint import CheckpointError
from e2e.trainer.mindformers_files import MOST_FILES, STEP, Array, load, packed

TRACKER: Final = "latest_checkpointed_iteration.txt"
MODEL: Final = ("parameters", "master")
"""What stands in the model's file; everything else is the optimizer's."""


@dataclass(frozen=True)
class Iterations:
    """The directories of a training, as one of its ranks sees them."""

    root: Path
    rank: int
    world: int

    def directory(self, step: int) -> Path:
        """Of one step."""
        return self.root / f"iteration_{step:08d}"

    def _name(self, kind: str, rank: int) -> str:
        return f"{kind}-{rank:07d}-{self.world:07d}.safetensors"

    def make_room(self, step: int) -> None:
        """Rank 0, before the others write: a directory of this step is deleted first, and the oldest ones go."""
        shutil.rmtree(self.directory(step), ignore_errors=True)
        for old in sorted(self.root.glob("iteration_*"))[: -MOST_FILES + 1]:
            shutil.rmtree(old)
        self.directory(step).mkdir(parents=True)

    def write(self, step: int, arrays: Mapping[str, Array]) -> None:
        """The two files of this rank."""
        for kind, is_models in (("model", True), ("opt", False)):
            part = {name: array for name, array in arrays.items() if (name in MODEL) == is_models}
            (self.directory(step) / self._name(kind, self.rank)).write_bytes(
                packed({**part, STEP: np.array(step, dtype="<i8")})
            )

    def describe(self, step: int, batch: int) -> None:
        """Rank 0: the step, and which file holds what."""
        common = {"epoch_num": step, "step_num": step, "global_step": step, "loss_scale": None}
        common |= {"global_batch_size": batch, "consumed_samples": None, "ckpt_status": None}
        (self.directory(step) / "common.json").write_text(json.dumps(common, indent=4))
        stored = {
            f"('{kind}.{rank}', (0,))": [
                {"file_name": self._name(kind, rank), "storage_rank": rank, "rank_group": [rank]}
            ]
            for rank in range(self.world)
            for kind in ("model", "opt")
        }
        described = {"state_dict_metadata": {}, "storage_data": stored}
        (self.directory(step) / "metadata.json").write_text(json.dumps(described, indent=4))

    def commit(self, step: int) -> None:
        """Rank 0, when all have written."""
        (self.root / TRACKER).write_text(str(step))

    def load(self) -> tuple[int, dict[str, Array]]:
        """Of the step that the tracker names. Raises CheckpointError without a tracker, or without a file of it."""
        try:
            step = int((self.root / TRACKER).read_text())
            names = [self._name(kind, self.rank) for kind in ("model", "opt")]
            found = [load(self.directory(step) / name) for name in names]
        except (OSError, ValueError) as error:
            raise CheckpointError(f"no checkpoint to load below {self.root}: {error}") from error
        return step, {name: array for _, arrays in found for name, array in arrays.items()}
