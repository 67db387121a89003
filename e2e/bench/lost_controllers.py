"""How long a training is without protection when its MindIO controller dies, with 8 and with 64 ranks.

The new process's own start (Python, MindIO's package, its listener, winding its serials on) is what the image takes,
and is told apart: it is between the coordinator's two lines about it. All else is Hajob's. What the steps lose is their
mean in the seconds after the death against their mean in the seconds before it, by the ranks' own logs.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from e2e.bench.many_ranks import SIZES, START_SECONDS, STEP_MILLISECONDS
from e2e.bench.recoveries import ITERATIONS, SETTLE_SECONDS, Say, coordinator_lines, time_of_day
from e2e.harness.controllers import kill_mindio
from e2e.harness.job import Job
from e2e.harness.rig import Rig
from e2e.trainer import proof

COMPARED_SECONDS = 5.0
"""Before the death and after it; a takeover takes less than one."""
ASKED = "no controller has a link to them"
SERVES = "another MindIO controller serves"
KNOWS = "another MindIO controller knows every rank"


@dataclass(frozen=True)
class Unprotected:
    """One loss; seconds.

    Attributes:
        whole: From the death to the controller that knows every rank.
        start: Of it the start of the new process.
        step_before: Mean of the steps that ended in the last seconds before the death.
        step_after: Mean of those of as many seconds after it.
    """

    whole: float
    start: float
    step_before: float
    step_after: float

    @property
    def beyond(self) -> float:
        """Without the new process's own start."""
        return self.whole - self.start

    @property
    def step_percent(self) -> float:
        """How much longer a step takes while the controller is lost and followed by another one."""
        return 100 * (self.step_after / self.step_before - 1)


def losses(rig: Rig, ranks: int, rounds: int, say: Say) -> Iterator[Unprotected]:
    """Kill one controller after the other of a training that goes on."""
    job = rig.submit(
        f"unprotected-{ranks}",
        iterations=ITERATIONS,
        step_milliseconds=STEP_MILLISECONDS,
        spec={"startupDeadlineSeconds": int(START_SECONDS)},
        **SIZES[ranks],
    )
    job.wait_condition("Running", seconds=START_SECONDS)
    for number in range(1, rounds + 1):
        job.wait_condition("CoordinatorReady", seconds=START_SECONDS)
        time.sleep(max(SETTLE_SECONDS, COMPARED_SECONDS + STEP_MILLISECONDS / 1000))
        killed = kill_mindio(rig, job)
        rig.plane.wait("another controller", lambda number=number: job.takeovers() >= number, START_SECONDS)  # type: ignore[misc]
        time.sleep(COMPARED_SECONDS)
        found = _account(rig, job, ranks, killed)
        lost = f"{found.whole:.3f} s without protection, {found.start:.3f} s of them the new one's start"
        say(f"{ranks} ranks: {lost}; a step {1000 * found.step_before:.1f} ms, then {1000 * found.step_after:.1f} ms")
        yield found
    job.delete()


def _account(rig: Rig, job: Job, ranks: int, killed: int) -> Unprotected:
    """The first time of each line after the death."""
    times: dict[str, int] = {}
    for line in coordinator_lines(rig, job):
        clock, _, words = line.partition(" ")
        for what in (ASKED, SERVES, KNOWS):
            if what in words and (at := time_of_day(clock, killed)) >= killed // 1_000_000 * 1_000_000:
                times.setdefault(what, at)
    ends = [at for _, at in proof.common_steps(proof.load(job.logs), ranks)]
    compared = int(COMPARED_SECONDS * 1e9)
    return Unprotected(
        whole=(times[KNOWS] - killed) / 1e9,
        start=(times[SERVES] - times[ASKED]) / 1e9,
        step_before=_mean_step(ends, killed - compared, killed),
        step_after=_mean_step(ends, killed, killed + compared),
    )


def _mean_step(ends: Sequence[int], begin: int, end: int) -> float:
    """Mean seconds of the steps that ended between the two times (ns); NaN where none did."""
    lasted = [after - before for before, after in pairwise(ends) if begin <= after < end]
    return statistics.fmean(lasted) / 1e9 if lasted else math.nan
