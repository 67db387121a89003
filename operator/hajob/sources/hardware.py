"""Faults of nodes and chips as facts of a job: which pod, and which of its ranks, sits on a chip.

A fault names a chip of a node; only the pod says which of its ranks sits there. Where it does not say, nothing is
guessed (docs/admin/faults.md, "From chip to rank").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Final

from hajob.domain.facts import Fact, FactKind
from hajob.domain.hardware import ClusterFact
from hajob.plan import events
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView

TOLD_OTHERWISE: Final = frozenset({FactKind.NODE_NOT_READY, FactKind.CORDONED, FactKind.SUB_HEALTH})
"""Kinds that a job lives on with: the events of nodes, of moves and of sub-health tell them."""


class Seat(Enum):
    """Whether a pod has a chip of its node."""

    ON = auto()
    OFF = auto()
    UNKNOWN = auto()


def seat_on_chip(number: str, chips: tuple[str, ...], *, has_all: bool) -> Seat:
    """Say whether a fault of a chip, or of the whole node, is one of the pod's.

    Args:
        number: of the chip on the node; empty: the whole node.
        chips: numbers of the pod's chips; empty while nobody has told.
        has_all: the pod has every chip of its node, whatever their numbers.
    """
    if number and chips:
        return Seat.ON if number in chips else Seat.OFF
    return Seat.ON if has_all or not number else Seat.UNKNOWN


def rank_on_chip(number: str, chips: tuple[str, ...], node_rank: int, chips_per_node: int) -> int | None:
    """Return the rank that sits on a chip; None where the annotations do not tell it.

    A pod with more or fewer chips than ranks, because other containers have some too, tells no order of its ranks.
    """
    if len(chips) != chips_per_node or number not in chips:
        return None
    return node_rank * chips_per_node + chips.index(number)


def seat_of_pod(pod: PodView, chip: str, node: NodeView | None, resource: str) -> Seat:
    """Say whether a pod has a chip, by its number; no number is the node (docs/admin/faults.md, "From chip to rank").

    A pod that asks for as many chips as its node has sits on each of them; `resource`: what the job calls chips, for a
    pod may ask for all of something else that its node has, such as network adapters.
    """
    of_node = ((node.all_chips if node is not None else None) or {}).get(resource, 0)
    has_all = 0 < of_node <= dict(pod.requests).get(resource, 0)
    return seat_on_chip(chip, pod.chips, has_all=has_all)


def events_of_pod_hardware(
    pod: PodView,
    facts: Iterable[tuple[ClusterFact, int]],
    node: NodeView | None,
    *,
    resource: str,
    chips_per_node: int,
    now_ms: int,
) -> Iterator[events.JobEvent]:
    """Yield the faults of the node or the chips on which a pod sits, as long as they stand.

    Args:
        pod: that serves a node rank.
        facts: that stand on its node, each with its age in milliseconds.
        node: of the pod; None: it is not known.
        resource: what the job calls chips.
        chips_per_node: ranks of one pod.
        now_ms: time of the job.
    """
    for fact, age_ms in facts:
        if concerns_pods(fact) and seat_of_pod(pod, fact.chip_number, node, resource) is Seat.ON:
            yield events.FactSeen(fact=fact_of_chip(pod, fact, age_ms, chips_per_node=chips_per_node, now_ms=now_ms))


def concerns_pods(fact: ClusterFact) -> bool:
    """Return whether a pod on the chip, or node, cannot go on as it is."""
    return fact.harms and fact.kind not in TOLD_OTHERWISE


def fact_of_chip(
    pod: PodView, fact: ClusterFact, age_ms: int, *, chips_per_node: int, now_ms: int, again: str = ""
) -> Fact:
    """Build the fact of a job from a fault of the node or chip on which its pod sits.

    Without a rank it is one of the whole pod. It begins when the pod came there, however long the fault stood before. A
    suffix `again` gives it another id, so that it is another fact.
    """
    rank = rank_on_chip(fact.chip_number, pod.chips, pod.node_rank, chips_per_node) if fact.chip_number else None
    came_ms = now_ms if pod.started_ms is None else pod.started_ms
    return Fact(
        id=f"{fact_id_for_pod(fact, pod)}{again}",
        kind=fact.kind,
        source=fact.source,
        node_rank=pod.node_rank,
        ranks=() if rank is None else (rank,),
        code=fact.code,
        message=fact.message,
        time_ms=min(max(now_ms - age_ms, came_ms), now_ms),
        node_name=fact.node,
    )


def fact_id_for_pod(fact: ClusterFact, pod: PodView) -> str:
    """Return the id of a fault as a fact of this pod: one fault is one fact for each pod that it hits."""
    return f"{fact.id}@{fact.since_ms or ''}/{pod.uid}"
