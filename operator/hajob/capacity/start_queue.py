"""All jobs that need nodes, and which of them may have some now (hajob.capacity.gang)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Final

from hajob.capacity.gang import Claim, jobs_that_may_start, nodes_for_claims
from hajob.capacity.nodes import Capacity
from hajob.capacity.quotas import Quotas

KEPT_SECONDS: Final = 0.1
"""An answer serves all jobs that ask within so long, unless a node or a pod on one has changed meanwhile."""


class StartQueue:
    """The claims of all jobs.

    Attributes:
        claims: job UID to a function that returns what the job still needs of the cluster.
    """

    def __init__(self) -> None:
        self.claims: dict[str, Callable[[], Claim | None]] = {}
        self._asked: frozenset[str] = frozenset()
        self._let_in: frozenset[str] = frozenset()
        self._seen: tuple[object, ...] = ()
        self._at = -math.inf

    def may_start(self, job_uid: str, now: float, capacity: Capacity, closed: Collection[str]) -> bool:
        """Return whether all pods of a waiting job may be scheduled now.

        All waiting jobs ask together when capacity changes: one evaluation of all claims answers them.

        Args:
            job_uid: of the job.
            now: monotonic time, in seconds.
            capacity: of the cluster.
            closed: names of nodes where no rank pod may be placed.
        """
        # What an answer depends on; time is added because priorities and claims of other jobs change without a node.
        seen = (capacity, capacity.changes, frozenset(closed))
        if job_uid not in self._asked or seen != self._seen or now - self._at >= KEPT_SECONDS:
            claims = self._all_claims()
            self._asked = frozenset(claim.job_uid for claim in claims)
            self._let_in = frozenset(jobs_that_may_start(claims, capacity, closed))
            self._seen, self._at = seen, now
        return job_uid in self._let_in

    def room_to_grow(
        self, job_uid: str, capacity: Capacity, closed: Collection[str], quotas: Quotas | None = None
    ) -> int | None:
        """Return how many nodes a shrunk job may have after the jobs ahead of it; None: it wants none."""
        found = nodes_for_claims(self._all_claims(), capacity, closed, quotas)
        return next((room for claim, room in found if claim.job_uid == job_uid and claim.grows), None)

    def _all_claims(self) -> list[Claim]:
        return [claim for ask in list(self.claims.values()) if (claim := ask()) is not None]
