"""What Hajob costs a training that nothing happens to: the same training under Hajob and without it, in pairs.

Without it a plain supervisor starts ranks, store and MindIO's controller as processes (`e2e.trainer.local`): no pods,
no launcher, no agent, no gate, no coordinator. Cluster and operator run in both halves of a pair, so what is compared
is what a job adds. Halves change places from pair to pair, since a machine may grow slower all the while. A step lasts
50 ms at least, as the chips would make it; what the processes beside the ranks take comes on top or does not show.
A machine for training has ten cores and more for each chip, so what Hajob's processes do beside the ranks takes nothing
from them. Here every message takes its time from somebody. So two sizes are measured: as many ranks as this bench's
usual machine has cores, and eight, which keep both cores busy at the end of every step.
Without Hajob each rank has a session of its own, since Linux shares a busy machine out by sessions and containers have
some of theirs: in one session together, the ranks would be slow for a reason that has nothing to do with Hajob.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from e2e.bench.recoveries import STEP_MILLISECONDS, Say
from e2e.bootstrap.paths import CHECKOUT
from e2e.harness.images import mindio_directory
from e2e.harness.rig import Rig
from e2e.trainer import proof

STEPS = 600
WARM_UP_STEPS = 60
TRAINING_SECONDS = 300.0


@dataclass(frozen=True)
class Size:
    """A training: pods of `chips` ranks, tensor- and data-parallel."""

    nodes: int
    chips: int
    tensor: int

    @property
    def ranks(self) -> int:
        """Of the whole training."""
        return self.nodes * self.chips


SIZES = (Size(nodes=2, chips=1, tensor=1), Size(nodes=4, chips=2, tensor=2))


@dataclass(frozen=True)
class Pair:
    """Mean seconds of a step, with Hajob and without it."""

    with_hajob: float
    without: float

    @property
    def percent(self) -> float:
        """How much longer a step takes with Hajob."""
        return 100 * (self.with_hajob / self.without - 1)


def pairs(rig: Rig, size: Size, rounds: int, say: Say) -> Iterator[Pair]:
    """Train with and without Hajob, again and again."""
    for number in range(rounds):
        if number % 2:
            without, with_hajob = _without(rig, size, number), _with(rig, size, number)
        else:
            with_hajob, without = _with(rig, size, number), _without(rig, size, number)
        found = Pair(with_hajob, without)
        steps = f"step {1000 * with_hajob:.3f} ms with Hajob, {1000 * without:.3f} ms without"
        say(f"{size.ranks} ranks: {steps}: {found.percent:+.2f} %")
        yield found


def _with(rig: Rig, size: Size, number: int) -> float:
    job = rig.submit(
        f"overhead-{size.ranks}-{number}",
        iterations=STEPS,
        step_milliseconds=STEP_MILLISECONDS,
        nodes=size.nodes,
        chips=size.chips,
        tensor=size.tensor,
    )
    job.wait_condition("Complete", seconds=TRAINING_SECONDS)
    found = mean_step(job.logs, size.ranks)
    job.delete()
    return found


def _without(rig: Rig, size: Size, number: int) -> float:
    run, name = rig.plane.run, f"without-{size.ranks}-{number}"
    logs = run.directory / name
    layout = ["--tensor", str(size.tensor), "--data", str(size.ranks // size.tensor)]
    command = [sys.executable, "-m", "e2e.trainer.local", *layout, "--log-dir", str(logs)]
    command += ["--timeout", str(TRAINING_SECONDS), "--own-sessions"]
    flags = ["--train-iters", str(STEPS), "--step-time-ms", str(STEP_MILLISECONDS)]
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2", "PYTHONUNBUFFERED": "1"}
    environment = {"HAJOB_MINDIO": str(mindio_directory()), "PYTHONPATH": str(CHECKOUT), **threads}
    if run.spawn(name, [*command, "--", *flags], environment).wait() != 0:
        words = (run.logs / f"{name}.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"the training without Hajob failed: {words}")
    return mean_step(logs, size.ranks)


def mean_step(logs: Path, ranks: int) -> float:
    """Mean seconds of a step of a training that went through, without the first ones."""
    ends = [at for step, at in proof.common_steps(proof.load(logs), ranks) if step >= WARM_UP_STEPS]
    if len(ends) < STEPS - WARM_UP_STEPS:
        raise RuntimeError(f"{logs} tells of {len(ends)} steps only")
    return statistics.fmean(after - before for before, after in pairwise(ends)) / 1e9


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Between which of the values the median of their distribution lies, with this confidence at least.

    By the sign test: it supposes nothing about the distribution. With fewer than six values the confidence is not
    reached, and the interval is from the least to the greatest.
    """
    ordered = sorted(values)
    number, cut = len(ordered), 0
    tail = 0.0
    for index in range(number // 2):
        tail += math.comb(number, index) / 2**number
        if 2 * tail > 1 - confidence:
            break
        cut = index
    return ordered[cut], ordered[number - 1 - cut]
