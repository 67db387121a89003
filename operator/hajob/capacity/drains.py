"""Disruption budgets of a job while its nodes are drained (docs/decisions/0023-drains-wait.md).

A refused eviction leaves no trace; only the cordon before it is visible. So the budgets allow no eviction while the
job moves its pods off, and every eviction once that has taken too long.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from hajob.plan.placements import Placements
from hajob.plan.policy import NodePolicy, Policy

OPEN_SHARE: Final = 1 / 15
"""Share of recovery.drainTimeoutSeconds that budgets stay open: 60 of 900 s; a repeated eviction goes through."""
OPENING_GAP_SECONDS: Final = 20.0
"""Gap between the openings of two jobs: four writes each, so 0.2 a second however many jobs there are."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """Numbers of ready pods of each role that an eviction has to leave."""

    ranks: int = 0
    coordinator: int = 0


def budgets_of_job(desired: Placements, policy: Policy, *, overdue: bool, opened: bool = False) -> Budgets:
    """Return the budgets that hold now.

    Args:
        desired: pods that should exist; both pods of a move count, so that the old one is safe until it is over.
        policy: of the job.
        overdue: a drain has waited for recovery.drainTimeoutSeconds.
        opened: unannounced evictions may pass now: the coordinator, and one rank pod after the other.
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
    """Nodes of a job that are to be emptied, and since when. Times are seconds of one clock.

    Attributes:
        timeout: recovery.drainTimeoutSeconds.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._since: dict[str, float] = {}

    def update_nodes(self, nodes: Collection[str], now: float) -> tuple[str, ...]:
        """Set the nodes that are to be emptied now; return the new ones."""
        fresh = tuple(sorted(set(nodes) - self._since.keys()))
        self._since = {name: self._since.get(name, now) for name in nodes}
        return fresh

    def is_any_overdue(self, now: float) -> bool:
        """Return whether one of the nodes has waited for the whole timeout."""
        return any(now - since >= self.timeout for since in self._since.values())

    def next_change(self, now: float) -> float | None:
        """Return in how many seconds the next node will have waited for the whole timeout; None for never."""
        rests = [since + self.timeout - now for since in self._since.values()]
        return min((rest for rest in rests if rest > 0), default=None)


class Openings:
    """Schedule that opens the budgets of jobs for unannounced evictions, one job after the other."""

    def __init__(self) -> None:
        self._last = -math.inf

    def next_opening(self, now: float) -> float:
        """Return when the budgets of the next job open, in seconds of one clock."""
        self._last = max(now, self._last + OPENING_GAP_SECONDS)
        return self._last


class EvictionTurn:
    """Times at which one job's budgets are open for unannounced evictions: a while after each timeout.

    Args:
        openings: of all jobs.
    """

    def __init__(self, openings: Openings) -> None:
        self._openings = openings
        self._due = self._opens_at = self._closes_at = -math.inf

    def restart_timeout(self) -> None:
        """Begin the timeout anew: evictions were let through for another reason."""
        self._closes_at = -math.inf

    def is_open_now(self, now: float, timeout: float) -> bool:
        """Return whether the budgets are open; call it at `next_change` at the latest. Seconds of one clock."""
        # recovery.drainTimeoutSeconds is 0: an admin wants evictions to pass at once.
        if timeout <= 0:
            return True  # nothing waits: they are open all the time
        if now >= self._closes_at:
            self._due = now + timeout
            self._opens_at = self._closes_at = math.inf
        if now >= self._due and self._opens_at == math.inf:
            self._opens_at = self._openings.next_opening(now)
            self._closes_at = self._opens_at + OPEN_SHARE * timeout
        return now >= self._opens_at

    def next_change(self, now: float) -> float | None:
        """Return when `is_open_now` may change next by time alone; None for never."""
        return next((at for at in (self._due, self._opens_at, self._closes_at) if now < at < math.inf), None)
