"""Spare nodes of a job: which to hold, which to give up, and how a rank pod takes one over. Pure.

The order of a handover keeps other pods off the node: the rank pod that may go nowhere else is made first; once the
scheduler has found the node full, the node is kept for it (`status.nominatedNodeName`); only then the spare's pod
is deleted (docs/decisions/0029-spare-nodes.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hajob.plan.placements import WITHOUT_COORDINATOR
from hajob.plan.state import JobPhase, JobState
from hajob.sources.pod import PodView


@dataclass(frozen=True, slots=True)
class SpareTurn:
    """Changes to make to a job's spare nodes now.

    Attributes:
        surplus: spares' pods to delete.
        missing: names of spares' pods to make.
        nominate: rank pods for which the scheduler is to keep their node.
    """

    surplus: tuple[PodView, ...] = ()
    missing: tuple[str, ...] = ()
    nominate: tuple[PodView, ...] = ()


def ready_spares(pods: Mapping[str, PodView], may_hold: Callable[[str], bool]) -> list[PodView]:
    """Return the ready spares' pods on nodes that could take a rank pod now, sorted by name."""
    return [
        pods[name]
        for name in sorted(pods)
        if pods[name].is_spare_pod and pods[name].ready and not pods[name].deleting and may_hold(pods[name].node_name)
    ]


def successors_by_node(pods: Mapping[str, PodView]) -> dict[str, PodView]:
    """Return, by node name, the rank pod that may go there and nowhere else, and has no node yet."""
    return {
        pod.place: pod
        for pod in pods.values()
        if pod.is_rank_pod and pod.place and not pod.node_name and not pod.deleting
    }


def spare_changes(
    state: JobState,
    desired: Sequence[str],
    pods: Mapping[str, PodView],
    may_hold: Callable[[str], bool],
    *,
    warm: bool = False,
    nominates: bool = True,
) -> SpareTurn:
    """Return the changes to make.

    Args:
        state: of the job.
        desired: names of the pods of all spares that the spec sets.
        pods: of the job, by name.
        may_hold: whether a node could take a rank pod, its chips apart.
        warm: the spec's `spareMode` is Warm.
        nominates: the scheduler keeps a node for a pod that is nominated; Volcano's does not, so that the spare goes
            as soon as its successor is there.
    """
    known = frozenset() if state.phase in WITHOUT_COORDINATOR else frozenset(desired)
    calm, coming = state.phase is JobPhase.RUNNING and not state.nodes, successors_by_node(pods)
    surplus, nominate = [], []
    for pod in (pod for pod in pods.values() if pod.is_spare_pod and not pod.deleting):
        successor = coming.get(pod.node_name) if pod.node_name else None
        if nominates and successor is not None and successor.unschedulable and not successor.nominated:
            nominate.append(successor)
        handed_over = successor is not None and (bool(successor.nominated) or not nominates)
        may_stay = may_hold(pod.node_name) if pod.node_name else calm and not _keeps_away_in_vain(pod, may_hold)
        held = pod.name in known and not pod.has_ended and may_stay
        if handed_over or not held or (calm and pod.warm is not warm):
            surplus.append(pod)
    missing = tuple(name for name in desired if name not in pods) if calm else ()
    return SpareTurn(tuple(surplus), missing, tuple(nominate))


def _keeps_away_in_vain(pod: PodView, may_hold: Callable[[str], bool]) -> bool:
    """Whether an unschedulable pod still excludes a node that could take it by now."""
    return bool(pod.unschedulable) and any(may_hold(node) for node in pod.excluded)
