"""Nodes on which no job should start pods for a while.

Either an agent fell silent there (Kubernetes calls a dead node ready for another 40 s, and the scheduler puts pods on
it), or a port that every job needs is taken. All jobs share this memory, also a job that is deleted and applied again
at once. Where too few nodes are left, a start takes as many avoided nodes as it needs, the longest avoided first:
they may be well by now, and a pod that excludes them could wait for other nodes for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

AVOIDED_SECONDS: Final = 60.0
"""So long such a node is avoided; by then Kubernetes itself knows whether it is ready."""
LONGEST_SECONDS: Final = 1800.0
"""Each time that a node is in trouble again, it is avoided for twice as long as before, up to this."""
FORGOTTEN_SECONDS: Final = 3600.0
"""A node without trouble for so long begins with the shortest time again."""


@dataclass(frozen=True, slots=True)
class _Trouble:
    """The last trouble of a node: when, for how long it is avoided since, and in which start of its machine."""

    at: float
    seconds: float
    boot: str

    def is_avoidance_over(self, now: float) -> bool:
        return now - self.at >= self.seconds


class AvoidedNodes:
    """Nodes by name. Times are seconds of a clock that never jumps."""

    def __init__(self) -> None:
        self._known: dict[str, _Trouble] = {}

    def avoid_node(self, name: str, now: float, boot: str = "") -> None:
        """Avoid this node from `now` on; an empty name is ignored. `boot`: identifies the machine's current start."""
        if not name:
            return
        before = self._known.get(name)
        seconds = AVOIDED_SECONDS if before is None else before.seconds
        if before is not None and before.is_avoidance_over(now):
            seconds = min(2 * seconds, LONGEST_SECONDS)
        self._known[name] = _Trouble(now, seconds, boot)

    def avoided_names(self, now: float) -> list[str]:
        """Return the nodes to avoid now, the longest avoided first; forget those without trouble for long."""
        self._known = {name: known for name, known in self._known.items() if now - known.at < FORGOTTEN_SECONDS}
        avoided = {name: known.at for name, known in self._known.items() if not known.is_avoidance_over(now)}
        return sorted(avoided, key=avoided.__getitem__)

    def not_restarted(self, now: float, boot_of: Callable[[str], str]) -> set[str]:
        """Return those whose machine has not restarted since: that they look ready proves nothing yet."""
        return {name for name in self.avoided_names(now) if boot_of(name) == self._known[name].boot}
