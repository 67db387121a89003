"""Where a training saves and loads, in the form of its framework: Megatron's directories, MindFormers' rank files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from e2e.trainer import checkpoint, mindformers_files
from e2e.trainer.mindformers_iterations import Iterations
from e2e.trainer.optimizer import KEYS, Shard
from e2e.trainer.printing import MINDFORMERS

if TYPE_CHECKING:
    from e2e.trainer.training import Saver, Training


def saver_for(training: Training) -> Saver:
    """The form that the training's face has."""
    if training.settings.face != MINDFORMERS:
        return Megatron(training)
    return MindFormersTogether(training) if training.settings.shared_format else MindFormers(training)


class Megatron:
    """One directory for each step, written by one rank for each (tensor, pipeline) coordinate."""

    def __init__(self, training: Training) -> None:
        self._training = training

    def load(self, step: int | None) -> int | None:
        """Of the step that the tracker names."""
        training = self._training
        root = training.settings.load
        step = checkpoint.newest(root) if root and step is None else step
        if root is None or step is None:
            return None
        training.events.add("load_checkpoint", step=step, path=str(root / checkpoint.directory_name(step)))
        saved = checkpoint.load(root, step, training.place, training.layout)
        training.parameters = saved.parameters.copy()
        layout = training.layout
        training.shard = checkpoint.shard_of(saved, layout.shard_of(training.place.data), layout.shards)
        return step

    def write(self, step: int, shards: list[Shard], kind: str) -> None:
        """This coordinate's files, into the step's temporary directory."""
        training = self._training
        if training.settings.save is None:
            raise checkpoint.CheckpointError("--save is not given: there is nowhere to save to")

        def first_byte() -> None:
            training.events.add("save", phase="first_byte", kind=kind, step=step)

        root, seed = training.settings.save, training.settings.seed
        checkpoint.write(root, step, training.place, training.layout, shards, seed=seed, first_byte=first_byte)

    def commit(self, step: int, kind: str) -> None:
        """Rename, then the tracker."""
        root = self._training.settings.save
        assert root is not None, "only called where --save is given"
        checkpoint.commit(root, step)
        self._training.events.add("save", phase="commit", kind=kind, step=step)

    def periodic(self, step: int) -> None:
        """One writer per (tensor, pipeline) coordinate; the first writer commits."""
        training = self._training
        layout, active, group = training.layout, training.collectives.active, training.layout.data_group(training.rank)
        writer, began = active[0], time.monotonic()
        training.printer.saving(step, training.settings.save)
        sources = layout.sources(writer, active)
        training.faults.at("save", step)
        tag = b"save.%d.%%d" % step
        if training.place.data == writer:
            training.events.add("save", phase="begin", kind="periodic", step=step)
            data = [None if source == writer else training.transport.receive(tag % source) for source in sources]
            shards = [training.shard_from(one) if one else training.shard for one in data]
            self.write(step, shards, "periodic")
            training.take_time(training.pace.save())
            writers = [rank for rank in training.collectives.members() if layout.coordinate(rank).data == writer]
            training.collectives.meet(b"saved.%d" % step, writers)
            if training.rank == writers[0]:
                self.commit(step, "periodic")
        elif training.place.data in sources:
            training.transport.send(group[writer], tag % training.place.data, training.snapshot(with_parameters=False))
        training.collectives.meet(b"save ends.%d" % step, training.collectives.members())
        training.printer.saved(step, training.settings.save, time.monotonic() - began)


class MindFormers:
    """One file for each rank, and nobody who waits for the others: a job that ends meanwhile leaves some without."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._files: mindformers_files.RankFiles | None = None
        if training.settings.save is not None:
            mindformers_files.write_strategy(training.settings.save, training.rank)

    def _own(self) -> mindformers_files.RankFiles:
        """Opened when it is first needed: a process that finds files of its name gives its own another one."""
        if self._files is None:
            self._files = mindformers_files.RankFiles.begin(self._root(), self._training.rank)
        return self._files

    def _root(self) -> Path:
        root = self._training.settings.save or self._training.settings.load
        if root is None:
            raise checkpoint.CheckpointError("no output directory is given: there is nowhere to save to")
        return root

    def load(self, step: int | None) -> int | None:
        """The file of this rank that was written last: with MindIO switched on nobody asks `meta.json`."""
        training = self._training
        if training.settings.load is None or step is not None:
            return None
        path = self._own().newest()
        return None if path is None else self._take(path, *mindformers_files.load(path))

    def _take(self, path: Path, step: int, arrays: dict[str, mindformers_files.Array]) -> int:
        training = self._training
        training.events.add("load_checkpoint", step=step, path=str(path))
        training.parameters = arrays["parameters"]
        training.shard = Shard.from_arrays({key: arrays[key] for key in KEYS}, step)
        return step

    def write(self, step: int, shards: list[Shard], kind: str) -> None:
        """Everything this rank has; a rank that MindIO has chosen leaves `meta.json` alone."""
        training = self._training
        (shard,) = shards
        if shard.step != step:
            raise checkpoint.CheckpointError(f"the state stands at step {shard.step}, not at {step}: nothing is saved")
        training.printer.say("......Saving ckpt......")
        began = time.monotonic()
        training.events.add("save", phase="first_byte", kind=kind, step=step)
        path = self._own().write(step, {"parameters": training.parameters, **shard.arrays()})
        if kind != "dump":
            self._own().record(step, path.name)
        seconds = time.monotonic() - began
        training.printer.say(f"Finish saving ckpt of epoch {step} step 1 using {seconds:.3f} seconds")

    def commit(self, step: int, kind: str) -> None:
        """Every file is there under its own name already."""
        self._training.events.add("save", phase="commit", kind=kind, step=step)

    def periodic(self, step: int) -> None:
        """Each rank its own file."""
        training = self._training
        training.faults.at("save", step)
        training.events.add("save", phase="begin", kind="periodic", step=step)
        self.write(step, [training.shard], "periodic")
        training.take_time(training.pace.save())
        self.commit(step, "periodic")


class MindFormersTogether(MindFormers):
    """`use_legacy_format: False`. What MindIO makes the training save is in the older form all the same."""

    def _root(self) -> Path:
        return Path.cwd()  # of what is saved for MindIO: MindFormers' handler names no other place

    def _iterations(self, root: Path) -> Iterations:
        return Iterations(root / "checkpoint", self._training.rank, self._training.settings.layout.world)

    def load(self, step: int | None) -> int | None:
        """What the tracker names."""
        root = self._training.settings.load
        if root is None or step is not None:
            return None
        own = self._iterations(root)
        found, arrays = own.load()
        return self._take(own.directory(found), found, arrays)

    def periodic(self, step: int) -> None:
        """All ranks into one directory; the first one begins, and ends with the tracker."""
        training = self._training
        settings, members = training.settings, training.collectives.members()
        if settings.save is None:
            raise checkpoint.CheckpointError("no output directory is given: there is nowhere to save to")
        own, is_first = self._iterations(settings.save), training.rank == members[0]
        training.faults.at("save", step)
        training.events.add("save", phase="begin", kind="periodic", step=step)
        if is_first:
            own.make_room(step)
        training.collectives.meet(b"room.%d" % step, members)
        training.printer.say("......Saving ckpt......")
        own.write(step, {"parameters": training.parameters, **training.shard.arrays()})
        training.take_time(training.pace.save())
        training.collectives.meet(b"saved.%d" % step, members)
        if is_first:
            own.describe(step, settings.micro_batch_size * settings.micro_batches)
            own.commit(step)
            self.commit(step, "periodic")
