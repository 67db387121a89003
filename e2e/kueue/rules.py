"""What Kueue does next with the Workloads of a cluster: a pure function from what is stored to what is written.

As seen of the real manager 0.19.2: what hurts an owner of Workloads is all done here (README.md has the list).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from e2e.kueue.requests import requests_of_pod, thousandths

Object = dict[str, Any]
JOB_UID: Final = "kueue.x-k8s.io/job-uid"
REQUEUED_BY_KUEUE: Final = frozenset(
    {"ClusterQueueStopped", "LocalQueueStopped", "Deactivated", "PodsReadyTimeout", "AdmissionCheck"}
)
"""Reasons with which a Requeued=False is turned back; with any other one a Workload waits for ever."""


@dataclass(frozen=True)
class Configuration:
    """The manager's configuration, as far as a test changes it.

    Attributes:
        excluded_prefixes: of resources that are not counted.
        pods_ready_seconds: waitForPodsReady.timeout; None: it is off.
        recovery_seconds: waitForPodsReady.recoveryTimeout.
        retention_seconds: objectRetentionPolicies.workloads.afterFinished; None: they are kept.
        knows_jobs: HATrainingJobs are among the externalFrameworks.
    """

    excluded_prefixes: tuple[str, ...] = ("cpu", "memory", "ephemeral-storage")
    pods_ready_seconds: float | None = None
    recovery_seconds: float | None = None
    retention_seconds: float | None = None
    knows_jobs: bool = False


@dataclass
class World:
    """What is stored: objects by name, Workloads by namespace and name."""

    workloads: dict[tuple[str, str], Object] = field(default_factory=dict)
    local_queues: dict[tuple[str, str], Object] = field(default_factory=dict)
    cluster_queues: dict[str, Object] = field(default_factory=dict)
    flavors: dict[str, Object] = field(default_factory=dict)
    classes: dict[str, Object] = field(default_factory=dict)


@dataclass(frozen=True)
class StatusWrite:
    """One write of a Workload's status.

    Attributes:
        workload: the whole object as it was read; a write on another version is made anew.
        conditions: that are set, each as type, status, reason and message.
        admission: what is granted; None: it stays.
        clears: fields of the status that are removed.
        deactivates: `spec.active` is turned off as well.
        deletes: the Workload is deleted instead.
    """

    workload: Object
    conditions: tuple[tuple[str, str, str, str], ...] = ()
    admission: Object | None = None
    clears: tuple[str, ...] = ()
    deactivates: bool = False
    deletes: bool = False

    def status_after(self, now: datetime) -> Object:
        """Return the status with this in it."""
        status = dict(self.workload.get("status") or {})
        known = {one["type"]: one for one in status.get("conditions") or []}
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
        return status | dict.fromkeys(self.clears)


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


def next_writes(world: World, configuration: Configuration, now: datetime) -> Iterator[StatusWrite]:
    """Yield what is to be written now; each Workload at most once."""
    told: set[tuple[str, str]] = set()
    for key, workload in sorted(world.workloads.items()):
        write = _own_write(world, workload, configuration, now)
        if write is not None:
            told.add(key)
            yield write
    usage = {name: _usage_of_queue(world, name) for name in world.cluster_queues}
    for workload in _queued(world):
        key = _key(workload)
        if key in told:
            continue
        for write in _try_to_admit(world, workload, usage, configuration):
            if _key(write.workload) not in told:
                told.add(_key(write.workload))
                yield write


def seconds_to_look(world: World, configuration: Configuration) -> float | None:
    """Return after how long time alone may change something; None: it does not."""
    limits = (configuration.pods_ready_seconds, configuration.recovery_seconds, configuration.retention_seconds)
    return 0.2 if world.workloads and any(limit is not None for limit in limits) else None


def _key(workload: Object) -> tuple[str, str]:
    return workload["metadata"]["namespace"], workload["metadata"]["name"]


def _age(found: Object | None, now: datetime) -> float:
    if found is None:
        return 0.0
    return (now - datetime.fromisoformat(found["lastTransitionTime"])).total_seconds()


# ------------------------------------------------------------------------------- what concerns one Workload alone


def _own_write(world: World, workload: Object, configuration: Configuration, now: datetime) -> StatusWrite | None:
    metadata, active = workload["metadata"], (workload.get("spec") or {}).get("active") is not False
    if holds(workload, "Finished"):
        kept = configuration.retention_seconds
        late = kept is not None and _age(find_condition(workload, "Finished"), now) >= kept
        return StatusWrite(workload, deletes=True) if late else None
    if JOB_UID in (metadata.get("labels") or {}) and not metadata.get("ownerReferences"):
        return StatusWrite(workload, (("Finished", "True", "OwnerNotFound", "The job's owner was not found"),))
    target = find_condition(workload, "DeactivationTarget")
    if target is not None and target["status"] == "True" and active and not holds(workload, "Evicted"):
        return _evicted(workload, f"DeactivatedDueTo{target['reason']}", target["message"], deactivates=True)
    if not active and not holds(workload, "Evicted"):
        return _evicted(workload, "Deactivated", "The workload is deactivated")
    admission = (workload.get("status") or {}).get("admission")
    if admission is not None and not holds(workload, "QuotaReserved") and active:
        return StatusWrite(workload, clears=("admission",))
    if not (holds(workload, "QuotaReserved") or holds(workload, "Admitted")) or holds(workload, "Evicted"):
        return None
    if holds(workload, "QuotaReserved") and not holds(workload, "Admitted"):
        return StatusWrite(workload, (("Admitted", "True", "Admitted", "The workload is admitted"),))
    queue = world.cluster_queues.get(_cluster_queue_of(world, workload))
    if queue is not None and queue["spec"].get("stopPolicy") == "HoldAndDrain":
        return _evicted(workload, "ClusterQueueStopped", "The ClusterQueue is stopped")
    return _late_pods(workload, configuration, now)


def _late_pods(workload: Object, configuration: Configuration, now: datetime) -> StatusWrite | None:
    """An old PodsReady counts: its time is that of its last change, whichever admission it was of."""
    if configuration.pods_ready_seconds is None or holds(workload, "PodsReady"):
        return None
    ready = find_condition(workload, "PodsReady")
    reason = ready["reason"] if ready is not None else "WaitForStart"
    limit, since = None, None
    if reason == "WaitForRecovery":
        limit, since = configuration.recovery_seconds, ready
    elif reason == "WaitForStart":
        limit, since = configuration.pods_ready_seconds, find_condition(workload, "Admitted")
    if limit is None or _age(since, now) < limit:
        return None
    namespace, name = _key(workload)
    return _evicted(workload, "PodsReadyTimeout", f"Exceeded the PodsReady timeout {namespace}/{name}")


def _evicted(workload: Object, reason: str, message: str, *, deactivates: bool = False) -> StatusWrite:
    """QuotaReserved and Admitted stay True: the owner gives them back."""
    return StatusWrite(workload, (("Evicted", "True", reason, message or reason),), deactivates=deactivates)


# ------------------------------------------------------------------------------------------------- queue and quota


def _queued(world: World) -> list[Object]:
    """Those that are waiting, higher priorities first, then the older ones."""
    waiting = [
        workload
        for workload in world.workloads.values()
        if (workload["spec"].get("active") is not False)
        and not holds(workload, "Finished")
        and not holds(workload, "QuotaReserved")
        # Quota that was given back by QuotaReserved alone: Kueue takes the Workload for admitted, for ever.
        and not holds(workload, "Admitted")
        and _is_requeued(workload)
    ]
    return sorted(waiting, key=lambda one: (-_priority(one), one["metadata"]["creationTimestamp"], _key(one)))


def _is_requeued(workload: Object) -> bool:
    found = find_condition(workload, "Requeued")
    return found is None or found["status"] == "True" or found["reason"] in REQUEUED_BY_KUEUE


def _priority(workload: Object) -> int:
    return int(workload["spec"].get("priority") or 0)


def _cluster_queue_of(world: World, workload: Object) -> str:
    found = world.local_queues.get((workload["metadata"]["namespace"], workload["spec"].get("queueName", "")))
    return str(found["spec"]["clusterQueue"]) if found is not None else ""


Use = Counter[tuple[str, str]]
"""Flavor and resource to thousandths."""


def _usage_of_queue(world: World, name: str) -> Use:
    used = Use()
    for workload in world.workloads.values():
        if holds(workload, "QuotaReserved") and not holds(workload, "Finished"):
            admission = (workload.get("status") or {}).get("admission") or {}
            if admission.get("clusterQueue") == name:
                used += _usage_of_workload(workload)
    return used


def _usage_of_workload(workload: Object) -> Use:
    status = workload.get("status") or {}
    given = (status.get("admission") or {}).get("podSetAssignments") or []
    less = {one["name"]: one["count"] for one in status.get("reclaimablePods") or []}
    counts = {one["name"]: one["count"] for one in workload["spec"]["podSets"]}
    used = Use()
    for one in given:
        # A count that the owner has lowered since gives quota back at once.
        left = max(min(one["count"], counts.get(one["name"], 0)) - less.get(one["name"], 0), 0)
        for resource, flavor in (one.get("flavors") or {}).items():
            amount = thousandths(one["resourceUsage"][resource]) // max(one["count"], 1)
            used[flavor, resource] += amount * left
    return used


def _try_to_admit(
    world: World, workload: Object, usage: dict[str, Use], configuration: Configuration
) -> Iterator[StatusWrite]:
    name = _cluster_queue_of(world, workload)
    if misplaced := _why_inadmissible(world, workload, name):
        yield from _waiting(workload, misplaced, "Inadmissible")
        return
    queue = world.cluster_queues[name]
    assignment, why = _assign(world, workload, queue, usage[name], configuration)
    if assignment is None and (victims := _victims(world, workload, queue, usage[name], configuration)):
        for victim in victims:
            if not holds(victim, "Evicted"):
                yield _preempted(victim, workload)
        yield from _waiting(workload, f"{why}. Pending the preemption of {len(victims)} workload(s)")
        return
    if assignment is None:
        assignment, fewer = _assign_fewer(world, workload, queue, usage[name], configuration)
        if assignment is None:
            yield from _waiting(workload, fewer or why)
            return
    admission = {"clusterQueue": name, "podSetAssignments": assignment}
    granted = {**workload, "status": {**(workload.get("status") or {}), "admission": admission}}
    usage[name] += _usage_of_workload(granted)
    conditions = [
        ("QuotaReserved", "True", "QuotaReserved", f"Quota reserved in ClusterQueue {name}"),
        ("Admitted", "True", "Admitted", "The workload is admitted"),
    ]
    for kind in ("Evicted", "Preempted"):
        before = find_condition(workload, kind)
        if before is not None and before["status"] == "True":
            conditions.append((kind, "False", "QuotaReserved", f"Previously: {before['message']}"))
    yield StatusWrite(workload, tuple(conditions), admission)


def _why_inadmissible(world: World, workload: Object, name: str) -> str:
    if not name:
        return f"LocalQueue {workload['spec'].get('queueName', '')} doesn't exist"
    queue = world.cluster_queues.get(name)
    if queue is None:
        return f"ClusterQueue {name} doesn't exist"
    return f"ClusterQueue {name} is inactive" if queue["spec"].get("stopPolicy", "None") != "None" else ""


def _waiting(workload: Object, message: str, reason: str = "Pending") -> Iterator[StatusWrite]:
    known = find_condition(workload, "QuotaReserved")
    if known is None or (known["reason"], known["message"]) != (reason, message):
        yield StatusWrite(workload, (("QuotaReserved", "False", reason, message),))


def _preempted(victim: Object, preemptor: Object) -> StatusWrite:
    job = (preemptor["metadata"].get("labels") or {}).get(JOB_UID, "UNKNOWN")
    told = (
        f"Preempted to accommodate a workload (UID: {preemptor['metadata']['uid']}, JobUID: {job}) due to "
        "prioritization in the ClusterQueue"
    )
    return StatusWrite(victim, (("Evicted", "True", "Preempted", told), ("Preempted", "True", "InClusterQueue", told)))


def _victims(world: World, workload: Object, queue: Object, used: Use, configuration: Configuration) -> list[Object]:
    """Those of a lower priority whose quota would do: what is asked back already first, then the lowest and newest."""
    if (queue["spec"].get("preemption") or {}).get("withinClusterQueue", "Never") == "Never":
        return []
    name = queue["metadata"]["name"]
    lower = [
        one
        for one in world.workloads.values()
        if holds(one, "QuotaReserved")
        and not holds(one, "Finished")
        and ((one.get("status") or {}).get("admission") or {}).get("clusterQueue") == name
        and _priority(one) < _priority(workload)
    ]
    lower.sort(key=lambda one: one["metadata"]["creationTimestamp"], reverse=True)
    lower.sort(key=lambda one: (not holds(one, "Evicted"), _priority(one)))
    left, chosen = Use(used), list[Object]()
    for victim in lower:
        chosen.append(victim)
        left.subtract(_usage_of_workload(victim))
        if _assign(world, workload, queue, left, configuration)[0] is not None:
            return chosen
    return []


def _assign_fewer(
    world: World, workload: Object, queue: Object, used: Use, configuration: Configuration
) -> tuple[list[Object] | None, str]:
    """Partial admission: the pod set with minCount gets what there is."""
    flexible = next((one for one in workload["spec"]["podSets"] if "minCount" in one), None)
    if flexible is None:
        return None, ""
    why = ""
    for count in range(flexible["count"] - 1, flexible["minCount"] - 1, -1):
        pod_sets = [{**one, "count": count} if one is flexible else one for one in workload["spec"]["podSets"]]
        fewer = {**workload, "spec": {**workload["spec"], "podSets": pod_sets}}
        assignment, why = _assign(world, fewer, queue, used, configuration)
        if assignment is not None:
            return assignment, ""
    return None, why


def _assign(
    world: World, workload: Object, queue: Object, used: Use, configuration: Configuration
) -> tuple[list[Object] | None, str]:
    """A flavor for each resource of each pod set; None and why not."""
    taken, made = Use(used), list[Object]()
    less = {one["name"]: one["count"] for one in (workload.get("status") or {}).get("reclaimablePods") or []}
    for pod_set in workload["spec"]["podSets"]:
        # What was reclaimed before an eviction is still left out: the next admission is that much smaller.
        count = max(pod_set["count"] - less.get(pod_set["name"], 0), 0)
        one_pod = requests_of_pod(pod_set["template"]["spec"])
        asked = {
            name: amount * count
            for name, amount in one_pod.items()
            if not name.startswith(configuration.excluded_prefixes)
        }
        given: Object = {"name": pod_set["name"], "count": count}
        unassigned = f"couldn't assign flavors to pod set {pod_set['name']}"
        for group in _groups(queue, asked):
            if isinstance(group, str):
                return None, f"{unassigned}: resource {group} unavailable in ClusterQueue"
            names, flavors = group
            flavor, why = _first_flavor(world, pod_set, flavors, {name: asked[name] for name in names}, taken)
            if not flavor:
                return None, f"{unassigned}: {why}"
            for name in names:
                given.setdefault("flavors", {})[name] = flavor
                given.setdefault("resourceUsage", {})[name] = f"{asked[name]}m"
                taken[flavor, name] += asked[name]
        made.append(given)
    return made, ""


def _groups(queue: Object, asked: Mapping[str, int]) -> Iterator[tuple[list[str], list[Object]] | str]:
    groups = queue["spec"].get("resourceGroups") or []
    covered = {name for group in groups for name in group["coveredResources"]}
    for name in asked:
        if name not in covered:
            yield name
    for group in groups:
        names = [name for name in asked if name in group["coveredResources"]]
        if names:
            yield names, group["flavors"]


def _first_flavor(
    world: World, pod_set: Object, flavors: Sequence[Object], asked: Mapping[str, int], taken: Use
) -> tuple[str, str]:
    reasons = []
    for quota in flavors:
        name = quota["name"]
        known = (world.flavors.get(name) or {}).get("spec")
        if known is None:
            reasons.append(f"flavor {name} not found")
            continue
        if why := _why_unfit(pod_set["template"]["spec"], known, name):
            reasons.append(why)
            continue
        short = ""
        for resource, amount in asked.items():
            limit = next((thousandths(one["nominalQuota"]) for one in quota["resources"] if one["name"] == resource), 0)
            over = taken[name, resource] + amount - limit
            if amount > limit:
                short = (
                    f"insufficient quota for {resource} in flavor {name}, previously considered podsets requests (0) + "
                    f"current podset request ({amount // 1000}) > maximum capacity ({limit // 1000})"
                )
            elif over > 0:
                short = f"insufficient unused quota for {resource} in flavor {name}, {over // 1000} more needed"
        if not short:
            return name, ""
        reasons.append(short)
    return "", ", ".join(reasons)


def _why_unfit(pod: Mapping[str, Any], flavor: Mapping[str, Any], name: str) -> str:
    """Only the keys of the flavor's own node labels count of a selector."""
    labels, selector = flavor.get("nodeLabels") or {}, pod.get("nodeSelector") or {}
    if any(key in labels and labels[key] != value for key, value in selector.items()):
        return f"flavor {name} doesn't match node affinity"
    for taint in flavor.get("nodeTaints") or []:
        if not any(one.get("key") == taint["key"] for one in pod.get("tolerations") or []):
            return f"untolerated taint {{{taint['key']}}} in flavor {name}"
    return ""
