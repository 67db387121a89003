"""What Kueue does next with the Workloads of a cluster: a pure function from what is stored to what is written.

As seen of the real manager 0.19.2: what hurts an owner of Workloads is all done here (its page: kueue-stand-in.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from e2e.kueue.preemption import Preemption
from e2e.kueue.quota import Assigner, Usage
from e2e.kueue.topology import find_lost_nodes, replace_nodes
from e2e.kueue.world import (
    JOB_UID,
    Configuration,
    Object,
    StatusWrite,
    World,
    cluster_queue_of,
    find_condition,
    holds,
    is_active,
    key_of_workload,
    local_queue_of,
    priority_of_workload,
    stop_policy_of,
    timestamp,
)

REQUEUED_BY_KUEUE: Final = frozenset(
    {"ClusterQueueStopped", "LocalQueueStopped", "Deactivated", "PodsReadyTimeout", "AdmissionCheck"}
)
"""Reasons with which a Requeued=False is turned back; with any other one a Workload waits for ever."""
_LOOK_SECONDS: Final = 0.2


def next_writes(world: World, configuration: Configuration, now: datetime) -> Iterator[StatusWrite]:
    """Yield what is to be written now; each Workload at most once."""
    told: set[tuple[str, str]] = set()
    for key, workload in sorted(world.workloads.items()):
        write = _own_write(world, workload, configuration, now)
        if write is not None:
            told.add(key)
            yield write
    usage = Usage.of_world(world)
    # Whoever needs nothing of the cohort comes before those who borrow, whatever their priorities.
    for workload in sorted(_queued(world, now), key=lambda one: _would_borrow(world, one, usage, configuration)):
        if key_of_workload(workload) in told:
            continue
        for write in _try_to_admit(world, workload, usage, configuration):
            if key_of_workload(write.workload) not in told:
                told.add(key_of_workload(write.workload))
                yield write


def seconds_to_look(world: World, configuration: Configuration) -> float | None:
    """Return after how long time alone may change something; None: it does not."""
    limits = (configuration.pods_ready_seconds, configuration.recovery_seconds, configuration.retention_seconds)
    waits = any(_requeue_at(one) or _time_of_retry(one) for one in world.workloads.values())
    return _LOOK_SECONDS if waits or (world.workloads and any(limit is not None for limit in limits)) else None


def _age(found: Object | None, now: datetime) -> float:
    if found is None:
        return 0.0
    return (now - datetime.fromisoformat(found["lastTransitionTime"])).total_seconds()


# ------------------------------------------------------------------------------- what concerns one Workload alone


def _own_write(world: World, workload: Object, configuration: Configuration, now: datetime) -> StatusWrite | None:
    metadata, status = workload["metadata"], workload.get("status") or {}
    if holds(workload, "Finished"):
        kept = configuration.retention_seconds
        late = kept is not None and _age(find_condition(workload, "Finished"), now) >= kept
        return StatusWrite(workload, deletes=True) if late else None
    if JOB_UID in (metadata.get("labels") or {}) and not metadata.get("ownerReferences"):
        return StatusWrite(workload, (("Finished", "True", "OwnerNotFound", "The job's owner was not found"),))
    requeue, retry = status.get("requeueState") or {}, _time_of_retry(workload)
    if retry > _requeue_at(workload):
        return StatusWrite(workload, fields={"requeueState": {**requeue, "requeueAt": retry}})
    if not is_active(workload):
        return _write_on_inactive(workload, now)
    if holds(workload, "DeactivationTarget"):
        return StatusWrite(workload, deactivates=True)
    if requeue_at := _requeue_at(workload):
        # Until then nothing else is done with it, an eviction neither.
        if requeue_at > timestamp(now):
            return None
        if not holds(workload, "QuotaReserved"):
            return StatusWrite(workload, fields={"requeueState": {**requeue, "requeueAt": None}})
    return _write_on_quota(world, workload, configuration, now)


def _write_on_quota(world: World, workload: Object, configuration: Configuration, now: datetime) -> StatusWrite | None:
    """What its queue, its checks and its pods do to one that is active."""
    status = workload.get("status") or {}
    if status.get("admission") is not None and not holds(workload, "QuotaReserved"):
        return StatusWrite(workload, clears=("admission",))
    queue = world.cluster_queues.get(cluster_queue_of(world, workload))
    if (checks := _checks_in_step(workload, queue, now)) is not None:
        return StatusWrite(workload, fields={"admissionChecks": checks})
    if not (holds(workload, "QuotaReserved") or holds(workload, "Admitted")) or holds(workload, "Evicted"):
        return None
    states = [one["state"] for one in status.get("admissionChecks") or []]
    if not holds(workload, "Admitted") and all(state == "Ready" for state in states):
        return StatusWrite(workload, (("Admitted", "True", "Admitted", "The workload is admitted"),))
    return (
        _write_on_checks(workload, now)
        or _write_on_stopped(world, workload, queue, now)
        or _write_on_lost_nodes(world, workload, now)
        or _write_on_late_pods(workload, configuration, now)
    )


def _write_on_inactive(workload: Object, now: datetime) -> StatusWrite | None:
    """A deactivation evicts, also where there is nothing to give back; what it was for is forgotten."""
    status, target = workload.get("status") or {}, find_condition(workload, "DeactivationTarget")
    if holds(workload, "Evicted"):
        return StatusWrite(workload, clears=("requeueState",)) if status.get("requeueState") else None
    reason, told = "Deactivated", "The workload is deactivated"
    if target is not None:
        reason, told = f"{reason}DueTo{target['reason']}", f"{told} due to {target['message']}"
    return _evicted(workload, reason, told, now, clears=("requeueState",), drops=("DeactivationTarget",))


def _time_of_retry(workload: Object) -> str:
    """Return when the last of its checks that are to be tried again lets it be queued; empty: none says."""
    found = [
        datetime.fromisoformat(one["lastTransitionTime"]) + timedelta(seconds=one["requeueAfterSeconds"])
        for one in (workload.get("status") or {}).get("admissionChecks") or []
        if one["state"] == "Retry" and one.get("requeueAfterSeconds")
    ]
    return timestamp(max(found)) if found else ""


def _requeue_at(workload: Object) -> str:
    return ((workload.get("status") or {}).get("requeueState") or {}).get("requeueAt") or ""


def _checks_in_step(workload: Object, queue: Object | None, now: datetime) -> list[Object] | None:
    """Return the states of the checks that its queue asks for now; None: they are that already."""
    asked = ((queue or {}).get("spec", {}).get("admissionChecksStrategy") or {}).get("admissionChecks") or []
    names = {one["name"] for one in asked}
    known = (workload.get("status") or {}).get("admissionChecks") or []
    if names == {one["name"] for one in known}:
        return None
    missing = sorted(names - {one["name"] for one in known})
    pending = {"state": "Pending", "message": "", "lastTransitionTime": timestamp(now)}
    return [*(one for one in known if one["name"] in names), *({"name": name, **pending} for name in missing)]


def _write_on_checks(workload: Object, now: datetime) -> StatusWrite | None:
    """A check that is lost after the admission takes it back; one that is pending again does not."""
    checks = (workload.get("status") or {}).get("admissionChecks") or []
    for state in ("Rejected", "Retry"):
        found = [one for one in checks if one["state"] == state]
        told = "; ".join(f'"{one["name"]}"' + (f" ({one['message']})" if one.get("message") else "") for one in found)
        told = f"AdmissionCheck{'s' if len(found) > 1 else ''} in {state} state: {told}"
        if found and state == "Rejected":
            return StatusWrite(workload, (("DeactivationTarget", "True", "AdmissionCheck", told),))
        if found:
            return _evicted(workload, "AdmissionCheck", f"Evicted due to {told}", now)
    return None


def _write_on_stopped(world: World, workload: Object, queue: Object | None, now: datetime) -> StatusWrite | None:
    """A drained queue evicts what is admitted; what is only reserved loses its quota without a word of eviction."""
    for kind, found in (("LocalQueue", local_queue_of(world, workload)), ("ClusterQueue", queue)):
        policy = stop_policy_of(found)
        if policy == "HoldAndDrain" and holds(workload, "Admitted"):
            return _evicted(workload, f"{kind}Stopped", f"The {kind} is stopped", now)
        if policy != "None" and not holds(workload, "Admitted") and found is not None:
            told = f"{kind} {found['metadata']['name']} is stopped"
            return StatusWrite(workload, (("QuotaReserved", "False", "Inadmissible", told),), clears=("admission",))
    return None


def _write_on_lost_nodes(world: World, workload: Object, now: datetime) -> StatusWrite | None:
    """A node of a topology that is lost is told, then replaced, whatever runs there; with no other one it evicts."""
    lost = find_lost_nodes(world, workload)
    told = [one["name"] for one in (workload.get("status") or {}).get("unhealthyNodes") or []]
    if lost != told:
        return StatusWrite(workload, fields={"unhealthyNodes": [{"name": name} for name in lost]})
    if not lost:
        return None
    admission = replace_nodes(world, workload, lost)
    if admission is not None:
        return StatusWrite(workload, admission=admission, clears=("unhealthyNodes",))
    return _evicted(workload, "NodeFailures", f"no replacement for unhealthy node(s): {', '.join(lost)}", now)


def _write_on_late_pods(workload: Object, configuration: Configuration, now: datetime) -> StatusWrite | None:
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
    count = ((workload.get("status") or {}).get("requeueState") or {}).get("count", 0) + 1
    if configuration.backoff_limit is not None and count > configuration.backoff_limit:
        told = "exceeding the maximum number of re-queuing retries"
        return StatusWrite(workload, (("DeactivationTarget", "True", "RequeuingLimitExceeded", told),))
    namespace, name = key_of_workload(workload)
    later = timestamp(now + timedelta(seconds=configuration.backoff_seconds))
    fields = {"requeueState": {"count": count, "requeueAt": later}}
    return _evicted(
        workload, "PodsReadyTimeout", f"Exceeded the PodsReady timeout {namespace}/{name}", now, fields=fields
    )


def _evicted(
    workload: Object,
    reason: str,
    message: str,
    now: datetime,
    *,
    fields: Object | None = None,
    clears: tuple[str, ...] = (),
    drops: tuple[str, ...] = (),
) -> StatusWrite:
    """QuotaReserved and Admitted stay True: the owner gives them back. What checks have added is gone at once."""
    more = dict(fields or {})
    checks = (workload.get("status") or {}).get("admissionChecks") or []
    if checks:
        more["admissionChecks"] = [one if one["state"] == "Pending" else _reset_check(one, now) for one in checks]
    conditions = (("Evicted", "True", reason, message or reason),)
    return StatusWrite(workload, conditions, fields=more, clears=(*clears, "unhealthyNodes"), drops=drops)


def _reset_check(check: Object, now: datetime) -> Object:
    told = f"Reset to Pending after eviction. Previously: {check['state']}"
    return {"name": check["name"], "state": "Pending", "message": told, "lastTransitionTime": timestamp(now)}


# ------------------------------------------------------------------------------------------------- queue and quota


def _queued(world: World, now: datetime) -> list[Object]:
    """Those that are waiting, higher priorities first, then the older ones."""
    waiting = [
        workload
        for workload in world.workloads.values()
        if is_active(workload)
        and not holds(workload, "Finished")
        and not holds(workload, "QuotaReserved")
        # Quota that was given back by QuotaReserved alone: Kueue takes the Workload for admitted, for ever.
        and not holds(workload, "Admitted")
        and _is_requeued(workload)
        and _requeue_at(workload) <= timestamp(now)
    ]
    return sorted(
        waiting,
        key=lambda one: (-priority_of_workload(one), one["metadata"]["creationTimestamp"], key_of_workload(one)),
    )


def _would_borrow(world: World, workload: Object, usage: Usage, configuration: Configuration) -> bool:
    queue = world.cluster_queues.get(cluster_queue_of(world, workload))
    if queue is None or not queue["spec"].get("cohortName"):
        return False
    assigner = Assigner(world, configuration, queue)
    found = assigner.assign_workload(workload, usage)
    return found.pod_sets is not None and not assigner.stays_within_own(workload, found.pod_sets, usage)


def _is_requeued(workload: Object) -> bool:
    found = find_condition(workload, "Requeued")
    return found is None or found["status"] == "True" or found["reason"] in REQUEUED_BY_KUEUE


def _try_to_admit(world: World, workload: Object, usage: Usage, configuration: Configuration) -> Iterator[StatusWrite]:
    name = cluster_queue_of(world, workload)
    if misplaced := _why_inadmissible(world, workload, name):
        yield from _waiting(workload, misplaced, "Inadmissible")
        return
    if configuration.blocks_admission and any(_keeps_others_out(one) for one in world.workloads.values()):
        yield from _waiting(workload, "waiting for all admitted workloads to be in PodsReady condition", "Waiting")
        return
    assigner = Assigner(world, configuration, world.cluster_queues[name])
    found = assigner.assign_workload(workload, usage)
    preemption = Preemption(world, assigner, usage, workload)
    if found.pod_sets is None and (victims := preemption.find_victims()):
        for victim in victims:
            if not holds(victim, "Evicted"):
                yield preemption.preempt_victim(victim)
        yield from _waiting(workload, f"{found.why}. Pending the preemption of {len(victims)} workload(s)")
        return
    if found.pod_sets is None:
        fewer = assigner.assign_fewer(workload, usage)
        if fewer.pod_sets is None:
            yield from _waiting(workload, fewer.why or found.why)
            return
        found = fewer
    write = _reserved(workload, name, found.pod_sets or [])
    usage.add_workload({**workload, "status": write.status_after(datetime.now(UTC))}, 1)
    yield write


def _reserved(workload: Object, queue: str, pod_sets: list[Object]) -> StatusWrite:
    """With checks the quota is reserved, and nothing is admitted before they are ready."""
    conditions = [("QuotaReserved", "True", "QuotaReserved", f"Quota reserved in ClusterQueue {queue}")]
    if not (workload.get("status") or {}).get("admissionChecks"):
        conditions.append(("Admitted", "True", "Admitted", "The workload is admitted"))
    for kind in ("Evicted", "Preempted"):
        before = find_condition(workload, kind)
        if before is not None and before["status"] == "True":
            conditions.append((kind, "False", "QuotaReserved", f"Previously: {before['message']}"))
    return StatusWrite(workload, tuple(conditions), {"clusterQueue": queue, "podSetAssignments": pod_sets})


def _keeps_others_out(workload: Object) -> bool:
    return holds(workload, "QuotaReserved") and not holds(workload, "Finished") and not holds(workload, "PodsReady")


def _why_inadmissible(world: World, workload: Object, name: str) -> str:
    local = local_queue_of(world, workload)
    if local is None:
        return f"LocalQueue {workload['spec'].get('queueName', '')} doesn't exist"
    if stop_policy_of(local) != "None":
        return f"LocalQueue {workload['spec']['queueName']} is inactive"
    queue = world.cluster_queues.get(name)
    if queue is None:
        return f"ClusterQueue {name} doesn't exist"
    asked = (queue["spec"].get("admissionChecksStrategy") or {}).get("admissionChecks") or []
    ready = all(holds(world.checks.get(one["name"]) or {}, "Active") for one in asked)
    return f"ClusterQueue {name} is inactive" if stop_policy_of(queue) != "None" or not ready else ""


def _waiting(workload: Object, message: str, reason: str = "Pending") -> Iterator[StatusWrite]:
    known = find_condition(workload, "QuotaReserved")
    if known is None or (known["reason"], known["message"]) != (reason, message):
        yield StatusWrite(workload, (("QuotaReserved", "False", reason, message),))
