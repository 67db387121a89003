"""Decides whether coordinators are lost, or this operator is cut off from them.

One coordinator that does not answer is a lost coordinator. More than half of them, and at least two, are not lost all
at once while the API server answers: this operator is cut off, and must not act on the silence
(docs/decisions/0021-an-operator-cut-off.md).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from hajob import metrics
from hajob.sources.node import NodeView

log = logging.getLogger(__name__)

# A coordinator counts as silent after 2.5 s (coordinator_link/channel.py); a few looks fit in between.
LOOK_SECONDS: Final = 0.5
OFFER_SECONDS: Final = 5.0
"""An operator that is the suspect for so long says so and offers its Lease: shorter silences are those of slow answers,
of coordinators that start, and of a leader that has just begun to dial.
"""
# With one coordinator nobody can tell its loss from a cut: it counts as lost, as it would among many.
_MINIMUM: Final = 2


@dataclass(frozen=True, slots=True)
class ExpectedCoordinator:
    """A coordinator that should answer: on which node, and whether it does."""

    node_name: str
    reached: bool


@dataclass(frozen=True, slots=True)
class Reach:
    """The number of coordinators that should answer, and of those that do not."""

    total: int = 0
    silent: int = 0

    @property
    def is_cut_off(self) -> bool:
        """Whether so many are silent that the observer is probably cut off."""
        return self.silent >= _MINIMUM and 2 * self.silent > self.total

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.silent} of {self.total} coordinators cannot be reached"


def count_reachable(coordinators: Iterable[ExpectedCoordinator], nodes: Mapping[str, NodeView]) -> Reach:
    """Count coordinators; the silence of one whose node is not ready is explained by that.

    Unless more than half of all nodes are not ready: then it is the control plane that hears nothing, and the operator
    with it.
    """
    away = {name for name, node in nodes.items() if not node.ready}
    believed = 2 * len(away) <= len(nodes)
    counted = [one for one in coordinators if one.reached or not (believed and _is_node_away(one, nodes, away))]
    return Reach(len(counted), sum(not one.reached for one in counted))


def _is_node_away(coordinator: ExpectedCoordinator, nodes: Mapping[str, NodeView], away: set[str]) -> bool:
    return coordinator.node_name in away or coordinator.node_name not in nodes


class Suspicion:
    """Whether this operator is the suspect, and since when. Times are seconds of one clock that never runs back.

    While it is the suspect, silence leads to nothing. Once that has lasted a while, the Lease is offered to a standby
    that reaches the coordinators.

    Attributes:
        offers: why somebody else should lead; empty while that is not so.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._reach = Reach()
        self.offers = ""

    def update_suspicion(self, now: Reach, at: float) -> bool:
        """Take in how many answer now; return whether jobs must hear of it: it has lasted a while, or has ended."""
        before, self._reach = self.why_suspect, now
        if not now.is_cut_off:
            self._since = None
        elif self._since is None:
            self._since = at
        if before and not self.why_suspect:
            if self.offers:
                log.warning("enough coordinators are reached: this operator is not cut off")
            self._offer_lease("")
            return True
        if self.has_lasted(at) and not self.offers:
            log.warning(self.why_suspect)
            self._offer_lease(self.why_suspect)
            return True
        return False

    def _offer_lease(self, why: str) -> None:
        self.offers = why
        metrics.CUT_OFF.set(1 if why else 0)

    @property
    def why_suspect(self) -> str:
        """Return why it is the suspect, for people; empty while it is not."""
        if self._since is None:
            return ""
        return f"{self._reach}: this operator considers itself cut off and decides nothing from silence"

    def has_lasted(self, at: float) -> bool:
        """Return whether it has been the suspect for so long that another operator should lead."""
        return self._since is not None and at - self._since >= OFFER_SECONDS
