"""Nodes on which nothing should be started for a while, remembered for all jobs.

On some an agent fell silent: Kubernetes calls a dead node ready for another 40 s, and the scheduler puts pods on it. On
others a port that every job needs is taken. What one job has learnt serves the next one, also one that is deleted and
applied again at once. Where too few nodes are left, a start takes as many of the avoided ones as it needs, the longest
avoided first: they may be well by now, and a pod that is made for others would wait for those for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

AVOIDED_SECONDS: Final = 60.0
"""So long such a node is avoided; by then Kubernetes itself knows whether it is ready."""


class AvoidedNodes:
    """Names of nodes, each with the time of its last trouble in seconds of a clock that never jumps."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, str]] = {}

    def add(self, name: str, now: float, boot: str = "") -> None:
        """Something is wrong on this node; a pod without a node says nothing about any. `boot`: of the machine then."""
        if name:
            self._known[name] = now, boot

    def names(self, now: float) -> list[str]:
        """Those that are to be avoided now, the longest ago first; the others are forgotten."""
        self._known = {name: known for name, known in self._known.items() if now - known[0] < AVOIDED_SECONDS}
        return sorted(self._known, key=lambda name: self._known[name][0])

    def unturned(self, now: float, boot_of: Callable[[str], str]) -> set[str]:
        """Of these, the machines that have not started anew since: that they look ready says nothing yet."""
        return {name for name in self.names(now) if boot_of(name) == self._known[name][1]}
