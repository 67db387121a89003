"""Workloads as Kueue leaves them, for tests of what follows from one."""

from __future__ import annotations

from typing import Any, Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.capacity.queues import Queues
from hajob.job.snapshot import JobSnapshot
from hajob.pods.settings import PodSettings
from hajob.pods.workload import build_spare_workload, build_workload
from hajob.sources.workload import Flavor, QueuePriority, WorkloadView, workload_view_of

SINCE: Final = "2026-11-28T10:00:00Z"
PREEMPTED: Final = (
    "Preempted to accommodate a workload (UID: w-2, JobUID: uid-2) due to prioritization in the ClusterQueue"
)
SHORT: Final = (
    "couldn't assign flavors to pod set rank: insufficient unused quota for huawei.com/Ascend910 in flavor a2, 8 more "
    "needed"
)
FLAVOR: Final = Flavor("a2", (("pool", "a2"),), ({"key": "npu", "operator": "Exists"},))


def kueue_condition(kind: str, status: str, reason: str, message: str = "") -> Json:
    """Build a condition as Kueue writes it."""
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE}


WAITING: Final = [kueue_condition("QuotaReserved", "False", "Pending", SHORT)]
ADMITTED: Final = [
    kueue_condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue cq"),
    kueue_condition("Admitted", "True", "Admitted", "The workload is admitted"),
]
READY: Final = [*ADMITTED, kueue_condition("PodsReady", "True", "PodsReady")]
EVICTED: Final = [
    *READY,
    kueue_condition("Evicted", "True", "Preempted", PREEMPTED),
    kueue_condition("Preempted", "True", "InClusterQueue", PREEMPTED),
]


def admission_of(workload: Json, **counts: int) -> Json:
    """Build what Kueue grants to a Workload: the flavor a2 for chips, nothing else covered."""
    assignments = []
    for pod_set in workload["spec"]["podSets"]:
        is_chip_less = pod_set["name"] == "coordinator"
        given: Json = {"name": pod_set["name"], "count": counts.get(pod_set["name"], pod_set["count"])}
        assignments.append(given | ({} if is_chip_less else {"flavors": {names.DEFAULT_RESOURCE_NAME: "a2"}}))
    return {"clusterQueue": "cq", "podSetAssignments": assignments}


def workload_of(job: HATrainingJob, conditions: list[Json] | None = None, *, spares: bool = False, **more: Any) -> Json:
    """Build the Workload of a job as the server has it.

    Args:
        job: the job.
        conditions: that Kueue has written; quota that is reserved is granted.
        spares: that of its spares.
        more: other fields of the status, or `spec` and `annotations` beside its own.
    """
    build = build_spare_workload if spares else build_workload
    raw = build(job, PodSettings("hajob/sidecar:dev"), "user-queue", QueuePriority("", 0))
    raw["metadata"] |= {"uid": f"uid-of-{raw['metadata']['name']}", "resourceVersion": "7", "generation": 3}
    raw["metadata"]["annotations"] |= more.pop("annotations", {})
    raw["spec"] |= {"active": True, **more.pop("spec", {})}
    raw["status"] = {"conditions": conditions or [], **more}
    if any((one["type"], one["status"]) == ("QuotaReserved", "True") for one in conditions or []):
        raw["status"].setdefault("admission", admission_of(raw))
    return raw


def queued(job: HATrainingJob, queue: str = "user-queue", **labels: str) -> HATrainingJob:
    """Return the job with Kueue's label."""
    whole = {names.LABEL_QUEUE: queue, **labels}
    return job.model_copy(update={"metadata": job.metadata.model_copy(update={"labels": whole})})


def queues_with(*workloads: Json, flavors: tuple[Flavor, ...] = (FLAVOR,)) -> Queues:
    """Return what an operator knows that has read these Workloads."""
    queues = Queues(served=True, listed={""}, flavors={one.name: one for one in flavors})
    for raw in workloads:
        queues.store_workload(workload_view_of(raw))
    return queues


def view_of(*conditions: Json, **more: Any) -> WorkloadView:
    """Return the view of a Workload with these conditions."""
    return workload_view_of({"metadata": {"name": "w"}, "status": {"conditions": list(conditions)}, **more})


def in_queue(made: JobSnapshot, *workloads: Json) -> JobSnapshot:
    """Show a snapshot's cluster these Workloads."""
    made.cluster.queues = queues_with(*workloads)
    return made
