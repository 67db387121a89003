"""Which of the waiting jobs may start now: those for which there are free nodes for all of their pods at once. Pure.

Jobs are asked in the order in which they were made. One that fits now passes one before it that does not: a job that is
larger than what is ever free keeps nobody from training (docs/decisions/0025-all-pods-or-none.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
        own_nodes: names of the nodes of its pods of an earlier start, which leave.
    """

    job_uid: str
    made: str
    demand: Demand
    need: int
    waits: bool
    own_nodes: Collection[str] = ()


def let_in(claims: Iterable[Claim], capacity: Capacity, closed: Collection[str] = ()) -> list[str]:
    """UIDs of the jobs that may start, in order.

    Args:
        claims: of all jobs, in any order.
        capacity: of the cluster. Nodes that are better avoided now count: too few nodes would be worse.
        closed: names of nodes where no rank pod may be placed.
    """
    ordered = sorted((one for one in claims if one.need > 0), key=lambda one: (one.waits, one.made, one.job_uid))
    room = _Room(capacity, closed)
    found: list[str] = []
    for claim in ordered:
        if claim.waits and room.left(claim) < claim.need:
            continue
        room.promise(claim)
        if claim.waits:
            found.append(claim.job_uid)
    return found


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
        if claim.own_nodes:
            room += len(self._capacity.soon_free(demand, claim.job_uid, claim.own_nodes).difference(self._closed))
        return room - sum(need for other, need in self._promised.items() if self._overlap(demand, other))

    def _overlap(self, one: Demand, other: Demand) -> bool:
        if one == other:
            return True
        if (one, other) not in self._overlaps:
            self._overlaps[one, other] = not self._capacity.free(one).isdisjoint(self._capacity.free(other))
        return self._overlaps[one, other]
