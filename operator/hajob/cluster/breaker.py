"""Whether to believe that so many nodes are bad at once.

A broken feed, a jumped clock or a wrong rule looks like the death of half the cluster, and acting on it would do the
damage itself. So when too large a share of the nodes turns bad within a window, nothing irreversible follows from
hardware faults until the flood is over (docs/faults.md, "The breaker").
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When the breaker opens, and when it closes again.

    Attributes:
        share: of the nodes that may turn bad within the window, in percent.
        minimum: so many may in any case: a small cluster loses its share with one node.
        window_ms: length of the window in milliseconds.
    """

    share: int = 20
    minimum: int = 3
    window_ms: int = 60_000


class Breaker:
    """Counts nodes that turned bad. Times are milliseconds of one clock that does not run backwards."""

    def __init__(self, settings: BreakerSettings | None = None) -> None:
        self._settings = settings or BreakerSettings()
        self._turned: OrderedDict[str, int] = OrderedDict()

    def turned_bad(self, node: str, now_ms: int) -> None:
        """A node that was well is not any more."""
        self._turned.pop(node, None)
        self._turned[node] = now_ms

    def turned_well(self, node: str) -> None:
        """A node has nothing to complain of any more: it was no loss."""
        self._turned.pop(node, None)

    def why_open(self, num_nodes: int, now_ms: int) -> str:
        """Why nothing irreversible is done now, for people; empty: go on.

        Args:
            num_nodes: of the cluster.
            now_ms: time of the question.
        """
        self._forget(now_ms)
        limit = max(self._settings.minimum, num_nodes * self._settings.share // 100)
        if len(self._turned) <= limit:
            return ""
        return (
            f"{len(self._turned)} of {num_nodes} nodes turned bad within {self._settings.window_ms // 1000} s, more "
            f"than the {limit} that are believed at once: jobs are not told until the flood is over"
        )

    def closes_in_ms(self, num_nodes: int, now_ms: int) -> int:
        """How long until it closes by itself if nothing more happens; 0 while it is closed."""
        if not self.why_open(num_nodes, now_ms):
            return 0
        limit = max(self._settings.minimum, num_nodes * self._settings.share // 100)
        last_too_many = list(self._turned.values())[len(self._turned) - limit - 1]
        return last_too_many + self._settings.window_ms - now_ms

    def _forget(self, now_ms: int) -> None:
        while self._turned and next(iter(self._turned.values())) <= now_ms - self._settings.window_ms:
            self._turned.popitem(last=False)
