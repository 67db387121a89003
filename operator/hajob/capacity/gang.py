"""Choice of the waiting jobs that get nodes now: those for whose pods there are free nodes for all at once. Pure.

Jobs wait for a start, or to grow back to their size. They are served by priority, then in the order in which they
were made. A job that fits passes an earlier one that does not: a job larger than what is ever free keeps no other
from training (docs/decisions/0025-all-pods-or-none.md).

A start whose priority class lets it preempt counts the nodes of pods of a lower priority, too: the scheduler takes
them once its pods may ask (docs/decisions/0039-who-takes-nodes-of-whom.md). A growth counts what is free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hajob.capacity.demand import Demand
from hajob.capacity.nodes import Capacity
from hajob.capacity.quotas import NOTHING, Ask, Quotas
from hajob.capacity.super_pods import nodes_in_whole_blocks


@dataclass(frozen=True, slots=True)
class Claim:
    """Nodes that one job still needs.

    Attributes:
        job_uid: of the job.
        made: when the job was made, as RFC 3339 text: the order among those that wait.
        demand: of its rank pods.
        need: rank pods without a node, made or not.
        waits: it may not take nodes yet; the needs of other jobs are counted as taken.
        own_nodes: names of the nodes of its pods. Those of an earlier start leave; those of a job that grows stay.
        grows: it trains, with fewer ranks than it should have.
        priority: of its pods.
        preempts: its pods may take nodes of others of a lower priority.
        ask: what one of its pods uses of the quotas of its namespace.
        nodes_per_block: nodes that it needs in one super pod together; 0: anywhere.
    """

    job_uid: str
    made: str
    demand: Demand
    need: int
    waits: bool
    own_nodes: Collection[str] = ()
    grows: bool = False
    priority: int = 0
    preempts: bool = False
    ask: Ask = NOTHING
    nodes_per_block: int = 0

    @property
    def sort_key(self) -> tuple[bool, int, str, str]:
        """Return the sort key: the lesser one is served first."""
        return self.waits, -self.priority, self.made, self.job_uid


def jobs_that_may_start(claims: Iterable[Claim], capacity: Capacity, closed: Collection[str] = ()) -> list[str]:
    """Return the UIDs of the jobs that may start, in order; arguments as of `nodes_for_claims`."""
    found = nodes_for_claims(claims, capacity, closed)
    return [claim.job_uid for claim, room in found if claim.waits and not claim.grows and room >= claim.need]


def nodes_for_claims(
    claims: Iterable[Claim], capacity: Capacity, closed: Collection[str] = (), quotas: Quotas | None = None
) -> Iterator[tuple[Claim, int]]:
    """Yield each job that needs nodes with their number, less those that belong or are promised to others before it.

    Args:
        claims: of all jobs, in any order.
        capacity: of the cluster. Nodes that are better avoided now count: too few nodes would be worse.
        closed: names of nodes where no rank pod may be placed.
        quotas: checked for pods of growths only. The pods of a start exist before it takes nodes.
    """
    room = _Room(capacity, closed, quotas or Quotas())
    for claim in sorted((one for one in claims if one.need > 0), key=lambda one: one.sort_key):
        # A job that may take nodes already holds on to what it asked for; only those that wait are weighed against the
        # room.
        left = room.nodes_left(claim) if claim.waits else claim.need
        if left >= claim.need:
            room.promise_nodes(claim)
        yield claim, left


class _Kind(NamedTuple):
    """Key of claims that could use the same nodes: they are counted together."""

    demand: Demand
    priority: int
    preempts: bool


class _Room:
    """Nodes that are free or can be taken, less what was promised."""

    def __init__(self, capacity: Capacity, closed: Collection[str], quotas: Quotas) -> None:
        self._capacity, self._closed, self._quotas = capacity, closed, quotas
        self._used: dict[str, Counter[str]] = {}
        self._promised: dict[_Kind, int] = {}
        self._free: dict[Demand, int] = {}
        self._reached: dict[_Kind, set[str]] = {}
        self._overlaps: dict[tuple[_Kind, _Kind], bool] = {}

    def promise_nodes(self, claim: Claim) -> None:
        """Reserve the nodes that the claim's pods will take."""
        kind = _kind_of_claim(claim)
        self._promised[kind] = self._promised.get(kind, 0) + claim.need
        if claim.grows:
            used = self._used.setdefault(claim.ask.namespace, Counter())
            used.update({name: claim.need * amount for name, amount in claim.ask.use})

    def nodes_left(self, claim: Claim) -> int:
        """Return the nodes for this job, less those promised to others that could use its nodes."""
        left = self._left_by_node(claim)
        if claim.nodes_per_block and not claim.grows:
            left = min(left, self._left_in_blocks(claim))
        if not self._capacity.shares_domains:
            return left
        kind = _kind_of_claim(claim)
        reached = self._reachable_nodes(kind) | (
            set() if claim.grows else self._capacity.soon_free_nodes(claim.demand, claim.job_uid)
        )
        own = frozenset(claim.own_nodes if claim.grows else ())
        return min(
            left, self._capacity.pods_placeable_on(reached.difference(self._closed), own) - self._promised_nodes(kind)
        )

    def _left_by_node(self, claim: Claim) -> int:
        """Return the same where every node has a domain of its own."""
        demand, kind, capacity = claim.demand, _kind_of_claim(claim), self._capacity
        if demand not in self._free:
            self._free[demand] = len(capacity.free_nodes(demand).difference(self._closed))
        room, more = self._free[demand], set[str]()
        if claim.grows:
            room -= len(capacity.free_nodes(demand).intersection(claim.own_nodes).difference(self._closed))
        elif claim.own_nodes:
            more = capacity.soon_free_nodes(demand, claim.job_uid)
        left = room + len(more.difference(self._closed)) - self._promised_nodes(kind)
        if claim.grows:
            allowed = self._quotas.allowed_pods(claim.ask, self._used.get(claim.ask.namespace))
            return left if allowed is None else min(left, allowed.pods)
        if left >= claim.need or not kind.preempts:
            return left
        more = more.union(self._reachable_nodes(kind)).difference(capacity.free_nodes(demand))
        return room + len(more.difference(self._closed)) - self._promised_nodes(kind, kind.priority)

    def _left_in_blocks(self, claim: Claim) -> int:
        """Return the nodes that are left in whole blocks; whoever is before it may take some of as many of them."""
        demand, size, capacity = claim.demand, claim.nodes_per_block, self._capacity
        could_take = capacity.free_nodes(demand) | capacity.soon_free_nodes(demand, claim.job_uid)
        # Where promised nodes will be is not known: each of them may break another block.
        whole = nodes_in_whole_blocks(capacity.nodes, could_take.difference(self._closed), size)
        return whole - self._promised_nodes(_kind_of_claim(claim)) * size

    def _promised_nodes(self, kind: _Kind, priority: int | None = None) -> int:
        """Return the promised nodes that such a claim could have; if given, to jobs of this priority and higher."""
        return sum(
            need
            for other, need in self._promised.items()
            if (priority is None or other.priority >= priority) and self._may_overlap(kind, other)
        )

    def _reachable_nodes(self, kind: _Kind) -> set[str]:
        """Return the names of the nodes that are free for such claims, or that they may take from others."""
        if kind not in self._reached:
            free = self._capacity.free_nodes(kind.demand)
            lower = self._capacity.nodes_taken_by_lower(kind.demand, kind.priority) if kind.preempts else set[str]()
            self._reached[kind] = free | lower if lower else free
        return self._reached[kind]

    def _may_overlap(self, one: _Kind, other: _Kind) -> bool:
        if one.demand == other.demand:
            return True
        if (one, other) not in self._overlaps:
            self._overlaps[one, other] = not self._reachable_nodes(one).isdisjoint(self._reachable_nodes(other))
        return self._overlaps[one, other]


def _kind_of_claim(claim: Claim) -> _Kind:
    return _Kind(claim.demand, claim.priority, claim.preempts and not claim.grows)
