"""Nodes on which nothing should be started for a while, remembered for all jobs.

On some an agent fell silent: Kubernetes calls a dead node ready for another 40 s, and the scheduler puts pods on it. On
others a port that every job needs is taken. What one job has learnt serves the next one, also one that is deleted and
applied again at once. Where too few nodes are left, a start takes as many of the avoided ones as it needs, the longest
avoided first: they may be well by now, and a pod that is made for others would wait for those for ever.
"""

from __future__ import annotations

from typing import Final

AVOIDED_SECONDS: Final = 60.0
"""So long such a node is avoided; by then Kubernetes itself knows whether it is ready."""


class AvoidedNodes:
    """Names of nodes, each with the time of its last trouble in seconds of a clock that never jumps."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def add(self, name: str, now: float) -> None:
        """Something is wrong on this node; a pod without a node says nothing about any."""
        if name:
            self._since[name] = now

    def names(self, now: float) -> list[str]:
        """Those that are to be avoided now, the longest ago first; the others are forgotten."""
        self._since = {name: since for name, since in self._since.items() if now - since < AVOIDED_SECONDS}
        return sorted(self._since, key=lambda name: self._since[name])
