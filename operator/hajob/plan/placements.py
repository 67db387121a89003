"""Pods that a job should have: derived from its state, stored nowhere else.

A decision ("replace node rank 3") changes the state, the state is written with the status, and only then pods are made
and deleted until they agree with it. So a decision is never a queued command that a crash could lose or run twice
(docs/decisions/0010-pods-are-derived.md).
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from hajob.domain.incidents import Purpose
from hajob.plan.state import EVERY_NODE_RANK, JobPhase, JobState

WITHOUT_RANK_PODS: Final = frozenset({JobPhase.NEW, JobPhase.SUSPENDED, JobPhase.FAILED, JobPhase.DELETED})
WITHOUT_COORDINATOR: Final = WITHOUT_RANK_PODS | {JobPhase.COMPLETE}


class PodPurpose(StrEnum):
    """Purpose of a rank pod; at most one pod of a node rank serves."""

    SERVING = "Serving"
    SECOND_PLACE = "SecondPlace"


@dataclass(frozen=True, slots=True)
class Placement:
    """One rank pod that should exist.

    Attributes:
        node_rank: node rank of the pod.
        incarnation: distinguishes it from earlier and from parallel pods of the node rank.
        purpose: what it is for.
        avoid: names of nodes where it must not be placed; used only when the pod is created.
        place: name of the spare node to place it on; empty: any node with room.
    """

    node_rank: int
    incarnation: int
    purpose: PodPurpose = PodPurpose.SERVING
    avoid: tuple[str, ...] = field(default=(), compare=False)
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class CoordinatorPlacement:
    """The coordinator pod that should exist.

    Attributes:
        incarnation: distinguishes it from earlier ones.
        apart: it must not share a node with a rank of its job.
        relieves: incarnation of the coordinator that is kept until this one has taken over; 0: there is none.
    """

    incarnation: int
    apart: bool = True
    relieves: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Placements:
    """Every pod that should exist, rank pods by node rank."""

    ranks: tuple[Placement, ...] = ()
    coordinator: CoordinatorPlacement | None = None

    def __iter__(self) -> Iterator[Placement | CoordinatorPlacement]:
        """Iterate over all placements."""
        yield from self.ranks
        if self.coordinator is not None:
            yield self.coordinator


def placements(state: JobState, num_nodes: int) -> Placements:
    """Return the pods that a job of `num_nodes` nodes should have in this state."""
    served = ((node_rank, serving_incarnation(state, node_rank)) for node_rank in range(state.nodes or num_nodes))
    moving = _nodes_in_migration(state)
    everywhere = _avoided_node_names(state, EVERY_NODE_RANK)
    ranks = [
        Placement(
            rank,
            number,
            avoid=_avoided_node_names(state, rank) if rank in state.avoided else everywhere,
            place="" if rank in moving else state.places.get(rank, ""),
        )
        for rank, number in served
        if number
    ]
    ranks += _second_places(state)
    return Placements(tuple(ranks), coordinator_placement(state))


def same_placements(before: JobState, after: JobState, num_nodes: int) -> bool:
    """Return whether the same pods should exist in both states, without listing them all.

    States share unchanged parts, so the cost for two successive states is that of their difference.
    """
    nodes, turned = after.nodes or num_nodes, turned_node_ranks(before, after)
    if turned is None or nodes != (before.nodes or num_nodes):
        return placements(before, num_nodes) == placements(after, num_nodes)
    return (
        all(serving_incarnation(before, rank) == serving_incarnation(after, rank) for rank in turned if rank < nodes)
        and _second_places(before) == _second_places(after)
        and coordinator_placement(before) == coordinator_placement(after)
    )


def turned_node_ranks(before: JobState, after: JobState) -> AbstractSet[int] | None:
    """Return the node ranks whose serving pod may differ between the states; None: all of them."""
    without = (before.phase in WITHOUT_RANK_PODS, after.phase in WITHOUT_RANK_PODS)
    if before.base != after.base or without[0] is not without[1]:
        return None
    turned = set(before.released).symmetric_difference(after.released)
    if before.pods is not after.pods:
        turned.update(rank for rank, _ in before.pods.items() ^ after.pods.items())
    return turned


def serving_incarnation(state: JobState, node_rank: int) -> int:
    """Return the incarnation of the pod that serves the node rank, 0 where there should be none."""
    if state.phase in WITHOUT_RANK_PODS or node_rank in state.released:
        return 0
    return state.pod_incarnation(node_rank)


def coordinator_placement(state: JobState) -> CoordinatorPlacement | None:
    """Return the coordinator pod that should exist, if any."""
    if state.phase in WITHOUT_COORDINATOR or not state.coordinator:
        return None
    return CoordinatorPlacement(state.coordinator, state.apart, state.relieved)


def _second_places(state: JobState) -> list[Placement]:
    """Return the second pod, elsewhere, of each node rank that the open move covers."""
    number, purpose = state.incident.incarnation if state.incident else 0, PodPurpose.SECOND_PLACE
    return [
        Placement(rank, number, purpose, _avoided_node_names(state, rank), state.places.get(rank, ""))
        for rank in _nodes_in_migration(state)
    ]


def _nodes_in_migration(state: JobState) -> tuple[int, ...]:
    """Return the node ranks that the open incident moves."""
    incident = state.incident
    if incident is None or incident.purpose is not Purpose.MIGRATE or state.phase in WITHOUT_RANK_PODS:
        return ()
    return incident.replaced_nodes


def _avoided_node_names(state: JobState, node_rank: int) -> tuple[str, ...]:
    if not state.avoided:
        return ()
    return tuple(sorted({*state.avoided.get(EVERY_NODE_RANK, ()), *state.avoided.get(node_rank, ())}))
