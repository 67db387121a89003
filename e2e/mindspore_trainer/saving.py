"""Checkpoints of real MindSpore: written and read by its own `ModelCheckpoint`, `save_checkpoint`, `load_checkpoint`.

What lies where and what a start takes is MindFormers' in its two forms, and MindSpore's own where `TrainFaultTolerance`
saves by itself (docs/user/checkpoints.md, "MindSpore").
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import mindspore
from mindspore import nn
from mindspore.train import Callback, CheckpointConfig, ModelCheckpoint

from e2e.trainer.events import EventLog

RANKS, ITERATIONS, OWN = "Ranks", "Iterations", "Own"
FORMS: Final = (RANKS, ITERATIONS, OWN)
"""MindFormers' with `use_legacy_format` True and False, and MindSpore's own."""
FORMAT: Final = "safetensors"
MOST_FILES: Final = 5
POLL_SECONDS: Final = 0.02


class Begin(NamedTuple):
    """Where a start goes on: the last epoch that is done, and the steps until then; with a sink of one step equal."""

    epoch: int
    step: int


class RankFiles(ModelCheckpoint):  # type: ignore[misc]
    """A file for each rank, as MindFormers' CheckpointMonitor writes it; `meta.json` names the newest periodic one."""

    def __init__(self, directory: Path, rank: int, interval: int, begin: Begin) -> None:
        append = [{"epoch_num": begin.epoch, "step_num": begin.step}]
        config = CheckpointConfig(
            save_checkpoint_steps=interval,
            keep_checkpoint_max=MOST_FILES,
            integrated_save=False,
            format=FORMAT,
            append_info=append,
        )
        super().__init__(f"toy_rank_{rank}", str(directory), config)
        self._graph_saved = True
        self._named = ""

    def save_for_mindio(self, parameters: Any, append: dict[str, object]) -> None:  # noqa: ANN401 - MindSpore's
        """Save at MindIO's order: whatever the interval says, and `meta.json` stays."""
        self._append_dict.update(append)
        self._save_ckpt(parameters, force_to_save=True)
        self._named = self.latest_ckpt_file_name

    def _append_dict_content(self, epoch_num: int, step_num: int) -> None:
        self._append_dict |= {"epoch_num": epoch_num, "step_num": self._append_step_num + step_num}

    def step_end(self, run_context: Any) -> None:  # noqa: ANN401 - MindSpore's
        """Save where it is time, and name the file."""
        super().step_end(run_context)
        self._name_newest(run_context)

    def end(self, run_context: Any) -> None:  # noqa: ANN401 - MindSpore's
        """Save the last step."""
        super().end(run_context)
        self._name_newest(run_context)

    def _name_newest(self, run_context: Any) -> None:  # noqa: ANN401 - MindSpore's
        if self.latest_ckpt_file_name == self._named:
            return
        self._named = self.latest_ckpt_file_name
        written = Path(self._named)
        meta = {
            "last_epoch": run_context.original_args().cur_epoch_num,
            "last_step": 1,
            "last_ckpt_file": written.name,
        }
        fresh = written.with_name(f"meta.json.{os.getpid()}")
        fresh.write_text(json.dumps(meta))
        fresh.replace(fresh.with_name("meta.json"))


