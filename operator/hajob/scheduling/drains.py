"""How many pods of a job evictions have to leave, while its nodes are drained (docs/decisions/0023-drains-wait.md).

An eviction that is refused leaves no trace; what can be seen is the cordon before it. So budgets let nothing go while
the job moves its pods off, and everything once that has taken too long.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from hajob.plan.placements import Placements
from hajob.plan.policy import NodePolicy, Policy

OPEN_SHARE: Final = 1 / 15
"""Of recovery.drainTimeoutSeconds; 60 of 900 s. An eviction that is repeated so often goes through."""
OPENING_GAP_SECONDS: Final = 20.0
"""Between the openings of two jobs: four writes each, so 0.2 a second however many jobs there are."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """So many ready pods of each role an eviction has to leave."""

    ranks: int = 0
    coordinator: int = 0


def budgets(desired: Placements, policy: Policy, *, overdue: bool, opened: bool = False) -> Budgets:
    """What may be evicted now.

    Args:
        desired: pods that should exist; both pods of a move count, so that the old one is safe until it is over.
        policy: of the job.
        overdue: a drain has waited for recovery.drainTimeoutSeconds.
        opened: it is the turn of evictions that nobody announced: the coordinator, and one rank pod after the other.
    """
    ranks = len(desired.ranks)
    if overdue:
        return Budgets()
    if (
        policy.cordon is NodePolicy.IGNORE or opened
    ):  # no move will come: one node after the other, by replacing its pod
        return Budgets(max(ranks - 1, 0))
    return Budgets(ranks, 1 if desired.coordinator is not None else 0)


class Drains:
    """Nodes below a job that are to be emptied, and since when. Times are seconds of one clock.

    Attributes:
        timeout: recovery.drainTimeoutSeconds.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._since: dict[str, float] = {}

    def look(self, nodes: Collection[str], now: float) -> tuple[str, ...]:
        """Those that are to be emptied now; returns which of them are new."""
        fresh = tuple(sorted(set(nodes) - self._since.keys()))
        self._since = {name: self._since.get(name, now) for name in nodes}
        return fresh

    def overdue(self, now: float) -> bool:
        """Whether one of them has waited for the whole timeout."""
        return any(now - since >= self.timeout for since in self._since.values())

    def next_change(self, now: float) -> float | None:
        """In how many seconds one of them will have waited for the whole timeout; None for never."""
        rests = [since + self.timeout - now for since in self._since.values()]
        return min((rest for rest in rests if rest > 0), default=None)


class Openings:
    """When the budgets of jobs open for evictions that nobody announced, one job after the other."""

    def __init__(self) -> None:
        self._last = -math.inf

    def next(self, now: float) -> float:
        """When those of a job open whose turn has come. Seconds of one clock."""
        self._last = max(now, self._last + OPENING_GAP_SECONDS)
        return self._last


class EvictionTurn:
    """When one job's budgets are open for evictions that nobody announced: a while each time its timeout has passed.

    Args:
        openings: of all jobs.
    """

    def __init__(self, openings: Openings) -> None:
        self._openings = openings
        self._due = self._opens_at = self._closes_at = -math.inf

    def begin_anew(self) -> None:
        """Evictions were let through for another reason."""
        self._closes_at = -math.inf

    def is_now(self, now: float, timeout: float) -> bool:
        """Whether they are open; asked at `next_change` at the latest. Seconds of one clock."""
        if now >= self._closes_at:
            self._due = now + timeout
            self._opens_at = self._closes_at = math.inf
        if now >= self._due and self._opens_at == math.inf:
            self._opens_at = self._openings.next(now)
            self._closes_at = self._opens_at + OPEN_SHARE * timeout
        return now >= self._opens_at

    def next_change(self, now: float) -> float:
        """When it will be otherwise."""
        return next(at for at in (self._due, self._opens_at, self._closes_at) if at > now)
