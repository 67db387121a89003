"""Holds the spare nodes of one job, and hands them over to rank pods (docs/decisions/0029-spare-nodes.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, islice
from math import inf
from typing import Final

from hajob.api import constants as names
from hajob.api.enums import GangPolicy, SpareMode
from hajob.backoff import Backoff
from hajob.capacity.spares import SpareTurn, spare_changes, successors_by_node
from hajob.job.ages import Ages
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import Create, Patch, Wants, deletion_of_pod, patch_of_pod
from hajob.plan.placements import Placement
from hajob.pods.naming import pod_group_name, spare_pod_name
from hajob.pods.spare_pod import build_spare_pod
from hajob.sources.creation import NotCreated, parse_refused_creation
from hajob.sources.pod import PodView

RETRY_SECONDS: Final = (5.0, 300.0)
"""Between two tries to make a spare's pod that the server refuses, or that ends: a spare is no hurry."""
PATIENCE_SECONDS: Final = 3.0
"""A scheduler that has said nothing of a pod for so long keeps no node for it: the spare goes without."""
STUCK_SECONDS: Final = 15.0
"""A pod that has not got its spare's node for so long does not get it any more: somebody else has it."""
LOOK_SECONDS: Final = 30.0
"""So often it is looked whether a spare that waits keeps away from a node that could take it by now: no event tells a
job of nodes on which it has no pod."""


@dataclass(slots=True)
class SpareMemo:
    """What is remembered of the spares of one job.

    Attributes:
        why_missing: why spares' pods are missing; None: none is, or it is not known yet.
        waiting: ages of the pods that wait for the node of a spare.
        backoff: between the pods of spares that end.
        next_at: before it no spare's pod is made, in seconds of the monotonic clock.
        ended: what ended spares are missing for, until all are ready.
        ended_uid: of the last pod that was counted.
    """

    why_missing: NotCreated | None = None
    waiting: Ages = field(default_factory=Ages)
    backoff: Backoff = field(default_factory=lambda: Backoff(*RETRY_SECONDS))
    next_at: float = -inf
    ended: NotCreated | None = None
    ended_uid: str = ""


def want_spares(snapshot: JobSnapshot, memo: SpareMemo) -> Wants:
    """Want as many spares as the spec sets; those whose nodes rank pods take over make room for them."""
    if not snapshot.pods_are_known:
        return Wants()
    wanted_number = snapshot.job.spec.scheduling.num_spare_nodes if snapshot.queue.has_spare_quota else 0
    pods, kept = snapshot.pods.pods, _kept_names(snapshot, wanted_number)
    numbers = _new_names(snapshot, wanted_number - len(kept))
    wanted = [*kept, *numbers]
    if not wanted and not any(pod.is_spare_pod or pod.place for pod in pods.values()):
        memo.why_missing = None
        return Wants()
    warm = snapshot.job.spec.scheduling.spare_mode is SpareMode.WARM
    nominates = snapshot.job.spec.scheduling.gang_policy is not GangPolicy.VOLCANO
    turn = spare_changes(snapshot.state, wanted, pods, snapshot.may_hold_spare, warm=warm, nominates=nominates)
    _note_ended(snapshot, turn, wanted, memo)
    creations = tuple(_spare_creations(snapshot, turn, numbers)) if snapshot.now >= memo.next_at else ()
    _note_missing(snapshot, wanted, creations, memo)
    impatient = _pods_waiting_too_long(snapshot, memo)
    waits_until = memo.next_at if turn.missing and memo.next_at > snapshot.now else inf
    keeps_away = any(pod.is_spare_pod and pod.unschedulable and pod.excluded for pod in pods.values())
    look_at = snapshot.now + LOOK_SECONDS if keeps_away else inf
    return Wants(
        changes=(
            *(_patch_to_nominate(pod) for pod in turn.nominate),
            *(deletion_of_pod(snapshot, pod) for pod in (*turn.surplus, *impatient)),
            *creations,
        ),
        again_at=min(waits_until, look_at, memo.waiting.next_limit_time(snapshot.now, PATIENCE_SECONDS, STUCK_SECONDS)),
    )


