"""Asks Kueue for the quota of one job, and gives it back (docs/admin/schedulers.md).

A job with the label `kueue.x-k8s.io/queue-name` has a Workload for its ranks and its coordinator, and one for its
spares. Their pods are there only while they are admitted: `hajob.sources.observe` starts and stops the job, and
`want_pods` and `want_spares` make no pod before. Kueue takes quota back by a condition, and waits for the write that
gives it back. That write has to look as it does here: three that look like it are never queued again, or lie about
quota.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from hajob.api import constants as names
from hajob.api.base import Json, format_time
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import GONE, Change, Create, Delete, Patch, Wants
from hajob.plan.state import ENDED, WITHOUT_PODS, JobPhase
from hajob.pods.workload import (
    SPARES,
    build_spare_workload,
    build_workload,
    priority_of_spares,
    priority_reference,
)
from hajob.sources.pod import PodView
from hajob.sources.workload import (
    ADMITTED,
    DEACTIVATION,
    EVICTED,
    FINISHED,
    PODS_READY,
    QUOTA_RESERVED,
    REQUEUED,
    QueueCondition,
    QueuePriority,
    QueueTurn,
    WorkloadView,
)

RETRY_SECONDS: Final = (0.2, 5.0)
"""Other jobs wait for what is given back; a manager that is away refuses every write until it is back."""
STALE: Final = frozenset({404, 409})
"""The Workload is another one by now: the next look at it says what is to be written."""
UNSTARTED: Final = frozenset({JobPhase.NEW, JobPhase.SUSPENDED})
_MESSAGE_LIMIT: Final = 1024


@dataclass(slots=True)
class KueueMemo:
    """What is remembered of the Workloads of one job.

    Attributes:
        written: name of a Workload to its resourceVersion and the status that was wanted for it: the time in it stays.
    """

    written: dict[str, tuple[str, Patch]] = field(default_factory=dict)


def want_kueue(snapshot: JobSnapshot, memo: KueueMemo) -> Wants:
    """Want the Workloads of a queued job as the job is now: asked for, given back, or ended."""
    job, queues = snapshot.job, snapshot.cluster.queues
    known = [one for one in (snapshot.workload, snapshot.spare_workload) if one is not None]
    if (
        not snapshot.pods_are_known
        or not queues.is_namespace_read(job.metadata.namespace)
        or not (snapshot.queue.queue_name or known)
    ):
        return Wants()
    memo.written = {one.name: memo.written[one.name] for one in known if one.name in memo.written}
    changes = (*_changes_of_ranks(snapshot, memo), *_changes_of_spares(snapshot, memo))
    return Wants(changes=changes)


def _changes_of_ranks(snapshot: JobSnapshot, memo: KueueMemo) -> Iterator[Change]:
    workload, state, queue = snapshot.workload, snapshot.state, snapshot.queue
    has_ended = state.phase in ENDED
    if workload is None:
        if queue.queue_name and not has_ended and not snapshot.job.spec.suspend and queue.priority is not None:
            yield _creation_of_workload(snapshot, _wanted_ranks(snapshot))
        return
    # Without its label a job goes on with the quota that it has: taken away in the middle of a training, the Workload
    # would leave pods that nobody counts.
    is_left = not queue.queue_name and state.phase in UNSTARTED
    if not has_ended and (is_left or workload.has_true_condition(FINISHED)):
        yield _deletion_of_workload(workload)  # one that has ended stays so: a job that is started again asks anew
        return
    pods = [pod for pod in snapshot.pods.pods.values() if not pod.is_spare_pod and not pod.left_over]
    if has_ended:
        # Kueue gives the chips to others the moment it reads this; pods that stay for their logs hold none.
        if not workload.has_true_condition(FINISHED) and all(pod.has_ended for pod in pods):
            yield _patch_status(memo, workload, _finished_status(snapshot, workload))
        return
    if workload.owes_quota:
        if state.phase in WITHOUT_PODS and not pods:
            yield _patch_status(memo, workload, _returned_status(snapshot, workload))
    elif (
        workload.queue_turn is QueueTurn.ADMITTED
        and not workload.has_true_condition(PODS_READY)
        and _do_all_pods_run(snapshot)
    ):
        yield _patch_status(memo, workload, _ready_status(snapshot, workload))
    priority, suspended = queue.priority, snapshot.job.spec.suspend
    if queue.queue_name and priority is not None:
        anew = None if workload.has_quota else _wanted_ranks(snapshot)
        yield from _edit_of_workload(snapshot, workload, priority, anew, suspended=suspended)


def _changes_of_spares(snapshot: JobSnapshot, memo: KueueMemo) -> Iterator[Change]:
    """Yield the changes of the spares' Workload: it is asked for once the job trains, and taken alone."""
    workload, state, queue = snapshot.spare_workload, snapshot.state, snapshot.queue
    spares = [pod for pod in snapshot.pods.pods.values() if pod.is_spare_pod and not pod.left_over]
    # No start waits for spares: their quota is asked for once the ranks have all of theirs.
    wanted = queue.queue_name and snapshot.job.spec.scheduling.num_spare_nodes and state.phase not in WITHOUT_PODS
    if workload is None:
        trains = state.phase is JobPhase.RUNNING and queue.turn is QueueTurn.ADMITTED
        if wanted and trains and queue.priority is not None:
            yield _creation_of_workload(snapshot, _wanted_spares(snapshot))
    elif not wanted or workload.has_true_condition(FINISHED) or _has_other_count(snapshot, workload):
        if not spares:  # with the Workload its quota is gone
            yield _deletion_of_workload(workload)
    elif workload.owes_quota:
        if not spares:
            yield _patch_status(memo, workload, _returned_status(snapshot, workload))
    elif _are_spares_new(snapshot, workload, spares):
        yield _patch_status(memo, workload, _ready_status(snapshot, workload))
    elif (priority := queue.priority) is not None:
        anew = None if workload.has_quota else _wanted_spares(snapshot)
        yield from _edit_of_workload(snapshot, workload, priority_of_spares(priority), anew, suspended=False)


