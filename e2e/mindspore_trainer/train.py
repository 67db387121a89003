"""One rank in real MindSpore: `msrun … e2e/mindspore_trainer/train.py --iterations 60 --directory /ckpt`.

The order is MindFormers': MindIO by `_tft_handler.init` before the groups, then `init()`, checkpoint, callbacks,
`Model.train` with a sink of one step, so that a step is an epoch. Every batch is the same, so the weights after a step
follow from the number of steps alone.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import mindspore
import numpy
from mindspore import Parameter, Tensor, dataset, nn, ops
from mindspore.communication import init
from mindspore.train import Callback, Model
from mindspore.train.callback import TrainFaultTolerance
from mindspore.utils import _tft_handler

from e2e.mindspore_trainer import saving
from e2e.mindspore_trainer.chips import Chips
from e2e.trainer.events import EventLog
from e2e.trainer.mindformers_files import MINDIO_WORDS, write_strategy
from e2e.trainer.settings import HURRY

_STARTED = time.time_ns()


class Updates(nn.Momentum):  # type: ignore[misc]
    """An optimizer that sets the flag by which the callback knows that this step's update was made."""

    def __init__(self, parameters: list[Parameter]) -> None:
        super().__init__(parameters, learning_rate=0.05, momentum=0.9)
        self.tft_g_one_flag = Parameter(Tensor([1], mindspore.int32), name="tft_g_one_flag", requires_grad=False)
        self._updated = Tensor([2], mindspore.int32)

    def construct(self, gradients: Any) -> Any:  # noqa: ANN401 - traced by MindSpore
        """Update."""
        done = super().construct(gradients)
        return ops.depend(done, ops.assign(self.tft_g_one_flag, self._updated))


class Steps(Callback):  # type: ignore[misc]
    """The collective before each step's update, the account of each step, and the end."""

    def __init__(self, chips: Chips | None, events: EventLog | None, arguments: argparse.Namespace) -> None:
        super().__init__()
        self._chips, self._events, self._arguments = chips, events, arguments

    def on_train_step_begin(self, run_context: Any) -> None:  # noqa: ANN401 - MindSpore's
        """Meet the others, then say that the update begins, as MindSpore's native part does on chips."""
        if self._chips is None:
            return
        if not (self._arguments.directory / "log" / HURRY).exists():
            time.sleep(self._arguments.step_milliseconds / 1000)
        self._chips.meet(run_context.original_args().cur_epoch_num)
        if (mindio := _tft_handler.get_tft()) is not None:
            mindio.tft_start_updating_os()  # where MindIO has locked the rank, this waits
        self._chips.raise_if_stopped()

    def on_train_step_end(self, run_context: Any) -> None:  # noqa: ANN401 - MindSpore's
        """Write the step down and print it as MindFormers does."""
        step, last = run_context.original_args().cur_epoch_num, self._arguments.iterations
        if self._events is not None:
            self._events.add("step_end", step=step)
            print(f"{{ Epoch:[  1/  1], step:[{step:5d}/{last:5d}], loss: 0.5 }}", flush=True)


def dense(inputs: int, outputs: int) -> nn.Cell:
    """Return a layer whose weights are the same in every process; MindSpore's own begin at random, the bias too."""
    values = numpy.random.default_rng(inputs).normal(size=(outputs, inputs)).astype(numpy.float32)
    return nn.Dense(inputs, outputs, weight_init=Tensor(values), bias_init="zeros")


def network() -> nn.Cell:
    """Return the network, its weights the same in every process."""
    first, second = dense(8, 16), dense(16, 4)
    return nn.SequentialCell(first, nn.ReLU(), second)


def batches() -> dataset.Dataset:
    """Return the data: one batch, which each epoch takes again."""
    values = numpy.random.default_rng(8)
    inputs, wanted = values.normal(size=(4, 8)).astype(numpy.float32), values.normal(size=(4, 4)).astype(numpy.float32)
    return dataset.GeneratorDataset([(inputs, wanted)], ["inputs", "wanted"], shuffle=False)


