"""Nodes on which no job should start pods for a while.

Either an agent fell silent there (Kubernetes calls a dead node ready for another 40 s, and the scheduler puts pods on
it), or a port that every job needs is taken. All jobs share this memory, also a job that is deleted and applied again
at once. Where too few nodes are left, a start takes as many avoided nodes as it needs, the longest avoided first:
they may be well by now, and a pod that excludes them could wait for other nodes for ever.
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
        """Avoid this node from `now` on; an empty name is ignored. `boot`: identifies the machine's current start."""
        if name:
            self._known[name] = now, boot

    def names(self, now: float) -> list[str]:
        """Return the nodes to avoid now, the longest avoided first, and forget the others."""
        self._known = {name: known for name, known in self._known.items() if now - known[0] < AVOIDED_SECONDS}
        return sorted(self._known, key=lambda name: self._known[name][0])

    def unturned(self, now: float, boot_of: Callable[[str], str]) -> set[str]:
        """Return those whose machine has not restarted since: that they look ready proves nothing yet."""
        return {name for name in self.names(now) if boot_of(name) == self._known[name][1]}