class Iterations(Callback):  # type: ignore[misc]
    """A directory for each step, which all ranks write; the first one begins it, and ends it with the tracker."""

    def __init__(self, place: Place, interval: int, wait: Callable[[Callable[[], bool]], None]) -> None:
        super().__init__()
        self._root, self._rank, self._world = place.inner, place.rank, place.world
        self._interval, self._wait = interval, wait

    def on_train_step_end(self, run_context: Any) -> None:  # noqa: ANN401 - MindSpore's
        """Save, every so many steps."""
        told = run_context.original_args()
        step = told.cur_epoch_num
        if step % self._interval:
            return
        directory, trained = self._root / f"iteration_{step:08d}", told.train_network
        if self._rank == 0:
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
        self._wait(directory.is_dir)
        weights = {one.name for one in told.network.trainable_params()}
        for kind, is_models in (("model", True), ("opt", False)):
            part = [
                {"name": one.name, "data": one}
                for one in trained.get_parameters()
                if (one.name in weights) == is_models
            ]
            mindspore.save_checkpoint(
                part, str(directory / iteration_file(kind, self._rank, self._world)), format=FORMAT
            )
        if self._rank == 0:
            self._commit(directory, step)
        self._wait(lambda: tracked(self._root) == step)

    def _commit(self, directory: Path, step: int) -> None:
        """Wait for all files, each of which gets its name when it is whole, then describe them and name the step."""
        names = [iteration_file(kind, rank, self._world) for rank in range(self._world) for kind in ("model", "opt")]
        self._wait(lambda: all((directory / name).exists() for name in names))
        common = {"epoch_num": step, "step_num": step, "global_step": step, "loss_scale": None}
        (directory / "common.json").write_text(json.dumps(common))
        stored = {f"('{name}', (0,))": [{"file_name": name}] for name in names}
        (directory / "metadata.json").write_text(json.dumps({"state_dict_metadata": {}, "storage_data": stored}))
        (self._root / "latest_checkpointed_iteration.txt").write_text(str(step))


def iteration_file(kind: str, rank: int, world: int) -> str:
    """Return the name of a rank's file in the form with a directory for each step."""
    return f"{kind}-{rank:07d}-{world:07d}.{FORMAT}"


def tracked(root: Path) -> int | None:
    """Return the step that the tracker names; None without one."""
    try:
        return int((root / "latest_checkpointed_iteration.txt").read_text())
    except (FileNotFoundError, ValueError):  # being written, to whoever waits
        return None


@dataclass(frozen=True)
class Place:
    """Where a rank saves and loads.

    Attributes:
        form: One of FORMS.
        directory: MindFormers' `output_dir`; of MindSpore's own form the `ckpt_save_path`.
        rank: Of the job.
        world: Ranks of the job.
    """

    form: str
    directory: Path
    rank: int
    world: int

    @property
    def inner(self) -> Path:
        """Where MindFormers saves."""
        return self.directory / "checkpoint"

    def load(self, network: nn.Cell, events: EventLog) -> Begin:
        """Load what this form's start takes, weights and optimizer alike; returns where it goes on.

        Raises:
            RuntimeError: The files lack a parameter.
        """
        files = self._files_to_load()
        if not files:
            return Begin(0, 0)
        values = dict[str, Any]()
        for path in files:
            values |= mindspore.load_checkpoint(str(path), format=path.suffix.removeprefix("."))
        missing, _ = mindspore.load_param_into_net(network, values)
        if missing:
            raise RuntimeError(f"load_param_into_net: {missing} is in none of {files}")
        if self.form == ITERATIONS:
            common = json.loads((files[0].parent / "common.json").read_text())
            begin = Begin(common["epoch_num"], common["step_num"])
        else:
            begin = Begin(*(int(values[name].asnumpy()) for name in ("epoch_num", "step_num")))
        events.add("load_checkpoint", step=begin.epoch, path=str(files[0]))
        return begin

    def _files_to_load(self) -> list[Path]:
        if self.form == ITERATIONS:
            step = tracked(self.inner)
            own = [iteration_file(kind, self.rank, self.world) for kind in ("model", "opt")]
            return [] if step is None else [self.inner / f"iteration_{step:08d}" / name for name in own]
        if self.form == OWN:
            saved = self.directory / f"ttp_saved_checkpoints-step_{os.environ.get('HAJOB_LOAD_STEP')}"
            return sorted((saved / f"rank_{self.rank}").glob("*.ckpt"))
        # With MindIO switched on MindFormers takes what was written last, and does not ask `meta.json`.
        found = (self.inner / f"rank_{self.rank}").glob(f"*.{FORMAT}")
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)[-1:]


def waiter(raise_if_stopped: Callable[[], None]) -> Callable[[Callable[[], bool]], None]:
    """Return a wait for something on the volume, as a collective waits: the stop of the device ends it."""

    def wait(is_there: Callable[[], bool]) -> None:
        while not is_there():
            raise_if_stopped()
            time.sleep(POLL_SECONDS)

    return wait