def weights_of(trained: nn.Cell) -> str:
    """Return a digest of every weight."""
    found = hashlib.sha256()
    for name, parameter in sorted(trained.parameters_dict().items()):
        found.update(name.encode() + parameter.asnumpy().tobytes())
    return found.hexdigest()


def is_protected() -> bool:
    """Whether MindIO is on, as MindFormers looks for it."""
    return any(word in os.environ.get("MS_ENABLE_TFT", "") for word in MINDIO_WORDS)


def main(arguments: list[str]) -> int:
    """Train; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--step-milliseconds", type=float, default=0.0)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--form", choices=saving.FORMS, default=saving.RANKS)
    parser.add_argument("--save-interval", type=int, default=1_000_000)
    parser.add_argument("--alone", action="store_true", help="one process, without MindIO: the reference")
    options = parser.parse_args(arguments)
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    model = Model(cells := network(), nn.MSELoss(), Updates(cells.trainable_params()))
    if options.alone:
        train(model, options, saving.Begin(0, 0), [Steps(None, None, options)])
        print(weights_of(cells))
        return 0
    rank, world = int(os.environ["RANK_ID"]), int(os.environ["MS_WORKER_NUM"])
    attempt, incarnation = int(os.environ["HAJOB_ATTEMPT"]), int(os.environ["HAJOB_INCARNATION"])
    events = EventLog(options.directory / "log", rank, incarnation, attempt)
    events.add("exec", at=_STARTED)
    chips = Chips(options.directory / f"chips-{attempt}", rank, world)
    if is_protected():
        chips.install()
        _tft_handler.init(config=None)
    events.add("registered", reboot=chips.is_new)
    # `init()` holds Python's lock until all ranks are there. Only the simulator needs help with its heart meanwhile.
    with getattr(_tft_handler.get_tft(), "beating_aside", contextlib.nullcontext)():
        init()
    events.add("joined")
    place = saving.Place(options.form, options.directory, rank, world)
    # A process that takes another one's place is sent the state.
    begin = saving.Begin(0, 0) if chips.is_new else place.load(model.train_network, events)
    callbacks = [*recovery_and_saving(place, chips, begin, options.save_interval), Steps(chips, events, options)]
    train(model, options, begin, callbacks)
    events.add("weights", digest=weights_of(cells))
    return 0


def recovery_and_saving(place: saving.Place, chips: Chips, begin: saving.Begin, interval: int) -> list[Callback]:
    """Return the callbacks that save, by MindIO's order and by the interval, in the form that is asked for."""
    if not is_protected():
        return [_periodic(place, chips, begin, interval)]
    if place.form == saving.OWN:
        return [TrainFaultTolerance(ckpt_save_path=str(place.directory), initial_step=begin.step)]
    periodic = _periodic(place, chips, begin, interval)
    # What MindIO makes the newer form save is in the older one, and in the working directory.
    by_rank = periodic if place.form == saving.RANKS else saving.RankFiles(Path.cwd(), place.rank, interval, begin)
    if place.form == saving.RANKS:
        # In MindFormers' parallel modes MindSpore writes it with the graph; a filled checkpoint is refused without.
        write_strategy(place.directory, place.rank)
    return [TrainFaultTolerance(ckpt_save_fn=by_rank.save_for_mindio, initial_step=begin.step), periodic]


def _periodic(place: saving.Place, chips: Chips, begin: saving.Begin, interval: int) -> Callback:
    if place.form == saving.ITERATIONS:
        return saving.Iterations(place, interval, saving.waiter(chips.raise_if_stopped))
    return saving.RankFiles(place.inner / f"rank_{place.rank}", place.rank, interval, begin)


def train(model: Model, options: argparse.Namespace, begin: saving.Begin, callbacks: list[Callback]) -> None:
    """Train to the end."""
    if begin.epoch >= options.iterations:
        return
    model.train(
        options.iterations,
        batches(),
        callbacks=callbacks,
        dataset_sink_mode=True,
        sink_size=1,
        initial_epoch=begin.epoch,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