def _are_spares_new(snapshot: JobSnapshot, workload: WorkloadView, spares: Sequence[PodView]) -> bool:
    """Return whether all spares run for the first time since their admission, which Kueue was not told of yet."""
    running = [pod for pod in spares if pod.phase == "Running" and not pod.deleting]
    return (
        workload.queue_turn is QueueTurn.ADMITTED
        and not workload.has_true_condition(PODS_READY)
        and len(running) >= snapshot.job.spec.scheduling.num_spare_nodes
    )


def _has_other_count(snapshot: JobSnapshot, workload: WorkloadView) -> bool:
    """Return whether quota is reserved for another number of spares: that cannot be changed, only asked for anew."""
    granted = workload.grant_of_pod_set(SPARES)
    return granted is not None and granted.count != snapshot.job.spec.scheduling.num_spare_nodes


def _do_all_pods_run(snapshot: JobSnapshot) -> bool:
    """Return whether every pod of the attempt runs, its coordinator's among them."""
    coordinator, serving, state = snapshot.coordinator_pod, snapshot.serving_pods, snapshot.state
    return (
        len(serving) >= snapshot.layout.num_nodes - len(state.released)
        and coordinator is not None
        and all(pod.phase == "Running" for pod in (*serving.values(), coordinator))
    )


def _least_nodes(snapshot: JobSnapshot) -> int:
    """Return the fewest nodes with which the queue may admit the job; 0: only with all.

    The first start has all of them, whatever the spec says of later ones.
    """
    sizes = snapshot.policy.sizes
    return sizes.smallest if sizes is not None and snapshot.state.attempt else 0


def _wanted_ranks(snapshot: JobSnapshot) -> Json:
    assert snapshot.queue.priority is not None
    return build_workload(
        snapshot.job, snapshot.settings, snapshot.queue.queue_name, snapshot.queue.priority, _least_nodes(snapshot)
    )


def _wanted_spares(snapshot: JobSnapshot) -> Json:
    assert snapshot.queue.priority is not None
    return build_spare_workload(snapshot.job, snapshot.settings, snapshot.queue.queue_name, snapshot.queue.priority)


def _creation_of_workload(snapshot: JobSnapshot, body: Json) -> Create:
    metadata = body["metadata"]
    return Create(
        resource="workloads",
        namespace=metadata["namespace"],
        name=metadata["name"],
        body=body,
        retry_seconds=RETRY_SECONDS,
        done=f"Workload {metadata['name']} asks queue {snapshot.queue.queue_name} for quota",
    )


def _deletion_of_workload(workload: WorkloadView) -> Delete:
    return Delete(
        resource="workloads",
        namespace=workload.namespace,
        name=workload.name,
        uid=workload.uid,
        retry_seconds=RETRY_SECONDS,
        settled_by=GONE,
        follows_status=True,
        done=f"Workload {workload.name} is deleted",
    )


def _edit_of_workload(
    snapshot: JobSnapshot, workload: WorkloadView, priority: QueuePriority, anew: Json | None, *, suspended: bool
) -> Iterator[Patch]:
    """Yield the patch of what differs and may be changed now: all of it while no quota is reserved, else the priority.

    Args:
        snapshot: of the job.
        workload: as it is.
        priority: that it should have.
        anew: the Workload as it would be made now; None while quota is reserved for it.
        suspended: it is to be deactivated.
    """
    spec, annotations = Json(), Json()
    if (workload.priority_class, workload.priority) != (priority.name, priority.value):
        spec["priority"] = priority.value
        # The reference cannot be taken away while quota is reserved; another one may be put in its place.
        if priority.name or not workload.has_quota:
            spec["priorityClassRef"] = priority_reference(priority.name) if priority.name else None
    if anew is not None:
        digest = anew["metadata"]["annotations"][names.ANNOTATION_DIGEST]
        if (workload.queue, workload.digest) != (snapshot.queue.queue_name, digest):
            spec |= {"queueName": snapshot.queue.queue_name, "podSets": anew["spec"]["podSets"]}
            annotations[names.ANNOTATION_DIGEST] = digest
    # Kueue and admins deactivate Workloads, too: only what carries Hajob's own note is activated again.
    if suspended and workload.active and snapshot.state.phase in UNSTARTED:
        spec["active"], annotations[names.ANNOTATION_SUSPENDED] = False, "true"
    elif not suspended and workload.suspended:
        spec["active"], annotations[names.ANNOTATION_SUSPENDED] = True, None
    if spec:
        yield _patch_of_workload(workload, {"metadata": {"annotations": annotations}, "spec": spec})


