"""Both recoveries, again and again, on one training after the other; times from the neutral observers.

A training is replaced by a fresh one after some rounds, so that reading its ranks' logs stays cheap. Between a fault
and its recovery nothing is read but the job's status, because the machine has few cores and the reader would be
measured, too.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from e2e.harness.account import Recovery, recovery
from e2e.harness.cluster_rig import ClusterRig
from e2e.harness.job import Job
from e2e.trainer import proof

ROUNDS_PER_JOB = 10
ITERATIONS = 1_000_000
STEP_MILLISECONDS = 50
SETTLE_SECONDS = 4.0
"""After a recovery: MindIO's own result is 2 s late, a status that nobody waits for is written after 3 s."""
RECOVERY_SECONDS = 120.0
UNLIMITED = {"recovery": {"actions": [{"name": name, "maxCount": 100_000} for name in ("Retry", "InPlace", "Replace")]}}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Round:
    """One fault and its recovery; times in seconds.

    Attributes:
        account: As the demo's table has it.
        to_stop: From the fault to stop_train accepted.
        to_decision: From the fault to the decision.
        after_gate: From the replacement's arrival at the gate to the first step.
        from_decision: From the decision to the first step.
        phases: Of the incident, by name.
    """

    account: Recovery
    to_stop: float
    to_decision: float
    after_gate: float
    from_decision: float
    phases: Mapping[str, float]


@dataclass(frozen=True)
class Fault:
    """What was done: in words, when, the incarnation that follows, and the ranks that die of it."""

    words: str
    began_ns: int
    incarnation: int
    lost: list[int]


def training(rig: ClusterRig, name: str, more: Mapping[str, object] | None = None) -> Job:
    """A training that goes on until it is deleted, under way; `more`: of its spec."""
    spec = {**UNLIMITED, **(more or {})}
    job = rig.submit(name, iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS, spec=spec)
    job.wait_condition("Running", seconds=RECOVERY_SECONDS)
    time.sleep(SETTLE_SECONDS)
    return job


def in_place(rig: ClusterRig, rounds: int, say: Say) -> Iterator[Round]:
    """Kill one rank after the other."""
    for number, job in _rounds(rig, "in-place", rounds):
        rank = number % job.world()
        incarnation = int(job.status()["incarnation"]) + 1
        fault = rig.nodes.control.kill(namespace=rig.namespace, rank=rank)
        made = Fault(f"rank {rank} killed", fault["time"], incarnation, [rank])
        yield account(rig, job, made, say)


def replace(rig: ClusterRig, rounds: int, say: Say) -> Iterator[Round]:
    """Power off one node after the other; it boots again before the next one goes."""
    for number, job in _rounds(rig, "replace", rounds):
        node_rank = number % 4
        node = job.node_of(node_rank)
        incarnation = int(job.status()["incarnation"]) + 1
        fault = rig.nodes.control.power_off(node)
        lost = [2 * node_rank, 2 * node_rank + 1]
        yield account(rig, job, Fault(f"{node} powered off", fault["time"], incarnation, lost), say)
        rig.nodes.control.power_on(node)
        wait_ready(rig, node)


def wait_ready(rig: ClusterRig, node: str) -> None:
    """Wait until the scheduler may use a node."""
    path = f"/api/v1/nodes/{node}"

    def ready() -> bool:
        conditions = rig.plane.api.get(path)["status"]["conditions"]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    rig.plane.wait(f"{node} to be ready", ready)


def _rounds(rig: ClusterRig, name: str, rounds: int) -> Iterator[tuple[int, Job]]:
    job: Job | None = None
    for number in range(rounds):
        if job is None or number % ROUNDS_PER_JOB == 0:
            if job is not None:
                job.delete()
            job = training(rig, f"{name}-{number // ROUNDS_PER_JOB}")
        yield number, job
    if job is not None:
        job.delete()


def account(rig: ClusterRig, job: Job, fault: Fault, say: Say) -> Round:
    """Wait until a fault's incident is over and read what it cost."""
    incarnation, began = fault.incarnation, fault.began_ns
    job.wait_incident(incarnation, seconds=RECOVERY_SECONDS)
    time.sleep(SETTLE_SECONDS)
    found = recovery(rig, job, fault.words, began, incarnation=incarnation, lost_ranks=fault.lost)
    outage = next(each for each in proof.outages(job.events(), job.world()) if each.end_ns > began)
    incident = next(each for each in job.incidents() if each["incarnation"] == incarnation)
    phases = {each["name"]: int(each["milliseconds"]) / 1000 for each in incident["phases"]}
    stopped = stop_accepted(rig, job, began)
    say(f"{fault.words}: {found.action}, outage {found.outage:.2f} s, control {found.control:.2f} s")
    return Round(
        account=found,
        to_stop=(stopped - began) / 1e9 if stopped else float("nan"),
        to_decision=found.decided + (outage.begin_ns - began) / 1e9,
        after_gate=phases.get("Naming", 0.0) + phases.get("Recovery", 0.0),
        from_decision=found.outage - found.decided,
        phases=phases,
    )


def stop_accepted(rig: ClusterRig, job: Job, began: int) -> int:
    """When MindIO took `stop_train`, by the log of the job's coordinator; 0 where it does not say."""
    for line in coordinator_lines(rig, job):
        clock, _, words = line.partition(" ")
        if " MindIO took stop_train" not in f" {words}":
            continue
        at = time_of_day(clock, began)
        if at >= began - 1_000_000:
            return at
    return 0


def coordinator_lines(rig: ClusterRig, job: Job) -> Iterator[str]:
    """What the job's coordinator has logged."""
    yield from rig.lines(job.pods("coordinator")[0]["metadata"]["name"], "coordinator")


def time_of_day(clock: str, near: int) -> int:
    """A time of day in milliseconds, on the day of `near`."""
    day = datetime.datetime.fromtimestamp(near / 1e9).astimezone()
    try:
        hour, minute, second = clock.split(":")
        at = day.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0).timestamp() + float(second)
    except ValueError:
        return 0
    return round(at * 1e9)
