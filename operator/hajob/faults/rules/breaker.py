"""A circuit breaker for faults: are so many nodes really bad at once?

A broken feed or a wrong rule looks like the death of half the cluster, and acting on it would do the damage itself. So
when too many nodes turn bad within a window, no fault of a node or chip leads to an irreversible action, however
long it stands: until enough of them are well again, or an admin confirms the faults (docs/faults.md, "The breaker").
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When the breaker opens.

    Attributes:
        share: of the nodes that may turn bad within the window, in percent.
        minimum: this many may in any case: a small cluster loses its share with one node.
        window_ms: length of the window in milliseconds.
    """

    share: int = 20
    minimum: int = 3
    window_ms: int = 60_000

    def limit_of_bad_nodes(self, total: int) -> int:
        """Return how many bad nodes of a total are believed."""
        return max(self.minimum, total * self.share // 100)


class Breaker:
    """Nodes that turned bad and are not believed for good yet. Times are of one clock that does not run backwards.

    While it is closed a node is believed once the window is over; while it is open none is.
    """

    def __init__(self, settings: BreakerSettings | None = None) -> None:
        self.settings = settings or BreakerSettings()
        self._turned: OrderedDict[str, int] = OrderedDict()
        self._open = False

    def note_bad_node(self, node: str, now_ms: int) -> None:
        """Note that a node that was well is no longer."""
        self._turned.pop(node, None)
        self._turned[node] = now_ms

    def note_well_node(self, node: str) -> None:
        """Note that a node is without faults again, or gone: it was no loss."""
        self._turned.pop(node, None)

    def believe_all(self) -> None:
        """Believe all of them, because an admin has confirmed it."""
        self._turned.clear()

    def why_open(self, num_nodes: int, now_ms: int) -> str:
        """Return why no irreversible action may be taken now, for people; empty: it may.

        Args:
            num_nodes: of the cluster.
            now_ms: time of the question.
        """
        if not self._open:
            self._forget_old(now_ms)
        limit = self.settings.limit_of_bad_nodes(num_nodes)
        self._open = len(self._turned) > limit
        if not self._open:
            return ""
        seconds = self.settings.window_ms // 1000
        turned = f"{len(self._turned)} of {num_nodes} nodes were reported faulty within {seconds} s, or since then"
        return f"{turned}; the limit is {limit}"

    def _forget_old(self, now_ms: int) -> None:
        while self._turned and next(iter(self._turned.values())) <= now_ms - self.settings.window_ms:
            self._turned.popitem(last=False)
