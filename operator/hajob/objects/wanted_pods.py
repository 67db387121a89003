"""Which pods a job should have, as a value: the level that the job controller reconciles the cluster with.

A decision ("replace node rank 3") changes this value, the value is journalled with the status, and only then pods are
made and deleted until they agree with it. So a decision is never a queued command that a crash could lose or run twice
(docs/decisions/0004-the-status-is-the-journal.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hajob.api import constants as names
from hajob.plan import effects

_EVERY = -1


class Place(NamedTuple):
    """One pod that should exist: its role, its node rank (-1: the coordinator), its incarnation."""

    role: str
    node_rank: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class WantedPods:
    """The pods that should exist.

    Attributes:
        attempt: number of the whole-job start that these pods belong to; 0 before the first.
        coordinator: incarnation of the coordinator pod; 0: there should be none.
        base: incarnation of every rank pod that is not in `replaced`; 0: there should be none.
        replaced: node rank -> incarnation of the pod made in place of the first one.
        released: node ranks that should have no pod now (dropped by a shrink).
        apart: the coordinator may not share a node with a rank; False where nothing else fits.
        avoided: node rank -> node names on which its pod must not be placed again while the incident lasts; -1 stands
            for every node rank. Kept for longer, a job that lives long enough would have no node left.
    """

    attempt: int = 0
    coordinator: int = 0
    apart: bool = True
    base: int = 0
    replaced: Mapping[int, int] = field(default_factory=dict)
    released: frozenset[int] = frozenset()
    avoided: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def with_rank_pods(self, attempt: int, incarnation: int, avoided: Iterable[str] = ()) -> WantedPods:
        """Every rank pod anew, for a start of the whole job; none of them on a node of `avoided`.

        What single pods were driven off before is forgotten: by now those nodes may be well again, and the ones that
        are not are in `avoided`.
        """
        names = tuple(sorted(set(avoided)))
        return WantedPods(
            attempt=attempt,
            coordinator=self.coordinator,
            apart=self.apart,
            base=incarnation,
            avoided={_EVERY: names} if names else {},
        )

    def without_rank_pods(self, below: int) -> WantedPods:
        """No rank pod of a lower incarnation than `below`; newer ones stay."""
        if self.base >= below:
            return self
        return replace(self, base=0, replaced={}, released=frozenset())

    def with_coordinator(self, incarnation: int) -> WantedPods:
        """A coordinator pod of this incarnation, instead of the one that there is."""
        return replace(self, coordinator=incarnation)

    def without_coordinator(self, below: int) -> WantedPods:
        """No coordinator pod of a lower incarnation than `below`."""
        return self if self.coordinator >= below else replace(self, coordinator=0)

    def stopped(self) -> WantedPods:
        """No pod at all."""
        return WantedPods(attempt=self.attempt, avoided=self.avoided)

    def with_replaced(self, nodes: Iterable[int], incarnation: int, avoided: Mapping[int, str]) -> WantedPods:
        """New pods for some node ranks, kept off the nodes named in `avoided` (node rank -> node name)."""
        ranks = set(nodes)
        shunned = dict(self.avoided)
        for rank, name in avoided.items():
            if name and name not in shunned.get(rank, ()):
                shunned[rank] = (*shunned.get(rank, ()), name)
        return replace(
            self,
            replaced={**self.replaced, **dict.fromkeys(sorted(ranks), incarnation)},
            released=self.released - ranks,
            avoided=shunned,
        )

    def with_released(self, nodes: Iterable[int]) -> WantedPods:
        """No pods for some node ranks."""
        return replace(self, released=self.released | set(nodes))

    def incarnation_of(self, node_rank: int) -> int:
        """Incarnation of the pod that a node rank should have, 0 for none."""
        if node_rank in self.released:
            return 0
        return self.replaced.get(node_rank, self.base)

    def places(self, num_nodes: int) -> tuple[Place, ...]:
        """Every pod that a job of so many nodes should have."""
        numbers = ((node_rank, self.incarnation_of(node_rank)) for node_rank in range(num_nodes))
        found = [Place(names.ROLE_RANK, node_rank, number) for node_rank, number in numbers if number]
        if self.coordinator:
            found.append(Place(names.ROLE_COORDINATOR, -1, self.coordinator))
        return tuple(found)

    def avoided_by(self, node_rank: int) -> tuple[str, ...]:
        """Names of the nodes on which the pod of a node rank must not be placed."""
        return tuple(sorted({*self.avoided.get(_EVERY, ()), *self.avoided.get(node_rank, ())}))


def apply(
    wanted: WantedPods, effect: effects.Effect, homes: Mapping[int, str], avoided: Collection[str] = ()
) -> WantedPods:
    """What an effect of the planner changes about the pods that should exist.

    Args:
        wanted: before it.
        effect: any effect; most change nothing here.
        homes: node rank -> name of the node where its pod is now.
        avoided: names of nodes where a start of the whole job should put nothing.
    """
    match effect:
        case effects.ReplacePods(node_ranks, incarnation, avoid):
            shunned = {rank: homes[rank] for rank in node_ranks if homes.get(rank) in avoid}
            return wanted.with_replaced(node_ranks, incarnation, shunned)
        case effects.ReleasePods(node_ranks):
            return wanted.with_released(node_ranks)
        case effects.DeleteAllPods(below):
            return wanted.without_rank_pods(below)
        case effects.CreateAllPods(attempt, incarnation):
            return wanted.with_rank_pods(attempt, incarnation, avoided)
        case effects.DeleteCoordinator(below):
            return wanted.without_coordinator(below)
        case effects.CreateCoordinator(incarnation):
            return wanted.with_coordinator(incarnation)
        case effects.CompleteJob():
            return replace(wanted, coordinator=0)
        case effects.CloseIncident():
            return replace(wanted, avoided={})
        case effects.FailJob():
            return wanted.stopped()
    return wanted
