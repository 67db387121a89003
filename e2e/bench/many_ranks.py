"""Does a recovery cost more with eight times the ranks? 8 and 64 of them, on one rig and at one step time.

A control share holds the part of a step that was cut off and the whole of the first one after it. So each rank dies at
the same point of its step, where that part is smallest: chance would add the same to both and hide what differs. On a
machine with few cores 64 ranks cannot step as fast as 8, so both step at a pace that 64 can keep, and that pace is
shown beside the result.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from itertools import pairwise

from e2e.bench.recoveries import ITERATIONS, SETTLE_SECONDS, UNLIMITED, Fault, Round, Say, account
from e2e.harness.job import Job
from e2e.harness.rig import Rig, RigLayout
from e2e.trainer import faults, proof

LAYOUT = RigLayout(chip_nodes=8, chips=8, operators=0)
STEP_MILLISECONDS = 600
MARGIN_STEPS = 3
"""From the order of a fault to its step: every rank looks for orders once per step."""
START_SECONDS = 600.0
"""64 interpreters with NumPy, started side by side on two cores."""

SIZES = {8: {"nodes": 4, "chips": 2, "tensor": 2}, 64: {"nodes": 8, "chips": 8, "tensor": 8}}
"""Of a job, by its ranks; tensor parallel within a node, as trainings have it."""


def start(beside: Rig, namespace: str) -> Rig:
    """Nodes for 64 ranks beside another rig, whose operator serves them, too; each in a namespace of its own."""
    beside.plane.api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    beside.plane.wait(f"service account of namespace {namespace}", lambda: beside.plane.api.find(account))
    rig = Rig.start(beside.plane, namespace, LAYOUT)
    rig.operator_namespace = beside.operator_namespace
    return rig


def in_place(rig: Rig, ranks: int, rounds: int, say: Say) -> Iterator[Round]:
    """Kill one rank after the other of a training with so many."""
    job = rig.submit(
        f"ranks-{ranks}",
        iterations=ITERATIONS,
        step_milliseconds=STEP_MILLISECONDS,
        spec={**UNLIMITED, "startupDeadlineSeconds": int(START_SECONDS)},
        **SIZES[ranks],
    )
    job.wait_condition("Running", seconds=START_SECONDS)
    time.sleep(SETTLE_SECONDS)
    say(f"{ranks} ranks: a step takes {1000 * step_seconds(job):.0f} ms")
    for number in range(rounds):
        rank = number * (ranks // 8 + 1) % ranks  # another node and another place in it each time
        incarnation = int(job.status()["incarnation"]) + 1
        made = Fault(f"rank {rank} of {ranks} killed", _kill(rig, job, rank), incarnation, [rank])
        yield account(rig, job, made, say)
    job.delete()


def _kill(rig: Rig, job: Job, rank: int) -> int:
    """Have a rank end itself by SIGKILL in its forward pass; when it did."""
    fault = faults.Fault.parse(f"rank={rank} step={job.common_step() + MARGIN_STEPS} at=forward do=kill")
    faults.order(job.logs, fault.line)
    mark = fault.mark(job.logs, rank)
    rig.plane.wait(f"the death of rank {rank}", mark.exists, SETTLE_SECONDS + MARGIN_STEPS)
    return mark.stat().st_mtime_ns


def step_seconds(job: Job) -> float:
    """Median time of the steps so far."""
    ends = [at for _, at in proof.common_steps(job.events(), job.world())]
    return statistics.median(after - before for before, after in pairwise(ends)) / 1e9
