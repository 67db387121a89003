"""Planned pauses: asks for them, makes the pods of their work, reads how these end, quarantines bad nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from hajob.api import constants as names
from hajob.api.base import Json, format_time
from hajob.api.quarantine import BY_HAND, QuarantineState
from hajob.faults.node_quarantine import node_quarantine
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import Create, Wants, deletion_of_pod
from hajob.pods.hook_pod import build_hook_pod
from hajob.sources import pause
from hajob.sources.pod import PodView


@dataclass(slots=True)
class PauseMemo:
    """What is remembered of the pauses of one job.

    Attributes:
        refused: why no pod of the open pause's work can be made; empty: they can.
        isolated: UIDs of pods whose nodes are, or were, in quarantine since: it is an admin's by then.
    """

    refused: str = ""
    isolated: frozenset[str] = frozenset()


def want_pauses(snapshot: JobSnapshot, memo: PauseMemo) -> Wants:
    """Want the pods of an open pause, none of a closed one but those that have ended, for their logs."""
    if not snapshot.pods_are_known:
        return Wants()
    pods, is_open = _hook_pods_by_rank(snapshot), snapshot.state.holds_still
    hooks = _works_of_taskd(snapshot) or pods
    creations = tuple(_hook_creations(snapshot, pods)) if is_open else ()
    memo.refused = (memo.refused or _why_work_refused(snapshot, creations)) if is_open else ""
    return Wants(
        changes=(
            *_wanted_quarantines(snapshot, memo, hooks),
            *(deletion_of_pod(snapshot, pod) for pod in _surplus_hook_pods(snapshot)),
            *(creations if not memo.refused else ()),
        ),
        events=tuple(
            pause.events_of_pause(
                snapshot.state,
                snapshot.job.spec,
                snapshot.serving_pods,
                hooks,
                memo.refused if is_open else snapshot.answers.pause[1],
                restart_asked=snapshot.restart_asked,
                now_ms=snapshot.now_ms,
            )
        )
        if is_open or _is_pause_answered(snapshot)
        else (),
    )


def _works_of_taskd(snapshot: JobSnapshot) -> dict[int, PodView | pause.TaskdWork]:
    """Return what TaskD did on each node for the requested pause; none where it does no work, or has not told yet."""
    asked = snapshot.job.spec.pause
    if asked is None or not asked.is_work_of_taskd:
        return {}
    told, chips = snapshot.coordinator.now.state.pause_result, snapshot.layout.chips_per_node
    return dict(pause.works_of_taskd(asked, told, chips))


def _is_pause_answered(snapshot: JobSnapshot) -> bool:
    """Whether the server was asked about the requested pause: no training is held for work that cannot be made."""
    request = pause.identity_of_request(snapshot.job.spec.pause)
    return bool(request) and snapshot.answers.pause[0] == request


def _incarnation_of_pause(snapshot: JobSnapshot) -> int:
    incident = snapshot.state.incident
    return incident.incarnation if incident is not None else 0


def _hook_pods_by_rank(snapshot: JobSnapshot) -> dict[int, PodView | pause.TaskdWork]:
    """Return the pods of the newest pause by node rank."""
    hooks = [pod for pod in snapshot.pods.all_pods() if pod.is_hook_pod]
    newest = max((pod.incarnation for pod in hooks), default=0)
    if snapshot.state.holds_still and newest < _incarnation_of_pause(snapshot):
        return {}
    return {pod.node_rank: pod for pod in hooks if pod.incarnation == newest}


def _surplus_hook_pods(snapshot: JobSnapshot) -> Iterator[PodView]:
    for pod in snapshot.pods.all_pods():
        is_old = pod.incarnation < _incarnation_of_pause(snapshot) if snapshot.state.holds_still else not pod.has_ended
        if pod.is_hook_pod and is_old and not pod.deleting:
            yield pod


def _hook_creations(snapshot: JobSnapshot, hooks: pause.Works) -> Iterator[Create]:
    job, asked = snapshot.job, snapshot.job.spec.pause
    if asked is None or asked.template is None:
        return
    for rank, node in pause.nodes_of_work(asked, snapshot.serving_pods).items():
        if rank not in hooks:
            body = build_hook_pod(job, rank, node, _incarnation_of_pause(snapshot))
            name = body["metadata"]["name"]
            yield Create(resource="pods", namespace=job.metadata.namespace, name=name, body=body)


def _why_work_refused(snapshot: JobSnapshot, creations: tuple[Create, ...]) -> str:
    for each in creations:
        # What may pass is tried again: the pause has its time, and the request could not be made twice.
        if (error := snapshot.answers.refusals.get(each.key)) is not None and not error.may_pass:
            return f"no pod of the work is made on {each.body['spec']['nodeName']}: {error.message}"
    return ""


def _wanted_quarantines(snapshot: JobSnapshot, memo: PauseMemo, hooks: pause.Works) -> Iterator[Create]:
    """Yield quarantines of nodes that were found bad, while the pause handles them: later an admin decides.

    A node may have one that is over, or that an admin has ended before: the object stays as a memory of offences.
    """
    incident, kept_out = snapshot.state.incident, snapshot.cluster.marks.quarantined
    ids = incident.fact_ids if incident is not None else ()
    bad = [hook for hook in hooks.values() if pause.is_node_unfit(hook) and pause.id_of_bad_node(hook) in ids]
    memo.isolated = frozenset(hook.uid for hook in bad if hook.uid in memo.isolated or hook.node_name in kept_out)
    for hook in bad:
        if hook.uid not in memo.isolated:
            body = _build_quarantine(snapshot, hook)
            ended = {"faults": None, "expireTime": None, "releaseTime": None}
            anew = {"spec": {**ended, **body["spec"]}, "status": {"state": QuarantineState.ACTIVE.value}}
            name = body["metadata"]["name"]
            yield Create(resource=names.QUARANTINES, namespace="", name=name, body=body, if_there=anew)


def _build_quarantine(snapshot: JobSnapshot, hook: PodView | pause.TaskdWork) -> Json:
    node = snapshot.nodes.get(hook.node_name)
    spec = {
        "nodeName": hook.node_name,
        "source": BY_HAND,
        "reason": pause.CODE,
        "message": _message_of_quarantine(hook),
        "startTime": format_time(datetime.fromtimestamp(int(snapshot.wall_seconds), UTC)),
    }
    return node_quarantine(spec, node.uid if node else "")


def _message_of_quarantine(hook: PodView | pause.TaskdWork) -> str:
    if isinstance(hook, pause.TaskdWork):
        return f"TaskD's stress test in a planned pause ended with code {pause.NODE_IS_BAD}: {hook.trouble}"
    return f"pod {hook.namespace}/{hook.name} of a planned pause ended with exit code {pause.NODE_IS_BAD}"
