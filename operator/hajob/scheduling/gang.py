"""Which of the waiting jobs get nodes now: those for which there are free nodes for all of their pods at once. Pure.

They wait for a start, or to grow back to their size. Jobs are asked in the order in which they were made. One that fits
now passes one before it that does not: a job that is larger than what is ever free keeps nobody from training
(docs/decisions/0025-all-pods-or-none.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from hajob.scheduling.capacity import Capacity
from hajob.scheduling.demand import Demand


@dataclass(frozen=True, slots=True)
class Claim:
    """What one job still needs of the cluster.

    Attributes:
        job_uid: of the job.
        made: when the job was made, as RFC 3339 text: the order among those that wait.
        demand: of its rank pods.
        need: rank pods that have no node yet, made or not.
        waits: it may not ask for nodes yet; what others need is theirs already.
        own_nodes: names of the nodes of its pods. Those of an earlier start leave; those of a job that grows stay.
        grows: it trains, with fewer ranks than it should have.
    """

    job_uid: str
    made: str
    demand: Demand
    need: int
    waits: bool
    own_nodes: Collection[str] = ()
    grows: bool = False


def let_in(claims: Iterable[Claim], capacity: Capacity, closed: Collection[str] = ()) -> list[str]:
    """UIDs of the jobs that may start, in order; arguments as of `rooms`."""
    found = rooms(claims, capacity, closed)
    return [claim.job_uid for claim, room in found if claim.waits and not claim.grows and room >= claim.need]


def rooms(claims: Iterable[Claim], capacity: Capacity, closed: Collection[str] = ()) -> Iterator[tuple[Claim, int]]:
    """How many nodes there are for each job that needs some, beside those that are others' or get promised before it.

    Args:
        claims: of all jobs, in any order.
        capacity: of the cluster. Nodes that are better avoided now count: too few nodes would be worse.
        closed: names of nodes where no rank pod may be placed.
    """
    room = _Room(capacity, closed)
    for claim in sorted((one for one in claims if one.need > 0), key=lambda one: (one.waits, one.made, one.job_uid)):
        left = room.left(claim) if claim.waits else claim.need
        if left >= claim.need:
            room.promise(claim)
        yield claim, left


class _Room:
    """Free nodes, less what was promised; jobs whose pods ask for the same are counted together."""

    def __init__(self, capacity: Capacity, closed: Collection[str]) -> None:
        self._capacity, self._closed = capacity, closed
        self._promised: dict[Demand, int] = {}
        self._free: dict[Demand, int] = {}
        self._overlaps: dict[tuple[Demand, Demand], bool] = {}

    def promise(self, claim: Claim) -> None:
        """Its pods will take so many nodes."""
        self._promised[claim.demand] = self._promised.get(claim.demand, 0) + claim.need

    def left(self, claim: Claim) -> int:
        """Nodes for this job, without those that others will take: who wants none of its nodes takes none of them."""
        demand = claim.demand
        if demand not in self._free:
            self._free[demand] = len(self._capacity.free(demand).difference(self._closed))
        room = self._free[demand]
        if claim.grows:
            room -= len(self._capacity.free(demand).intersection(claim.own_nodes).difference(self._closed))
        elif claim.own_nodes:
            room += len(self._capacity.soon_free(demand, claim.job_uid, claim.own_nodes).difference(self._closed))
        return room - sum(need for other, need in self._promised.items() if self._overlap(demand, other))

    def _overlap(self, one: Demand, other: Demand) -> bool:
        if one == other:
            return True
        if (one, other) not in self._overlaps:
            self._overlaps[one, other] = not self._capacity.free(one).isdisjoint(self._capacity.free(other))
        return self._overlaps[one, other]
