"""A training that goes on without the ranks it lost and grows back, and one whose lost node has a warm spare.

For a shrink one rank is killed where neither its process nor its pod may be made anew: no wait for a node and no
silence to be noticed is in the numbers. It grows onto the same node after a moment, and then the next training begins,
because each growth makes the next one wait longer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from e2e.bench.recoveries import (
    ITERATIONS,
    RECOVERY_SECONDS,
    SETTLE_SECONDS,
    STEP_MILLISECONDS,
    Fault,
    Round,
    Say,
    account,
    coordinator_lines,
    time_of_day,
    training,
    wait_ready,
)
from e2e.harness.job import Job, Object
from e2e.harness.rig import Rig
from e2e.trainer import proof

SHRINKING: Object = {
    "recovery": {"actions": [{"name": name, "maxCount": 0} for name in ("InPlace", "Replace")]},
    "elastic": {"expandDelaySeconds": 1},
}
WARM: Object = {"scheduling": {"numSpareNodes": 1, "spareMode": "Warm"}}


@dataclass(frozen=True)
class Resized:
    """One shrink or growth; seconds.

    Attributes:
        action: What was done.
        outage: From the last common step to the first one after it; no new process starts in it.
        ordered: From MindIO's acceptance of the strategy to the first step: what it and the trainer take.
        tick: From there to the last step before, while the training goes on; below 0 where it stood already.
    """

    action: str
    outage: float
    ordered: float
    tick: float


def resizes(rig: Rig, rounds: int, say: Say) -> Iterator[tuple[Resized, Resized]]:
    """A shrink and the growth after it, each time on a fresh training; rank 0 is never lost."""
    for number in range(rounds):
        arguments = ["--enable-elastic-training"]
        job = rig.submit(
            f"resize-{number}",
            iterations=ITERATIONS,
            step_milliseconds=STEP_MILLISECONDS,
            spec=SHRINKING,
            arguments=arguments,
        )
        job.wait_condition("Running", seconds=RECOVERY_SECONDS)
        time.sleep(SETTLE_SECONDS)
        rank = 2 + number % (job.world() - 2)
        began = int(rig.nodes.control.kill(namespace=rig.namespace, rank=rank)["time"])
        found = [_resized(rig, job, incarnation, began) for incarnation in (2, 3)]
        say(", ".join(f"{one.action}: outage {one.outage:.2f} s, tick {one.tick:.2f} s" for one in found))
        yield found[0], found[1]
        job.delete()


def _resized(rig: Rig, job: Job, incarnation: int, began: int) -> Resized:
    incident = job.wait_incident(incarnation, seconds=RECOVERY_SECONDS)
    time.sleep(1.0)  # what the ranks write down comes a moment later than what they do
    outages = [each for each in proof.outages(job.events(), job.world()) if each.end_ns > began]
    outage = outages[0] if incarnation == 2 else outages[-1]
    strategy = _strategy_taken(rig, job, outage.end_ns)
    if not strategy:
        return Resized(str(incident["action"]), outage.seconds, float("nan"), float("nan"))
    begin, end = outage.begin_ns, outage.end_ns
    return Resized(
        str(incident["action"]), outage.seconds, (end - max(strategy, begin)) / 1e9, (begin - strategy) / 1e9
    )


def _strategy_taken(rig: Rig, job: Job, before: int) -> int:
    """When MindIO last took a strategy before then, by the coordinator's log; 0 where it does not say."""
    found = 0
    for line in coordinator_lines(rig, job):
        clock, _, words = line.partition(" ")
        at = time_of_day(clock, before) if "MindIO took change_strategy" in words else 0
        found = at if found < at <= before else found
    return found


def warm_spares(rig: Rig, rounds: int, say: Say) -> Iterator[Round]:
    """Power off one node after the other where a warm spare is held; it boots again and becomes the next spare."""
    job = training(rig, "warm", WARM)
    for number in range(rounds):
        job.wait_condition("SparesReady", seconds=RECOVERY_SECONDS)
        node_rank = number % 4
        node, incarnation = job.node_of(node_rank), int(job.status()["incarnation"]) + 1
        fault = rig.nodes.control.power_off(node)
        lost = [2 * node_rank, 2 * node_rank + 1]
        yield account(rig, job, Fault(f"{node} powered off, warm spare", fault["time"], incarnation, lost), say)
        rig.nodes.control.power_on(node)
        wait_ready(rig, node)
    job.delete()
