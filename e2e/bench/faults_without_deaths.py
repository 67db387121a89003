"""What needs no new process: a step repeated after a memory fault, and a checkpoint saved on request.

MindIO takes 2.0 s of its own for a retry; what comes on top of them is counted. The order to save is the coordinator's
line about it, the first byte an event of the rank that wrote it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.bench.recoveries import (
    ITERATIONS,
    RECOVERY_SECONDS,
    ROUNDS_PER_JOB,
    SETTLE_SECONDS,
    STEP_MILLISECONDS,
    Say,
    time_of_day,
    training,
)
from e2e.harness.job import Job
from e2e.harness.rig import Rig
from e2e.trainer import proof
from e2e.trainer.faults import order

MINDIO_RETRY_SECONDS = 2.0
"""Of MindIO's own in every retry (docs/protocols/mindio.md)."""

MARGIN_STEPS = 30
"""From the order of a fault to its step: every rank looks for orders once per step."""


@dataclass(frozen=True)
class Retried:
    """One memory fault: what was done about it, and the outage in seconds."""

    action: str
    outage: float


@dataclass(frozen=True)
class Saved:
    """One checkpoint on request; seconds until its first byte.

    Attributes:
        from_order: From the coordinator's receipt of the order.
        from_request: From the request of the user, a change of spec.suspend.
    """

    from_order: float
    from_request: float


def retry(rig: Rig, rounds: int, say: Say) -> Iterator[Retried]:
    """One rank after the other meets a memory fault in its forward pass."""
    job: Job | None = None
    for number in range(rounds):
        if job is None or number % ROUNDS_PER_JOB == 0:
            if job is not None:
                job.delete()
            job = training(rig, f"retry-{number // ROUNDS_PER_JOB}")
        yield _retry(job, number % job.world(), say)
    if job is not None:
        job.delete()


def _retry(job: Job, rank: int, say: Say) -> Retried:
    incarnation = int(job.status()["incarnation"]) + 1
    began = time.time_ns()
    step = job.common_step() + MARGIN_STEPS
    order(job.logs, f"rank={rank} step={step} at=forward do=raise text=UCE_ERROR")
    incident = job.wait_incident(incarnation, seconds=RECOVERY_SECONDS)
    time.sleep(SETTLE_SECONDS)
    outage = next(each for each in proof.outages(job.events(), job.world()) if each.end_ns > began)
    say(f"memory fault of rank {rank}: {incident['action']}, outage {outage.seconds:.2f} s")
    return Retried(str(incident["action"]), outage.seconds)


def save(rig: Rig, rounds: int, say: Say) -> Iterator[Saved]:
    """Suspend a training, which saves it, and let it go on."""
    job = rig.submit("save", iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS)
    for _ in range(rounds):
        job.wait_condition("Running", seconds=RECOVERY_SECONDS)
        time.sleep(SETTLE_SECONDS)
        yield _save(rig, job, say)
        job.patch({"spec": {"suspend": False}})
        job.wait_condition("Suspended", "False", seconds=RECOVERY_SECONDS)
    job.delete()


def _save(rig: Rig, job: Job, say: Say) -> Saved:
    requested = time.time_ns()
    job.patch({"spec": {"suspend": True}})
    job.wait_condition("Suspended", seconds=RECOVERY_SECONDS)
    saves = proof.of(job.events(), "save")
    first = min(int(each["t"]) for each in saves if each["phase"] == "first_byte" and int(each["t"]) > requested)
    ordered = _ordered(rig, job, requested)
    found = Saved((first - ordered) / 1e9 if ordered else float("nan"), (first - requested) / 1e9)
    say(f"order to save -> first byte {found.from_order:.3f} s, from the request {found.from_request:.3f} s")
    return found


def _ordered(rig: Rig, job: Job, since: int) -> int:
    """When the order to save reached the coordinator, by its log; 0 where that does not say."""
    logs: Path = rig.plane.run.directory / f"nodes-{rig.name}" / "logs"
    for path in sorted(logs.glob(f"*/{job.namespace}_{job.name}-coordinator-*/coordinator/*.log")):
        for line in path.read_text(errors="replace").splitlines():
            clock, _, words = line.partition(" ")
            at = time_of_day(clock, since) if " order CHECKPOINT" in words else 0
            if at >= since - 1_000_000:
                return at
    return 0
