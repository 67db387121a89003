"""How long a training is without protection when its MindIO controller dies, with 8 and with 64 ranks.

The new process's own start (Python, MindIO's package, its listener, winding its serials on) is what the image takes,
and is told apart: it is between the coordinator's two lines about it. All else is Hajob's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from e2e.bench.many_ranks import SIZES, START_SECONDS, STEP_MILLISECONDS
from e2e.bench.recoveries import ITERATIONS, SETTLE_SECONDS, Say, coordinator_lines, time_of_day
from e2e.harness.controllers import kill_mindio
from e2e.harness.job import Job
from e2e.harness.rig import Rig

ASKED = "no controller has a link to them"
SERVES = "another MindIO controller serves"
KNOWS = "another MindIO controller knows every rank"


@dataclass(frozen=True)
class Unprotected:
    """One loss; seconds.

    Attributes:
        whole: From the death to the controller that knows every rank.
        start: Of it the start of the new process.
    """

    whole: float
    start: float

    @property
    def beyond(self) -> float:
        """Without the new process's own start."""
        return self.whole - self.start


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
        time.sleep(SETTLE_SECONDS)
        killed = kill_mindio(rig, job)
        rig.plane.wait("another controller", lambda number=number: _taken_over(job) >= number, START_SECONDS)  # type: ignore[misc]
        found = _account(rig, job, killed)
        say(f"{ranks} ranks: {found.whole:.3f} s without protection, {found.start:.3f} s of them the new one's start")
        yield found
    job.delete()


def _taken_over(job: Job) -> int:
    return int(job.status().get("takeovers", {}).get("count", 0))


def _account(rig: Rig, job: Job, killed: int) -> Unprotected:
    """The first time of each line after the death."""
    times: dict[str, int] = {}
    for line in coordinator_lines(rig, job):
        clock, _, words = line.partition(" ")
        for what in (ASKED, SERVES, KNOWS):
            if what in words and (at := time_of_day(clock, killed)) >= killed // 1_000_000 * 1_000_000:
                times.setdefault(what, at)
    return Unprotected((times[KNOWS] - killed) / 1e9, (times[SERVES] - times[ASKED]) / 1e9)
