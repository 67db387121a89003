"""What a start finds to go on from, as Megatron does it: whatever is wrong with it ends the rank with code 0.

Only a tracker that is not there lets the training begin at step 0, silently but for two lines of rank 0, unless
`--exit-on-missing-checkpoint` is given. `--finetune` takes weights only and begins to count at 0, `--no-load-optim`
leaves the moments empty.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from e2e.trainer import checkpoint, printing
from e2e.trainer.container import leave
from e2e.trainer.optimizer import Shard

if TYPE_CHECKING:
    from e2e.trainer.settings import Loading
    from e2e.trainer.training import Training


def load_at_start(training: Training) -> None:
    """Load what --load names, or begin at random weights; ends the process where Megatron does."""
    root, loading, printer = training.settings.load, training.settings.loading, training.printer
    if root is None:
        return
    if training.settings.face == printing.MINDFORMERS:
        _load_own(training)
        return
    step = _tracked(root, printer)
    if step is None:
        printer.first(f"WARNING: could not find the metadata file {root / checkpoint.TRACKER}")
        printer.first("    will not load any checkpoints and will start from random")
        if loading.must_exist:
            printer.first(">> '--exit-on-missing-checkpoint' set ... exiting. <<")
            training.collectives.meet(b"no checkpoint", training.collectives.members())
            leave(0)
        return
    printer.first(f" loading checkpoint from {root} at iteration {step}")
    try:
        training.load(step)
    except checkpoint.CheckpointError as error:
        printing.say(f"could not load the checkpoint\n{error}")
        leave(0)
    training.shard = taken(training.shard, loading)
    shape = f"t 1/{training.layout.tensor}, p 1/{training.layout.pipeline}"
    printer.first(f"  successfully loaded checkpoint from {root} [ {shape} ] at iteration {step}")


def _load_own(training: Training) -> None:
    """MindFormers: each rank takes the newest file of its own, and does not ask what the others took."""
    training.printer.say("......Start load checkpoint from checkpoint......")
    step = training.load()
    if step is None:
        raise checkpoint.CheckpointError(f"no checkpoint of rank {training.rank} below {training.settings.load}")
    training.printer.say(f"load checkpoint of step {step} successfully")


def taken(shard: Shard, loading: Loading) -> Shard:
    """What a start with these flags takes of a loaded shard."""
    if loading.optimizer and not loading.finetune:
        return shard
    empty = np.zeros_like(shard.master)
    return Shard(shard.master, empty, empty.copy(), 0 if loading.finetune else shard.step)


def _tracked(root: Path, printer: printing.Printer) -> int | None:
    """The step that the tracker names, None without a tracker; one that holds anything else ends the process."""
    try:
        return checkpoint.newest(root)
    except checkpoint.CheckpointError:
        printer.first(f"ERROR: Invalid metadata file {root / checkpoint.TRACKER}. Exiting")
        leave(0)
