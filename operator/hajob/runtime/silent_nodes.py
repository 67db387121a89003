"""Nodes on which an agent fell silent a moment ago, remembered for all jobs.

Kubernetes calls a dead node ready for another 40 s, and the scheduler puts pods on it. What one job has learnt serves
the next one, also one that is deleted and applied again at once.
"""

from __future__ import annotations

from typing import Final

SILENCE_SECONDS: Final = 60.0
"""So long such a node is shunned; by then Kubernetes itself knows whether it is ready."""


class SilentNodes:
    """Names of nodes, each with the time of its last silence in seconds of a clock that never jumps."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def add(self, name: str, now: float) -> None:
        """An agent on this node is no longer heard."""
        self._since[name] = now

    def names(self, now: float) -> set[str]:
        """Those that are to be shunned now; the others are forgotten."""
        self._since = {name: since for name, since in self._since.items() if now - since < SILENCE_SECONDS}
        return set(self._since)
