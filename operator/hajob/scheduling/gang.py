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
    promised: list[Claim] = []
    for claim in ordered:
        if not claim.waits or _room(claim, capacity, closed, promised) >= claim.need:
            promised.append(claim)
    return [claim.job_uid for claim in promised if claim.waits]


def _room(claim: Claim, capacity: Capacity, closed: Collection[str], promised: Iterable[Claim]) -> int:
    """Nodes for this job, without those that others will take: who wants none of its nodes takes none of them."""
    free = capacity.free(claim.demand)
    soon_free = capacity.soon_free(claim.demand, claim.job_uid, claim.own_nodes)
    room = len(free.difference(closed)) + len(soon_free.difference(closed))
    others = (one for one in promised if one.demand == claim.demand or not free.isdisjoint(capacity.free(one.demand)))
    return room - sum(one.need for one in others)
