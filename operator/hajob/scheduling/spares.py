"""Which spare nodes a job holds, which it gives up, and how a rank pod gets the node of one. Pure.

A spare is handed over in an order in which no stranger takes its node: the rank pod that may go nowhere else is made
first; once the scheduler has found the node full, the node is kept for it (`status.nominatedNodeName`); only then the
spare's pod goes (docs/decisions/0029-spare-nodes.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hajob.plan.placements import WITHOUT_COORDINATOR
from hajob.plan.state import JobPhase, JobState
from hajob.sources.pod import PodView


@dataclass(frozen=True, slots=True)
class SpareTurn:
    """What is to be done about a job's spare nodes now.

    Attributes:
        surplus: pods of spares that go.
        missing: names of pods that are to be made.
        nominate: rank pods for which the scheduler is to keep their place.
    """

    surplus: tuple[PodView, ...] = ()
    missing: tuple[str, ...] = ()
    nominate: tuple[PodView, ...] = ()


def ready_spares(pods: Mapping[str, PodView], may_hold: Callable[[str], bool]) -> list[PodView]:
    """Those that hold a node which could take a rank pod now, by name."""
    return [
        pods[name]
        for name in sorted(pods)
        if pods[name].is_spare and pods[name].ready and not pods[name].deleting and may_hold(pods[name].node_name)
    ]


def successors(pods: Mapping[str, PodView]) -> dict[str, PodView]:
    """Node name to the rank pod that may go there and nowhere else, and is not there yet."""
    return {
        pod.place: pod for pod in pods.values() if pod.is_rank and pod.place and not pod.node_name and not pod.deleting
    }


def look(
    state: JobState,
    desired: Sequence[str],
    pods: Mapping[str, PodView],
    may_hold: Callable[[str], bool],
    *,
    warm: bool = False,
) -> SpareTurn:
    """What is to be done.

    Args:
        state: of the job.
        desired: names of the pods of all spares that the job asks for.
        pods: of the job, by name.
        may_hold: whether a node could take a rank pod, its chips apart.
        warm: what the spec asks for.
    """
    known = frozenset() if state.phase in WITHOUT_COORDINATOR else frozenset(desired)
    calm, coming = state.phase is JobPhase.RUNNING and not state.nodes, successors(pods)
    surplus, nominate = [], []
    for pod in (pod for pod in pods.values() if pod.is_spare and not pod.deleting):
        successor = coming.get(pod.node_name) if pod.node_name else None
        if successor is not None and successor.unschedulable and not successor.nominated:
            nominate.append(successor)
        handed_over = successor is not None and bool(successor.nominated)
        may_stay = may_hold(pod.node_name) if pod.node_name else calm and not _keeps_away_in_vain(pod, may_hold)
        held = pod.name in known and not pod.ended and may_stay
        if handed_over or not held or (calm and pod.warm is not warm):
            surplus.append(pod)
    missing = tuple(name for name in desired if name not in pods) if calm else ()
    return SpareTurn(tuple(surplus), missing, tuple(nominate))


def _keeps_away_in_vain(pod: PodView, may_hold: Callable[[str], bool]) -> bool:
    """Whether it finds no node, and was told to keep away from one that has nothing against it any more."""
    return bool(pod.unschedulable) and any(may_hold(node) for node in pod.excluded)