def _patch_of_workload(workload: WorkloadView, body: Json) -> Patch:
    return Patch(
        resource="workloads",
        namespace=workload.namespace,
        name=workload.name,
        uid=workload.uid,
        body=body,
        retry_seconds=RETRY_SECONDS,
        settled_by=STALE,
    )


# ------------------------------------------------------------------------------------------------- its status


def _patch_status(memo: KueueMemo, workload: WorkloadView, status: Json) -> Patch:
    """Return the write of a status, the same one for as long as the Workload is the same.

    A merge patch replaces the list of conditions, so it holds all of them, and fails when another write came between.
    """
    version, known = memo.written.get(workload.name, ("", None))
    if known is None or version != workload.version:
        known = Patch(
            resource="workloads",
            namespace=workload.namespace,
            name=workload.name,
            uid=workload.uid,
            body={"metadata": {"resourceVersion": workload.version}, "status": status},
            subresource="status",
            retry_seconds=RETRY_SECONDS,
            settled_by=STALE,
            follows_status=True,
        )
        memo.written[workload.name] = workload.version, known
    return known


def _returned_status(snapshot: JobSnapshot, workload: WorkloadView) -> Json:
    """Return the status that gives quota back, after which Kueue queues the Workload again."""
    evicted = workload.find_condition(EVICTED)
    assert evicted is not None
    told = evicted.message[:_MESSAGE_LIMIT]
    conditions = _Conditions(snapshot, workload)
    conditions.put_condition(QUOTA_RESERVED, "False", "Pending", told)
    # Without it the quota is free, and Kueue takes the Workload for admitted: it is never queued again.
    conditions.put_condition(ADMITTED, "False", "NoReservation", "The workload has no reservation")
    # False is turned back by Kueue for some reasons only; True holds a Workload back for none.
    conditions.put_condition(REQUEUED, "True", evicted.reason, told)
    if workload.find_condition(PODS_READY) is not None:
        # What is left from before the eviction would have the next admission evicted again at once.
        conditions.put_condition(PODS_READY, "False", "WaitForStart", "The pods of the next admission are not there")
    conditions.drop_condition(DEACTIVATION)
    return {"conditions": conditions.to_json(), "admission": None, "reclaimablePods": None}


def _ready_status(snapshot: JobSnapshot, workload: WorkloadView) -> Json:
    """Return the status that says that every pod runs; without it Kueue may evict a job that waits for nothing."""
    conditions = _Conditions(snapshot, workload)
    conditions.put_condition(PODS_READY, "True", "PodsReady", "Every pod of the job runs")
    return {"conditions": conditions.to_json()}


def _finished_status(snapshot: JobSnapshot, workload: WorkloadView) -> Json:
    """Return the status of a Workload whose job has ended: its quota is free."""
    conditions = _Conditions(snapshot, workload)
    succeeded = snapshot.state.phase is JobPhase.COMPLETE
    told = "The training is complete" if succeeded else "The job has failed; its condition Failed says why"
    conditions.put_condition(FINISHED, "True", "Succeeded" if succeeded else "Failed", told)
    return {"conditions": conditions.to_json()}


class _Conditions:
    """All conditions of a Workload, some of them changed."""

    def __init__(self, snapshot: JobSnapshot, workload: WorkloadView) -> None:
        self._now = format_time(datetime.fromtimestamp(int(snapshot.wall_seconds), UTC))
        self._generation = workload.generation
        self._known = {one.type: one for one in workload.conditions}

    def put_condition(self, kind: str, status: str, reason: str, message: str) -> None:
        """Set a condition; its time changes with its status, or where a new wait begins under the same one."""
        known = self._known.get(kind)
        same = known is not None and (known.status, known.reason) == (status, reason)
        since = known.since if same and known is not None else self._now
        self._known[kind] = QueueCondition(kind, status, reason, message, since, self._generation)

    def drop_condition(self, kind: str) -> None:
        """Leave a condition out."""
        self._known.pop(kind, None)

    def to_json(self) -> list[Json]:
        """Return the list as the API has it."""
        return [_condition_as_json(one) for one in self._known.values()]


def _condition_as_json(one: QueueCondition) -> Json:
    whole: dict[str, Any] = {
        "type": one.type,
        "status": one.status,
        "reason": one.reason,
        "message": one.message,
        "lastTransitionTime": one.since,
    }
    return whole | ({"observedGeneration": one.generation} if one.generation else {})
