"""Checkpoints as Megatron's torch format has them: real `torch.save`, its directories, its tracker.

A periodic save is written by the first half of each data-parallel group, gathered on its first rank; rank 0 writes the
tracker after a barrier of all, by truncating it. A dump goes through `iter_…_tmp`, is renamed by another rank than 0,
and that one writes the tracker.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from e2e.torch_trainer.optimizer import KEYS
from e2e.trainer import checkpoint
from e2e.trainer.container import leave

if TYPE_CHECKING:
    from e2e.torch_trainer.training import Training

Tensor = Any


def save_periodic(training: Training, step: int) -> None:
    """Every rank takes part; returns when the tracker names the step."""
    root = training.settings.save
    assert root is not None, "only called where --save is given"
    training.printer.saving(step, root)
    training.faults.at("save", step)
    whole = {key: training.whole(key) for key in KEYS}
    if training.place.data == 0:
        training.events.add("save", phase="begin", kind="periodic", step=step)
        write(training, root / checkpoint.directory_name(step), step, whole, "periodic")
    training.default.barrier()
    if training.rank == 0:
        (root / checkpoint.TRACKER).write_text(str(step))
        training.events.add("save", phase="commit", kind="periodic", step=step)
    training.printer.saved(step, root, 0.0)


def write(training: Training, directory: Path, step: int, whole: dict[str, Tensor], kind: str) -> None:
    """Both files of this rank's coordinate; `whole` are the optimizer's vectors of all shards."""
    target = directory / checkpoint.rank_directory(training.place, training.layout)
    target.mkdir(parents=True, exist_ok=True)
    training.events.add("save", phase="first_byte", kind=kind, step=step)
    model = {"iteration": step, "checkpoint_version": 3.0, "model": training.model.state_dict()}
    torch.save(model | {"rng_state": torch.get_rng_state()}, target / checkpoint.MODEL_FILE)
    torch.save({"iteration": step, **whole}, target / checkpoint.OPTIMIZER_FILE)


def rename(training: Training, step: int) -> None:
    """Make a dump the newest checkpoint."""
    root = training.settings.save
    assert root is not None, "a dump needs --save"
    temporary, final = root / f"{checkpoint.directory_name(step)}_tmp", root / checkpoint.directory_name(step)
    if final.exists():
        shutil.rmtree(final)
    temporary.rename(final)
    (root / checkpoint.TRACKER).write_text(str(step))
    training.events.add("save", phase="commit", kind="dump", step=step)


def load_newest(training: Training) -> int | None:
    """Load what the tracker names; None without one. What cannot be read ends the process with 0, as in Megatron."""
    root = training.settings.load
    if root is None:
        return None
    try:
        step = checkpoint.newest(root)
    except checkpoint.CheckpointError:
        training.printer.first(f"ERROR: Invalid metadata file {root / checkpoint.TRACKER}. Exiting")
        leave(0)
    if step is None:
        training.printer.first(f"WARNING: could not find the metadata file {root / checkpoint.TRACKER}")
        training.printer.first("    will not load any checkpoints and will start from random")
        return None
    directory = root / checkpoint.directory_name(step) / checkpoint.rank_directory(training.place, training.layout)
    training.printer.first(f" loading checkpoint from {root} at iteration {step}")
    training.events.add("load_checkpoint", step=step, path=str(root / checkpoint.directory_name(step)))
    try:
        model = torch.load(directory / checkpoint.MODEL_FILE)
        shards = torch.load(directory / checkpoint.OPTIMIZER_FILE)
    except (OSError, RuntimeError) as error:
        print(f"could not load the checkpoint\n{error}", flush=True)
        leave(0)
    training.model.load_state_dict(model["model"])
    torch.set_rng_state(model["rng_state"])
    cut = slice(training.shard * training.optimizer.length, (training.shard + 1) * training.optimizer.length)
    training.optimizer.restore({key: shards[key][cut] for key in KEYS}, int(shards["iteration"]))
    return step