def patch_to_adopt(snapshot: JobSnapshot, placement: Placement) -> Patch | None:
    """Return the patch that turns a warm spare into the missing rank pod of its node; None: no spare is there."""
    pod = next((pod for pod in snapshot.ready_spares if pod.warm and pod.node_name == placement.place), None)
    if pod is None or not placement.place:
        return None
    labels = {
        names.LABEL_ROLE: names.ROLE_RANK,
        names.LABEL_NODE_RANK: str(placement.node_rank),
        names.LABEL_INCARNATION: str(placement.incarnation),
    }
    annotations = {names.ANNOTATION_RANK_INDEX: str(placement.node_rank)}
    if snapshot.job.spec.scheduling.gang_policy is GangPolicy.VOLCANO:
        annotations[names.ANNOTATION_GROUP_NAME] = pod_group_name(snapshot.job)
    body = {"metadata": {"labels": labels, "annotations": annotations}}
    return patch_of_pod(pod, body, follows_status=True, done=f"spare {pod.name} is node rank {placement.node_rank}")


def _kept_names(snapshot: JobSnapshot, wanted: int) -> list[str]:
    """Return the names of the spares' pods that exist, as many as are wanted.

    They come before any new name, however low its number: another pod's end would otherwise cost a spare, and perhaps
    the very one that is about to become a rank pod. Those that end come last, and one that only somebody's finalizer
    keeps is none.
    """
    found = [pod for pod in snapshot.pods.pods.values() if pod.is_spare_pod and not pod.left_over]
    found.sort(key=lambda pod: (pod.deleting or pod.has_ended, pod.name))
    return [pod.name for pod in found[:wanted]]


def _new_names(snapshot: JobSnapshot, missing: int) -> dict[str, int]:
    """Return name and number of each spare that is yet to be made; no pod has such a name, former spares included."""
    numbered = ((spare_pod_name(snapshot.job, number), number) for number in count())
    return dict(islice(((name, number) for name, number in numbered if name not in snapshot.pods.pods), missing))


def _note_ended(snapshot: JobSnapshot, turn: SpareTurn, wanted: Collection[str], memo: SpareMemo) -> None:
    """Delay the next spare, longer each time, where one has ended by itself."""
    failed = next((pod for pod in turn.surplus if pod.has_ended and pod.name in wanted), None)
    if failed is not None and failed.uid != memo.ended_uid:
        memo.ended_uid, memo.next_at = failed.uid, snapshot.now + memo.backoff.next_delay()
        memo.ended = NotCreated(f"pod {failed.name} has ended: {failed.trouble or failed.phase}", code="Ended")


def _spare_creations(snapshot: JobSnapshot, turn: SpareTurn, numbers: Mapping[str, int]) -> Iterator[Create]:
    for name in turn.missing:
        yield Create(
            resource="pods",
            namespace=snapshot.job.metadata.namespace,
            name=name,
            body=build_spare_pod(
                snapshot.queue.job_of_spares, numbers[name], snapshot.settings, snapshot.nodes_not_to_hold
            ),
            retry_seconds=RETRY_SECONDS,
        )


def _note_missing(
    snapshot: JobSnapshot, wanted: Collection[str], creations: tuple[Create, ...], memo: SpareMemo
) -> None:
    """Note why spares are missing: the server's refusal, or that they end."""
    if len(snapshot.ready_spares) == len(wanted):
        memo.ended, memo.why_missing = None, None
        memo.backoff.reset_delay()
        return
    refusals = (snapshot.answers.refusals.get(each.key) for each in creations)
    refused = next(
        (parse_refused_creation(one.status, one.reason, one.message) for one in refusals if one is not None), None
    )
    memo.why_missing = refused or memo.ended


def _patch_to_nominate(pod: PodView) -> Patch:
    """Return the patch that has the scheduler keep the spare's node for this pod."""
    return patch_of_pod(pod, {"status": {"nominatedNodeName": pod.place}}, subresource="status")


def _pods_waiting_too_long(snapshot: JobSnapshot, memo: SpareMemo) -> list[PodView]:
    """Return spares that the scheduler has ignored for too long, and pods that did not get a spare's node."""
    pods = snapshot.pods.pods
    waiting = {name: pod for name, pod in successors_by_node(pods).items() if not pod.is_gated}
    ages = memo.waiting.update_ages((pod.uid for pod in waiting.values()), snapshot.now)
    late = {name for name, pod in waiting.items() if ages[pod.uid] >= PATIENCE_SECONDS}
    stuck = [pod for pod in waiting.values() if pod.unschedulable and ages[pod.uid] >= STUCK_SECONDS]
    return [*stuck, *(pod for pod in pods.values() if pod.is_spare_pod and pod.node_name in late and not pod.deleting)]
