"""What a recovery cost and whether it was the promised one, from the neutral observers.

The outage is what the ranks wrote down, the phases are what the job's status says, the writes are what the API server
counted. None of them is asked about another one's subject (docs/internals/local-cluster.md).
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from e2e.cluster.audit import Request
from e2e.harness.cluster_rig import ClusterRig
from e2e.harness.job import Job, Object
from e2e.harness.operator import NAME
from e2e.trainer import proof
from e2e.trainer.layout import Layout

# Phases of an incident up to, and with, the moment a row of the table tells.
NOTICED = ("Detection",)
STOPPED = (*NOTICED, "Stop")
DECIDED = (*STOPPED, "Decision")


@dataclass(frozen=True)
class Recovery:
    """One fault and what became of it; times are seconds from the end of the last common step.

    Attributes:
        fault: What was done, in words.
        action: What Hajob chose.
        noticed: When the fault was known.
        stopped: When the training stood still.
        decided: When the action was decided.
        restored: When the last new process had its shard.
        outage: From the last common step to the first one after it.
        startup: Of the new processes, from exec to the first call of MindIO.
        writes: What Hajob's clients wrote, by verb and resource.
        promises: Each promise in words, with sentences about what contradicts it; kept where there is none.
    """

    fault: str
    action: str
    noticed: float
    stopped: float
    decided: float
    restored: float
    outage: float
    startup: float
    writes: Mapping[str, int]
    promises: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def broken_promises(self) -> list[str]:
        """Sentences about promises that were not kept; empty when the recovery was the promised one."""
        return [sentence for sentences in self.promises.values() for sentence in sentences]

    @property
    def control(self) -> float:
        """The outage without the start-up of new processes: Hajob's and MindIO's share."""
        return self.outage - self.startup

    @property
    def write_count(self) -> int:
        """All writes together."""
        return sum(self.writes.values())


def recovery(
    rig: ClusterRig, job: Job, fault: str, began_ns: int, *, incarnation: int, lost_ranks: list[int]
) -> Recovery:
    """The account of the incident that a fault at `began_ns` (real-time clock) caused.

    Args:
        rig: Whose operator recovered it.
        job: The job that was hit; it trains again.
        fault: What was done, in words.
        began_ns: When, as the fault's maker says.
        incarnation: Of the incident.
        lost_ranks: The ranks that had to be started anew.
    """
    incident = next(each for each in job.incidents() if each["incarnation"] == incarnation)
    events = job.events()
    outage = next(each for each in proof.outages(events, job.world()) if each.end_ns > began_ns)
    since = datetime.datetime.fromtimestamp(began_ns / 1e9, datetime.UTC)
    return Recovery(
        fault=fault,
        action=incident["action"],
        noticed=_until(incident, NOTICED),
        stopped=_until(incident, STOPPED),
        decided=_until(incident, DECIDED),
        restored=max(0, outage.last_ns.get("repair", outage.begin_ns) - outage.begin_ns) / 1e9,
        outage=outage.seconds,
        startup=outage.startup_seconds,
        writes=Counter(f"{each.verb} {each.resource}" for each in hajob_writes(rig, since)),
        promises=promises(job, events, outage, lost_ranks),
    )


def hajob_writes(rig: ClusterRig, since: datetime.datetime) -> list[Request]:
    """What clients of Hajob wrote since then: the operator is the only one with the right to."""
    return rig.plane.audit.writes(since, user=f"system:serviceaccount:{rig.operator_namespace}:{NAME}")


def promises(job: Job, events: list[proof.Event], outage: proof.Outage, lost: list[int]) -> dict[str, list[str]]:
    """What is promised of a recovery from optimizer copies, each with what contradicts it up to the outage's end."""
    until = [event for event in events if int(event["t"]) <= outage.end_ns]
    inside = [event for event in until if int(event["t"]) >= outage.begin_ns]
    layout = layout_of(job)
    partners = {rank: layout.partner(rank) for rank in lost}
    return {
        "survivors' PIDs kept": proof.survivors_kept(inside, lost),
        "steps never went back": proof.steps_went_back(until),
        "no checkpoint opened": proof.checkpoints_opened(inside),
        "shard from the partner": proof.restored_elsewhere(inside, partners),
    }


def layout_of(job: Job) -> Layout:
    """How the job's ranks are numbered."""
    parallelism = job.get()["spec"]["parallelism"]
    tensor, pipeline = int(parallelism["tensor"]), int(parallelism.get("pipeline", 1))
    is_mapped = parallelism.get("rankOrder") == "TensorPipelineData"
    data = job.world() // (tensor * pipeline)
    return Layout(tensor, data, pipeline, 2 if data % 2 == 0 else 1, is_mapped)


def _until(incident: Object, phases: tuple[str, ...]) -> float:
    return sum(int(each["milliseconds"]) for each in incident["phases"] if each["name"] in phases) / 1000
