"""Whether to believe that so many nodes are bad at once.

A broken feed or a wrong rule looks like the death of half the cluster, and acting on it would do the damage itself. So
when too many nodes turn bad within a window, nothing irreversible follows from what is told of nodes and chips, however
long it is told: until enough of them are well again, or an admin says that it is true (docs/faults.md, "The breaker").
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When the breaker opens.

    Attributes:
        share: of the nodes that may turn bad within the window, in percent.
        minimum: so many may in any case: a small cluster loses its share with one node.
        window_ms: length of the window in milliseconds.
    """

    share: int = 20
    minimum: int = 3
    window_ms: int = 60_000

    def limit(self, total: int) -> int:
        """How many of so many are believed."""
        return max(self.minimum, total * self.share // 100)


class Breaker:
    """Nodes that turned bad and are not believed for good yet. Times are of one clock that does not run backwards.

    While it is closed a node is believed once the window is over; while it is open none is.
    """

    def __init__(self, settings: BreakerSettings | None = None) -> None:
        self.settings = settings or BreakerSettings()
        self._turned: OrderedDict[str, int] = OrderedDict()
        self._open = False

    def turned_bad(self, node: str, now_ms: int) -> None:
        """A node that was well is not any more."""
        self._turned.pop(node, None)
        self._turned[node] = now_ms

    def turned_well(self, node: str) -> None:
        """A node has nothing to complain of any more, or is gone: it was no loss."""
        self._turned.pop(node, None)

    def believe(self) -> None:
        """Somebody who can know says that all of them are bad indeed."""
        self._turned.clear()

    def why_open(self, num_nodes: int, now_ms: int) -> str:
        """Why nothing irreversible is done now, for people; empty: go on.

        Args:
            num_nodes: of the cluster.
            now_ms: time of the question.
        """
        if not self._open:
            self._forget(now_ms)
        limit = self.settings.limit(num_nodes)
        self._open = len(self._turned) > limit
        if not self._open:
            return ""
        seconds = self.settings.window_ms // 1000
        turned = f"{len(self._turned)} of {num_nodes} nodes were reported faulty within {seconds} s, or since then"
        return f"{turned}; the limit is {limit}"

    def _forget(self, now_ms: int) -> None:
        while self._turned and next(iter(self._turned.values())) <= now_ms - self.settings.window_ms:
            self._turned.popitem(last=False)
