"""The start of one job under `gangPolicy: SchedulingGates`: its rank pods are ungated when there are nodes for all.

Until then they are gated and hold no node. Where there are enough nodes from the beginning, they are created without
a gate, which saves a start the second write for each pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json, format_time
from hajob.api.derived import nodes_per_block
from hajob.api.enums import GangPolicy
from hajob.capacity.gang import Claim
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import Patch, Wants, patch_of_pod
from hajob.plan.placements import WITHOUT_RANK_PODS
from hajob.plan.state import ENDED
from hajob.plan.waits import nodes_to_return
from hajob.sources.pod import PodView

AGAIN_SECONDS: Final = 5.0
"""Who waits looks again after so long, for what is told to nobody."""
SOON_SECONDS: Final = 0.1
"""Changes of the cluster are looked at together."""


@dataclass(slots=True)
class GangMemo:
    """What is remembered of the starts of one job; `let_in`: incarnation of the last start that was let in."""

    let_in: int = 0


def want_gang_start(snapshot: JobSnapshot, memo: GangMemo) -> Wants:
    """Want the gates of the rank pods removed once there are nodes for all of them; until then, to look again."""
    if not snapshot.pods_are_known:
        return Wants()
    if is_held_back(snapshot, memo):
        return Wants(again_at=snapshot.now + AGAIN_SECONDS)
    gated = [pod for pod in snapshot.serving_pods.values() if pod.is_gated and not pod.deleting]
    return Wants(changes=tuple(_patch_to_ungate(snapshot, pod) for pod in gated))


def is_held_back(snapshot: JobSnapshot, memo: GangMemo) -> bool:
    """Return whether rank pods that are made now get the gate."""
    if not _is_whole_gang_gated(snapshot, memo):
        return False
    if not snapshot.may_start:
        return True
    memo.let_in = snapshot.state.base
    return False


def claim_of_job(snapshot: JobSnapshot, memo: GangMemo) -> Claim | None:
    """Return the nodes that the job still needs; None for none."""
    state, job = snapshot.state, snapshot.job
    if state.phase in WITHOUT_RANK_PODS or state.phase in ENDED:
        return None
    serving, waits, made = (
        snapshot.pods.serving_pods(state),
        _is_whole_gang_gated(snapshot, memo),
        job.metadata.creation_timestamp,
    )
    returning = nodes_to_return(state, snapshot.policy, snapshot.now_ms)
    like = next(iter(serving.pods.values()), None)  # the server has resolved its priority class
    wanted = snapshot.layout.num_nodes - len(state.released)
    if snapshot.creation.why_missing is not None and not waits:
        wanted = len(serving.pods)  # pods that no quota allows take no node
    return Claim(
        job_uid=job.metadata.uid,
        made=format_time(made) if made else "",
        demand=snapshot.demand,
        need=len(returning) or wanted - len(serving.node_names),
        waits=waits or bool(returning),
        own_nodes=snapshot.pods.node_names if waits or returning else (),
        grows=bool(returning),
        priority=like.priority if like is not None else 0,
        preempts=like is not None and like.preempts,
        ask=snapshot.quota_use,
        nodes_per_block=nodes_per_block(job.spec),
    )


def _is_whole_gang_gated(snapshot: JobSnapshot, memo: GangMemo) -> bool:
    """Whether all of this start's pods are gated; an ungated one means that the start was let in before."""
    state = snapshot.state
    gates = snapshot.job.spec.scheduling.gang_policy is GangPolicy.SCHEDULING_GATES
    if not gates or not state.is_untrained or memo.let_in == state.base:
        return False
    serving = snapshot.pods.serving_pods(state)
    if len(serving.gated) < len(serving.pods):
        memo.let_in = state.base
        return False
    return True


def _patch_to_ungate(snapshot: JobSnapshot, pod: PodView) -> Patch:
    """Return the patch that removes Hajob's gate; refused where others have gone since, until a newer pod is seen.

    A pod of a block is held to its super pod with it: as long as a pod is gated, its node selector may be narrowed.
    """
    path = f"/spec/schedulingGates/{pod.gate}"
    ungate: list[Json] = [{"op": "test", "path": f"{path}/name", "value": names.GATE}, {"op": "remove", "path": path}]
    return patch_of_pod(pod, [*ungate, *_narrowing(snapshot, pod)], settled_by=frozenset({404}), follows_status=True)


def _narrowing(snapshot: JobSnapshot, pod: PodView) -> list[Json]:
    """Return what holds a pod to the super pod of its block; nothing of a job without blocks."""
    super_pod = snapshot.super_pod_for(pod.node_rank)
    if not super_pod:
        return []
    selector = snapshot.job_as_started.spec.template["spec"].get("nodeSelector")
    label, block = names.LABEL_NODE_SUPER_POD, pod.node_rank // nodes_per_block(snapshot.job.spec)
    held: Json = {"op": "add", "path": "/spec/nodeSelector", "value": {label: super_pod}}
    if selector:
        held = {"op": "add", "path": f"/spec/nodeSelector/{label.replace('/', '~1')}", "value": super_pod}
    told = {names.ANNOTATION_SUPER_POD: super_pod, names.ANNOTATION_SUPER_POD_RANK: str(block)}
    return [
        held,
        *({"op": "add", "path": f"/metadata/annotations/{key}", "value": value} for key, value in told.items()),
    ]
