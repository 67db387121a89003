"""What ranks print, in Megatron's and MindSpeed-LLM's formats, and on the ranks that print it there.

The step line comes from the last rank of the world and only every `--log-interval` steps, marks of start and save from
rank 0, errors go to stderr. With MindFormers' face every rank prints its step, counted within the epoch. Sources of the
formats: Megatron core 0.12.1 `training.py`, `checkpointing.py`, `initialize.py`; MindFormers `callback.py`.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Final

LOSS: Final = "lm loss"
MEGATRON: Final = "megatron"
MINDFORMERS: Final = "mindformers"


@dataclass(frozen=True)
class Speaker:
    """Who prints: place in the world, and how often steps are told.

    Attributes:
        rank: Of this process.
        world: Number of ranks, up to the last one that trains.
        is_quiet: Only the last one prints steps.
        interval: Steps between two step lines.
        total: Steps of the training.
        epoch: Steps of an epoch (MindFormers).
        face: `MEGATRON` or `MINDFORMERS`.
    """

    rank: int
    world: int
    is_quiet: bool
    interval: int
    total: int
    epoch: int
    face: str = MEGATRON

    @property
    def is_first(self) -> bool:
        """Rank 0 prints the marks of start, save and load."""
        return self.rank == 0

    @property
    def is_last(self) -> bool:
        """The last rank prints times and evaluations."""
        return self.rank == self.world - 1

    @property
    def prints_steps(self) -> bool:
        """This rank prints the step line."""
        return self.is_last or not self.is_quiet


@dataclass(frozen=True)
class Ended:
    """A step that has ended, or the averages of several: `batch` samples each, `norm` of the gradient."""

    step: int
    loss: float
    milliseconds: float
    batch: int
    learning_rate: float
    norm: float


@dataclass
class Printer:
    """Prints; a step's loss and time are averages since the last line, as in Megatron."""

    speaker: Speaker
    _losses: list[float] = field(default_factory=list)
    _milliseconds: list[float] = field(default_factory=list)
    _has_told_memory: bool = False

    def leave_to(self, last: int) -> None:
        """From now on `last` is the last rank that trains; what was averaged for a line is dropped."""
        self.speaker = dataclasses.replace(self.speaker, world=last + 1)
        self._losses, self._milliseconds = [], []

    def first(self, text: str) -> None:
        """A line of rank 0."""
        if self.speaker.is_first:
            say(text)

    def say(self, text: str) -> None:
        """A line of this rank, with the beginning that its framework's logger gives it."""
        say(f"{logged()}{text}" if self.speaker.face == MINDFORMERS else text)

    def mark(self, what: str) -> None:
        """Megatron's mark of a phase, `[after megatron is initialized] datetime: …`."""
        self.first(f"[{what}] datetime: {now():%Y-%m-%d %H:%M:%S} ")

    def step(self, step: int, *, loss: float, seconds: float, batch: int, learning_rate: float, norm: float) -> None:
        """A step has ended: count it, and print the line where one is due."""
        self._losses.append(loss)
        self._milliseconds.append(seconds * 1000)
        if step % self.speaker.interval or not self.speaker.prints_steps:
            return
        mean, milliseconds = sum(self._losses) / len(self._losses), sum(self._milliseconds) / len(self._milliseconds)
        self._losses, self._milliseconds = [], []
        ended = Ended(step, mean, milliseconds, batch, learning_rate, norm)
        if self.speaker.face == MINDFORMERS:
            for line in mindformers_lines(self.speaker, ended):
                self.say(line)
            return
        say(megatron_line(ended, self.speaker.total))
        if not self._has_told_memory:
            self._has_told_memory = True
            say(f"[Rank {self.speaker.rank}] (after {step} iterations) memory (MB) | allocated: 17.1 | reserved: 34.0")

    def evaluated(self, step: int, loss: float) -> None:
        """The result of an evaluation; no step line comes from it."""
        if self.speaker.is_last:
            text = (
                f" validation loss at iteration {step} | {LOSS} value: {loss:.6E} | {LOSS} PPL: {math.exp(loss):.6E} | "
            )
            say("\n".join(["-" * len(text), text, "-" * len(text)]))

    def saving(self, step: int, directory: object) -> None:
        """Before a checkpoint is written."""
        self.first(f"saving checkpoint at iteration {step:7d} to {directory} in torch format")

    def saved(self, step: int, directory: object, seconds: float) -> None:
        """After all have written and the tracker names it."""
        self.first(f"  successfully saved checkpoint from iteration {step:7d} to {directory}")
        if self.speaker.is_last:
            mark = f"{seconds * 1000:.2f}"
            say("(min, max) time across ranks (ms):")
            say(f"    save-checkpoint ................................: ({mark}, {mark})")


def megatron_line(ended: Ended, total: int) -> str:
    """The step line; a loss that is zero or no number is absent."""
    step, told = ended.step, f" {LOSS}: {ended.loss:.6E} |" if ended.loss > 0 else ""
    return (
        f" [{now():%Y-%m-%d %H:%M:%S}] iteration {step:8d}/{total:8d} | consumed samples: {step * ended.batch:12d} |"
        f" elapsed time per iteration (ms): {ended.milliseconds:.1f} | learning rate: {ended.learning_rate:.6E} |"
        f" global batch size: {ended.batch:5d} |{told} loss scale: 1.0 | grad norm: {ended.norm:.3f} |"
        f" number of skipped iterations: {0:3d} | number of nan iterations: {int(math.isnan(ended.loss)):3d} |"
    )


def mindformers_lines(speaker: Speaker, ended: Ended) -> tuple[str, str]:
    """The two records of MindFormers' loss callback: the step is the one inside the epoch, then comes a bar."""
    step = ended.step
    epochs, inside = -(-speaker.total // speaker.epoch), (step - 1) % speaker.epoch + 1
    share = step / speaker.total
    left = datetime.timedelta(seconds=int(ended.milliseconds / 1000 * (speaker.total - step)))
    bar = "█" * int(50 * share)
    record = (
        f"{{ Epoch:[{(step - 1) // speaker.epoch + 1:3d}/{epochs:3d}], step:[{inside:5d}/{speaker.epoch:5d}], "
        f"loss: {ended.loss:5.6f}, per_step_time: {ended.milliseconds:.0f}ms, lr: {ended.learning_rate}, "
        "overflow cond: False, loss_scale: 1.0, global_norm: [1.0]"
    )
    rate = ended.batch * 1000 / max(ended.milliseconds, 1e-3)
    return record, f"  {100 * share:4.1f}% |{bar:<50}| {rate:.5f} samples/s/p  {left} }}"


def logged() -> str:
    """What MindFormers' logger puts before each line."""
    stamp = f"{now():%Y-%m-%d %H:%M:%S,%f}"[:-3]
    return f"{stamp} - mindformers./output/log[mindformers/core/callback/callback.py:763] - INFO - "


def error(rank: int, code: str, text: str) -> None:
    """torch_npu's own format, on stderr."""
    stamp = f"{now():%Y-%m-%d-%H:%M:%S}"
    sys.stderr.write(f"[ERROR] {stamp} (PID:{os.getpid()}, Device:0, RankID:{rank}) {code} {text}\n")
    sys.stderr.flush()


def say(text: str) -> None:
    """A line on stdout, at once: trainers run with -u."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def now() -> datetime.datetime:
    """Local time, as trainers print it."""
    return datetime.datetime.fromtimestamp(time.time())  # noqa: DTZ006 - Megatron prints local time
