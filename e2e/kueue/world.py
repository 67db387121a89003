"""What the stand-in for Kueue knows of a cluster, and one write of a Workload's status. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

Object = dict[str, Any]
JOB_UID: Final = "kueue.x-k8s.io/job-uid"


@dataclass(frozen=True)
class Configuration:
    """The manager's configuration, as far as a test changes it.

    Attributes:
        excluded_prefixes: of resources that are not counted.
        pods_ready_seconds: waitForPodsReady.timeout; None: it is off.
        recovery_seconds: waitForPodsReady.recoveryTimeout.
        backoff_seconds: how long what was evicted for its pods is not queued.
        backoff_limit: after so many of these evictions it is deactivated; None: never.
        blocks_admission: nobody is admitted while the pods of an admitted one are not ready.
        retention_seconds: objectRetentionPolicies.workloads.afterFinished; None: they are kept.
        knows_jobs: HATrainingJobs are among the externalFrameworks.
        may_read_jobs: the manager has rights to read them; without, each of its answers about a pod comes too late.
    """

    excluded_prefixes: tuple[str, ...] = ("cpu", "memory", "ephemeral-storage")
    pods_ready_seconds: float | None = None
    recovery_seconds: float | None = None
    backoff_seconds: float = 60.0
    backoff_limit: int | None = None
    blocks_admission: bool = False
    retention_seconds: float | None = None
    knows_jobs: bool = False
    may_read_jobs: bool = True


@dataclass
class World:
    """What is stored: objects by name, Workloads by namespace and name."""

    workloads: dict[tuple[str, str], Object] = field(default_factory=dict)
    local_queues: dict[tuple[str, str], Object] = field(default_factory=dict)
    cluster_queues: dict[str, Object] = field(default_factory=dict)
    flavors: dict[str, Object] = field(default_factory=dict)
    classes: dict[str, Object] = field(default_factory=dict)
    checks: dict[str, Object] = field(default_factory=dict)
    topologies: dict[str, Object] = field(default_factory=dict)
    nodes: dict[str, Object] = field(default_factory=dict)


@dataclass(frozen=True)
class StatusWrite:
    """One write of a Workload's status.

    Attributes:
        workload: the whole object as it was read; a write on another version is made anew.
        conditions: that are set, each as type, status, reason and message.
        admission: what is granted; None: it stays.
        clears: fields of the status that are removed.
        fields: of the status that are set.
        drops: conditions that are removed, by type.
        deactivates: `spec.active` is turned off, and nothing else.
        deletes: the Workload is deleted instead.
    """

    workload: Object
    conditions: tuple[tuple[str, str, str, str], ...] = ()
    admission: Object | None = None
    clears: tuple[str, ...] = ()
    fields: Object = field(default_factory=dict)
    drops: tuple[str, ...] = ()
    deactivates: bool = False
    deletes: bool = False

    def status_after(self, now: datetime) -> Object:
        """Return the status with this in it."""
        status = dict(self.workload.get("status") or {})
        known = {one["type"]: one for one in status.get("conditions") or [] if one["type"] not in self.drops}
        for kind, value, reason, message in self.conditions:
            before = known.get(kind)
            since = before["lastTransitionTime"] if before and before["status"] == value else timestamp(now)
            known[kind] = {
                "type": kind,
                "status": value,
                "reason": reason,
                "message": message,
                "lastTransitionTime": since,
                "observedGeneration": self.workload["metadata"].get("generation", 1),
            }
        status["conditions"] = list(known.values())
        if self.admission is not None:
            status["admission"] = self.admission
        return status | self.fields | dict.fromkeys(self.clears)


def timestamp(now: datetime) -> str:
    """Return a time as conditions have it: in whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def find_condition(workload: Object, kind: str) -> Object | None:
    """Return a condition of a Workload."""
    conditions = (workload.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), None)


def holds(workload: Object, kind: str) -> bool:
    """Return whether a condition is True."""
    found = find_condition(workload, kind)
    return found is not None and found["status"] == "True"


def key_of_workload(workload: Object) -> tuple[str, str]:
    """Return namespace and name."""
    return workload["metadata"]["namespace"], workload["metadata"]["name"]


def priority_of_workload(workload: Object) -> int:
    """Return its priority."""
    return int(workload["spec"].get("priority") or 0)


def is_active(workload: Object) -> bool:
    """Return whether it may be admitted."""
    return (workload.get("spec") or {}).get("active") is not False


def local_queue_of(world: World, workload: Object) -> Object | None:
    """Return the LocalQueue that it names; None where there is none."""
    return world.local_queues.get((workload["metadata"]["namespace"], workload["spec"].get("queueName", "")))


def cluster_queue_of(world: World, workload: Object) -> str:
    """Return the name of the ClusterQueue that its queue leads to; empty for none."""
    found = local_queue_of(world, workload)
    return str(found["spec"]["clusterQueue"]) if found is not None else ""


def queue_of_admission(workload: Object) -> str:
    """Return the ClusterQueue whose quota it has; empty for none."""
    if not holds(workload, "QuotaReserved") or holds(workload, "Finished"):
        return ""
    return str(((workload.get("status") or {}).get("admission") or {}).get("clusterQueue", ""))


def stop_policy_of(queue: Object | None) -> str:
    """Return how a queue is stopped; `None`: it is not."""
    return str((queue or {}).get("spec", {}).get("stopPolicy") or "None")
