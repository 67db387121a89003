"""Checkpoints in the directories Megatron uses.

`<save>/iter_0000005/mp_rank_00[_000]/` holds `model_optim_rng.pt` and `distrib_optim.pt`; the content is NumPy's
archive format, which like torch's own is a zip file. Everything is written into `iter_0000005_tmp` first; the commit
renames it and then writes `latest_checkpointed_iteration.txt`, so a directory without `_tmp` is complete.
"""

from __future__ import annotations

import os
import pickle
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from e2e.trainer.layout import Coordinate, Layout

from e2e.trainer.optimizer import KEYS, Shard

Array = NDArray[np.float32]
TRACKER = "latest_checkpointed_iteration.txt"
MODEL_FILE = "model_optim_rng.pt"
OPTIMIZER_FILE = "distrib_optim.pt"


class CheckpointError(RuntimeError):
    """A checkpoint is missing, incomplete or does not fit this training."""


@dataclass(frozen=True)
class Saved:
    """Content of one (tensor, pipeline) coordinate: step, flat parameters, and whole optimizer arrays by name."""

    step: int
    parameters: Array
    optimizer: dict[str, Array]


def directory_name(step: int) -> str:
    """Name of the directory of a step, `iter_0000005`."""
    return f"iter_{step:07d}"


def rank_directory(place: Coordinate, layout: Layout) -> str:
    """Name of the directory of a coordinate: `mp_rank_TT`, with `_PPP` when there is more than one stage."""
    suffix = f"_{place.pipeline:03d}" if layout.pipeline > 1 else ""
    return f"mp_rank_{place.tensor:02d}{suffix}"


def write(
    root: Path,
    step: int,
    place: Coordinate,
    layout: Layout,
    shards: Sequence[Shard],
    *,
    seed: int,
    first_byte: Callable[[], None] = lambda: None,
) -> None:
    """Write one coordinate's files into the step's `_tmp` directory.

    `shards` are all shards of the coordinate in order, each at `step`; `first_byte` is called as soon as the first file
    is open. Raises CheckpointError when a shard stands at another step, OSError when the disk says no.
    """
    if wrong := [shard.step for shard in shards if shard.step != step]:
        raise CheckpointError(f"a shard stands at step {wrong[0]}, not at {step}: nothing is saved")
    target = root / f"{directory_name(step)}_tmp" / rank_directory(place, layout)
    target.mkdir(parents=True, exist_ok=True)
    whole = {key: np.concatenate([shard.arrays()[key] for shard in shards]) for key in KEYS}
    header = {"iteration": np.int64(step), "rng_state": np.array([seed, step], dtype=np.int64)}
    with (target / MODEL_FILE).open("wb") as file:
        first_byte()
        np.savez(file, **header, model=whole["master"])  # type: ignore[arg-type]
    with zipfile.ZipFile(target / MODEL_FILE, "a") as archive:  # what torch.save writes beside the tensors
        archive.writestr("model_optim_rng/data.pkl", pickle.dumps({"iteration": step}, protocol=2))
    with (target / OPTIMIZER_FILE).open("wb") as file:
        np.savez(file, iteration=np.int64(step), **whole)  # type: ignore[arg-type]


def commit(root: Path, step: int) -> None:
    """Make a checkpoint the newest one, whatever is there. Raises CheckpointError where nothing was saved."""
    temporary, final = root / f"{directory_name(step)}_tmp", root / directory_name(step)
    if not temporary.is_dir():
        raise CheckpointError(f"{temporary} is not there: nothing was saved for step {step}")
    if final.exists():
        shutil.rmtree(final)
    temporary.rename(final)
    tracker = root / TRACKER
    fresh = tracker.with_suffix(f".{os.getpid()}")
    fresh.write_text(str(step))
    fresh.replace(tracker)


def newest(root: Path) -> int | None:
    """Step named by the tracker file, None when there is no tracker. Raises CheckpointError for a damaged one."""
    try:
        text = (root / TRACKER).read_text()
    except FileNotFoundError:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise CheckpointError(f"{root / TRACKER} holds {text!r}; it must hold the number of a step") from error


def load(root: Path, step: int, place: Coordinate, layout: Layout) -> Saved:
    """Read one coordinate's files; raises CheckpointError naming the file that is missing, damaged or does not fit."""
    target = root / directory_name(step) / rank_directory(place, layout)
    model = _read(target / MODEL_FILE, ("iteration", "model"))
    optimizer = _read(target / OPTIMIZER_FILE, ("iteration", *KEYS))
    for name, content in ((MODEL_FILE, model), (OPTIMIZER_FILE, optimizer)):
        if int(content["iteration"]) != step:
            raise CheckpointError(f"{target / name} was saved at step {int(content['iteration'])}, not at {step}")
    return Saved(step, model["model"], {key: optimizer[key] for key in KEYS})


def shard_of(saved: Saved, shard: int, shards: int) -> Shard:
    """One optimizer shard out of a saved coordinate."""
    length = len(saved.parameters) // shards
    cut = slice(shard * length, (shard + 1) * length)
    return Shard.from_arrays({key: saved.optimizer[key][cut] for key in KEYS}, saved.step)


def _read(path: Path, names: Sequence[str]) -> Mapping[str, Array]:
    try:
        with path.open("rb") as file, np.load(file) as archive:
            return {name: archive[name] for name in names}
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing: this checkpoint is not complete") from error
    except (ValueError, KeyError, OSError, EOFError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    except Exception as error:
        if type(error).__name__ == "BadZipFile":
            raise CheckpointError(f"{path} cannot be read, it is cut off or damaged: {error}") from error
        raise
