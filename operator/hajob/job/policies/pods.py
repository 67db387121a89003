"""The rank pods and the coordinator of one job: the missing ones are made, the surplus ones deleted.

A level, not a list of commands: it compares the desired pods with the cached ones, whoever changed either. A pod's name
carries its incarnation, so making it twice, or again after a crash, comes to the same.

What the API server refuses is asked for ever later (hajob.job.apply). So is a rank pod that its nodes refuse again and
again: each refused pod is replaced, elsewhere where that is possible, and where only such nodes are left, that would be
a loop that makes and deletes pods as fast as the API server allows.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from hajob.api import constants as names
from hajob.api.job import HATrainingJob
from hajob.job.ages import Ages
from hajob.job.pod_index import is_node_away, old_rank_pods
from hajob.job.policies.gang_start import GangMemo, is_held_back
from hajob.job.policies.leaving_pods import overdue_pods
from hajob.job.policies.outdated_pods import BootMemo, returned_nodes
from hajob.job.policies.spares import patch_to_adopt
from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import MakePods, Patch, Wants, deletion_of_pod
from hajob.plan.placements import CoordinatorPlacement, Placement, Placements
from hajob.plan.policy import Mode
from hajob.plan.state import ALL_MADE, ENDED, JobPhase
from hajob.pods.naming import coordinator_pod_name, rank_pod_name
from hajob.sources.creation import NotCreated, parse_refused_creation
from hajob.sources.pod import PodView


@dataclass(slots=True)
class PodMemo:
    """What is remembered of the pods of one job.

    Attributes:
        leaving: ages of the pods of earlier starts.
        adopted: names of the rank pods that need not be made: a warm spare became each of them.
    """

    leaving: Ages = field(default_factory=Ages)
    adopted: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Difference:
    """The creations and deletions that lead to the desired pods."""

    rank_pods: tuple[Placement, ...]
    coordinators: tuple[CoordinatorPlacement, ...]
    surplus: tuple[PodView, ...]


def want_pods(snapshot: JobSnapshot, memo: PodMemo, gang: GangMemo, boots: BootMemo) -> Wants:
    """Want the desired pods, and no others; warm spares become some of those that are missing."""
    if not snapshot.pods_are_known:
        return Wants()
    memo.adopted.update(filter(None, (_name_as_rank_pod(snapshot.job, pod) for pod in snapshot.pods.pods.values())))
    known = snapshot.pods.gone | snapshot.pods.made.keys() | memo.adopted
    todo = _without_what_is_lost(snapshot, compare_pods(snapshot.job, snapshot.desired_pods, snapshot.pods.pods, known))
    overdue, overdue_at = overdue_pods(snapshot, memo.leaving)
    todo = limit_to_turn(todo, snapshot.state.base, snapshot.pods.pods, overdue)
    adoptions = dict(_rank_pod_adoptions(snapshot, todo.rank_pods))
    ranks = tuple(one for one in todo.rank_pods if one.node_rank not in adoptions)
    held_back = snapshot.creation.why_nodes_refuse(snapshot.now) if ranks else None
    wanted: tuple[Placement | CoordinatorPlacement, ...] = (*(ranks if held_back is None else ()), *todo.coordinators)
    missing = _creation_of_missing(snapshot, wanted if snapshot.queue.may_make_pods else (), gang, boots)
    _note_missing(snapshot, missing, held_back)
    hanging = (pod for pod in snapshot.pods.all_pods() if pod.deleting and is_node_away(pod, snapshot.nodes))
    return Wants(
        changes=(
            *(deletion_of_pod(snapshot, pod, follows_status=True) for pod in (*todo.surplus, *hanging)),
            *adoptions.values(),
            *((missing,) if missing is not None else ()),
        ),
        again_at=min(overdue_at, snapshot.creation.next_at if held_back is not None else inf),
    )


def compare_pods(
    job: HATrainingJob, desired: Placements, pods: Mapping[str, PodView], gone: Iterable[str]
) -> Difference:
    """Compare desired pods and cache.

    Args:
        job: the job.
        desired: the pods that should exist.
        pods: cached pods of the job by name.
        gone: names that are not made again: of pods that vanished, their loss is a fact, and of those just made.
    """
    placed = {placed_pod_name(job, placement): placement for placement in desired}
    relieved = desired.coordinator.relieves if desired.coordinator is not None else 0
    known = {*pods, *gone}
    missing = [placement for name, placement in placed.items() if name not in known]
    return Difference(
        rank_pods=tuple(one for one in missing if isinstance(one, Placement)),
        coordinators=tuple(one for one in missing if isinstance(one, CoordinatorPlacement)),
        surplus=tuple(
            pod
            for name, pod in pods.items()
            if not pod.deleting
            and not pod.is_spare_pod
            and not pod.is_hook_pod
            and name not in placed
            and not (relieved and pod.role == names.ROLE_COORDINATOR and pod.incarnation == relieved)
            and _name_as_rank_pod(job, pod) not in placed
        ),
    )


def _name_as_rank_pod(job: HATrainingJob, pod: PodView) -> str:
    """Return the name that a former spare would have had as a rank pod; empty for any other pod."""
    return rank_pod_name(job, pod.node_rank, pod.incarnation) if pod.is_rank_pod and pod.warm else ""


def limit_to_turn(todo: Difference, base: int, pods: Mapping[str, PodView], passed_over: Container[str]) -> Difference:
    """Limit a new start of a whole job to one new rank pod for each old one that is gone.

    Created earlier, a pod would need a node that an old one still has: it waits in the scheduler's queue, or preempts a
    foreign pod of a lower priority.

    Args:
        todo: all that is to be done.
        base: incarnation of the start.
        pods: cached pods of the job by name.
        passed_over: UIDs of old pods that new ones no longer wait for.
    """
    old = sum(pod.uid not in passed_over for pod in old_rank_pods(base, pods))
    new = [one for one in todo.rank_pods if one.incarnation == base]
    held_back = set(new[max(len(new) - old, 0) :])
    return replace(todo, rank_pods=tuple(one for one in todo.rank_pods if one not in held_back)) if held_back else todo


def placed_pod_name(job: HATrainingJob, placement: Placement | CoordinatorPlacement) -> str:
    """Return the name of the pod that is made for this placement."""
    if isinstance(placement, CoordinatorPlacement):
        return coordinator_pod_name(job, placement.incarnation, apart=placement.apart)
    return rank_pod_name(job, placement.node_rank, placement.incarnation)


def _without_what_is_lost(snapshot: JobSnapshot, todo: Difference) -> Difference:
    """Leave out pods that are missing because they were lost, and that no decision makes anew.

    The pods of a job that ends are left as they are: they may stay for their logs, and another coordinator still
    tells who ends. While the mode is not Enforce an operator that has just started cannot tell a lost pod by its
    absence from one that was never made; of a start that goes on beside its held incident, the incident tells.
    """
    phase, held = snapshot.state.phase, snapshot.state.incident
    if phase in ENDED:
        return Difference((), (), tuple(pod for pod in todo.surplus if not pod.has_ended))
    watches = snapshot.policy.mode is not Mode.ENFORCE and phase in ALL_MADE
    if watches and snapshot.state.is_untrained and held is not None:
        lost = snapshot.layout.nodes_of_ranks(held.lost_ranks)
        return replace(todo, rank_pods=tuple(one for one in todo.rank_pods if one.node_rank not in lost))
    return replace(todo, rank_pods=()) if watches or phase is JobPhase.ENDING else todo


def _rank_pod_adoptions(snapshot: JobSnapshot, missing: Collection[Placement]) -> Iterator[tuple[int, Patch]]:
    """Yield node ranks whose pods warm spares can become, and the patches; one that is refused is made instead."""
    for placement in missing:
        patch = patch_to_adopt(snapshot, placement)
        # After an error of the server nobody knows whether it has patched the pod: another would be a second of its
        # node rank.
        refusal = snapshot.answers.refusals.get(patch.key) if patch is not None else None
        if patch is not None and (refusal is None or refusal.may_pass):
            yield placement.node_rank, patch


def _creation_of_missing(
    snapshot: JobSnapshot,
    placements: tuple[Placement | CoordinatorPlacement, ...],
    gang: GangMemo,
    boots: BootMemo,
) -> MakePods | None:
    if not placements:
        return None
    return MakePods(
        resource="pods",
        namespace=snapshot.job.metadata.namespace,
        name=f"of {snapshot.job.metadata.name}",
        follows_status=True,
        placements=placements,
        gated=is_held_back(snapshot, gang),
        returned=frozenset(returned_nodes(snapshot, boots)),
    )


def _note_missing(snapshot: JobSnapshot, missing: MakePods | None, held_back: NotCreated | None) -> None:
    """Note why pods are missing; what was noted before stays until the server has answered again."""
    error = snapshot.answers.refusals.get(missing.key) if missing is not None else None
    if error is not None:
        snapshot.creation.why_missing = parse_refused_creation(error.status, error.reason, error.message)
    elif held_back is not None or missing is None:
        snapshot.creation.why_missing = held_back
