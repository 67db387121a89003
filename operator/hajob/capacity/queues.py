"""The queue of jobs that Kueue admits: Workloads, flavors and priority classes as they were last seen. Pure.

Which Workload is a job's follows from its name and its owner; a label is not believed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hajob.sources.workload import (
    DEACTIVATED,
    EVICTED,
    NO_PLACING,
    QUOTA_RESERVED,
    Flavor,
    Placing,
    QueuePriority,
    QueueTurn,
    WorkloadView,
)

NOT_SERVED: Final = (
    "this operator does not serve Kueue, so the job is not started: install the chart with kueue.enabled=true, or take "
    "the label kueue.x-k8s.io/queue-name off the job"
)
UNREAD: Final = "Kueue's Workloads cannot be read: is Kueue installed, and may the operator read them (kueue.enabled)?"
UNANSWERED: Final = "Kueue has not answered yet"


@dataclass(slots=True)
class Queues:
    """What is known of Kueue.

    Attributes:
        served: this operator asks Kueue for quota at all.
        listed: namespaces whose Workloads were read; one without a name: all.
        workloads: by namespace and name.
        flavors: by name.
        classes: by name.
    """

    served: bool = False
    listed: set[str] = field(default_factory=set)
    workloads: dict[tuple[str, str], WorkloadView] = field(default_factory=dict)
    flavors: dict[str, Flavor] = field(default_factory=dict)
    classes: dict[str, QueuePriority] = field(default_factory=dict)

    def store_workload(self, workload: WorkloadView) -> None:
        """Store a Workload as it is now."""
        self.workloads[workload.namespace, workload.name] = workload

    def remove_workload(self, workload: WorkloadView) -> None:
        """Remove a deleted Workload."""
        self.workloads.pop((workload.namespace, workload.name), None)

    def is_namespace_read(self, namespace: str) -> bool:
        """Return whether the Workloads of a namespace are known."""
        return self.served and not self.listed.isdisjoint({"", namespace})

    def find_workload(self, namespace: str, name: str, job_uid: str) -> WorkloadView | None:
        """Return the Workload of this name that this job controls; None where there is none."""
        found = self.workloads.get((namespace, name))
        return found if found is not None and found.job_uid == job_uid else None

    def turn_of_workload(self, workload: WorkloadView | None) -> QueueTurn:
        """Return whether the pods of a Workload may be there; a flavor that is not known says nothing of its nodes."""
        if workload is None:
            return QueueTurn.UNKNOWN
        # Pods made without its labels and tolerations would go to nodes that another quota is for.
        turn = workload.queue_turn
        return QueueTurn.UNKNOWN if turn is QueueTurn.ADMITTED and self.unknown_flavors(workload) else turn

    def unknown_flavors(self, workload: WorkloadView) -> list[str]:
        """Return the names of the flavors that a Workload was given and that are not known."""
        return sorted({name for one in workload.grants for name in one.flavors if name not in self.flavors})

    def placing_of_pod_set(self, workload: WorkloadView | None, pod_set: str) -> Placing:
        """Return what the pods of a pod set need: what its flavors and its admission checks say."""
        grant = workload.grant_of_pod_set(pod_set) if workload is not None else None
        if grant is None:
            return NO_PLACING
        return Placing.from_grant(grant, [self.flavors[name] for name in grant.flavors if name in self.flavors])


def wait_in_words(queues: Queues, namespace: str, queue: str, workload: WorkloadView | None) -> str:
    """Return why a job in a queue may have no pods, with the queue first and Kueue's own words; empty: it may."""
    if not queues.served:
        return f"queue {queue}: {NOT_SERVED}"
    if not queues.is_namespace_read(namespace):
        return f"queue {queue}: {UNREAD}"
    told = _wait_of_workload(queues, workload)
    return f"queue {workload.queue if workload is not None else queue}: {told}" if told else ""


def _wait_of_workload(queues: Queues, workload: WorkloadView | None) -> str:
    if workload is None:
        return UNANSWERED
    if workload.has_true_condition(EVICTED):
        return eviction_in_words(workload)
    if workload.queue_turn is QueueTurn.ADMITTED:
        unknown = queues.unknown_flavors(workload)
        return f"the ResourceFlavor {', '.join(unknown)} is not known" if unknown else ""
    reserved = workload.find_condition(QUOTA_RESERVED)
    if reserved is None:
        return UNANSWERED
    if reserved.status == "True":
        return f"quota is reserved; waiting for admission checks: {', '.join(workload.checks) or 'none is told yet'}"
    return reserved.message or reserved.reason


def eviction_in_words(workload: WorkloadView) -> str:
    """Return why Kueue takes a Workload's quota back, and what it says since that was given back."""
    evicted, reserved = workload.find_condition(EVICTED), workload.find_condition(QUOTA_RESERVED)
    if evicted is None:
        return ""
    told = f"evicted ({evicted.reason}): {evicted.message}"
    if reserved is not None and reserved.status == "False" and reserved.message not in {"", evicted.message}:
        told = f"{reserved.message} (it was evicted: {evicted.reason})"
    if not workload.active and evicted.reason.startswith(DEACTIVATED) and not workload.suspended:
        told += f"; to have it queued again: kubectl patch workload {workload.name} --type merge -p "
        told += '\'{"spec":{"active":true}}\''
    return told
