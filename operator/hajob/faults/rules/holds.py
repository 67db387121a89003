"""Why no fault is believed for now: too many bad nodes at once, writers that have fallen silent, a clock that jumped.

A broken feed or a wrong rule looks like the death of half the cluster, and acting on it would do the damage itself. So
when too many nodes turn bad within a window, no fault of a node or chip leads to an irreversible action, however
long it stands: until enough of them are well again, or an admin confirms the faults (docs/admin/faults.md, "The
breaker").

The device plugin writes at least every five minutes, NodeD every thirty. One that does not is dead, and its last report
may be long out of date; when many are silent at once, the path to us is broken. A writer lives for as long as its
time of writing changes, so that a clock which goes wrong on its node makes it neither silent nor early.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from hajob.domain.facts import Source

JUMP_MS: Final = 30_000
"""Wall clock and monotonic clock that move apart by so much at once: the wall clock was set."""


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
        since = f"nodes reported faulty within {seconds} s, or since then"
        return f"{since}: {len(self._turned)} of {num_nodes}; the limit is {limit}"

    def _forget_old(self, now_ms: int) -> None:
        while self._turned and next(iter(self._turned.values())) <= now_ms - self.settings.window_ms:
            self._turned.popitem(last=False)


@dataclass(slots=True)
class _Feed:
    """One writer: its node, what it tells; when it wrote last, by its clock and by ours; how long it may be silent."""

    node: str
    tells: frozenset[Source]
    updated_ms: int
    heard_ms: int
    silent_after_ms: int


@dataclass(frozen=True, slots=True)
class WriteTime:
    """What an object says of its writing: when, by the writer's clock and by ours, how often at least, and of what.

    At first sight the difference says how old it is, later only that it has changed.
    """

    updated_ms: int
    wall_ms: int
    silent_after_ms: int
    tells: frozenset[Source] = frozenset({Source.DEVICE})


class Feeds:
    """The writers that write regularly. `now_ms` is of a clock that never runs back, `wall_ms` of the wall clock."""

    def __init__(self) -> None:
        self._feeds: dict[str, _Feed] = {}
        self._of_node: dict[str, set[str]] = {}

    def note_writing(self, origin: str, node: str, told: WriteTime, now_ms: int) -> None:
        """Note that an object about a node was read."""
        feed = self._feeds.get(origin)
        if feed is None:
            heard_ms = now_ms - max(told.wall_ms - told.updated_ms, 0)
            self._of_node.setdefault(node, set()).add(origin)
            self._feeds[origin] = _Feed(node, told.tells, told.updated_ms, heard_ms, told.silent_after_ms)
        # Any other time counts, also an earlier one: a clock that was set back on the node has not silenced the writer.
        elif told.updated_ms != feed.updated_ms:
            feed.updated_ms, feed.heard_ms = told.updated_ms, now_ms

    def forget_writer(self, origin: str) -> None:
        """Note that an object is gone: its writer need not write any more."""
        feed = self._feeds.pop(origin, None)
        if feed is not None:
            self._of_node[feed.node].discard(origin)
            if not self._of_node[feed.node]:
                del self._of_node[feed.node]

    def is_writer_silent(self, origin: str, now_ms: int) -> bool:
        """Return whether the writer of this object is silent; never true for one without a regular schedule."""
        feed = self._feeds.get(origin)
        return feed is not None and now_ms - feed.heard_ms > feed.silent_after_ms

    def node_of_writer(self, origin: str) -> str:
        """Return the node of a writer that is known."""
        return self._feeds[origin].node

    def silent_writers(self, now_ms: int, nodes: Collection[str]) -> list[str]:
        """Return the silent objects of these nodes; leftovers of a deleted node do not count."""
        return [
            origin
            for origin, feed in self._feeds.items()
            if feed.node in nodes and self.is_writer_silent(origin, now_ms)
        ]

    def silent_sources(self, node: str, now_ms: int) -> frozenset[Source]:
        """Return the sources whose writer on a node is silent."""
        origins = [origin for origin in self._of_node.get(node, ()) if self.is_writer_silent(origin, now_ms)]
        return frozenset(source for origin in origins for source in self._feeds[origin].tells)

    def count_writers(self, nodes: Collection[str], source: Source) -> int:
        """Return how many of these nodes have a regular writer of this source."""
        return sum(feed.node in nodes and source in feed.tells for feed in self._feeds.values())


class ClockGuard:
    """A detector of changes of the wall clock: times in reports cannot be trusted for a while."""

    def __init__(self) -> None:
        self._ahead_ms: int | None = None
        self._until_ms = 0
        self._jump_ms = 0

    def compare_clocks(self, now_ms: int, wall_ms: int, hold_ms: int) -> None:
        """Compare both clocks; `hold_ms`: for how long a jump counts."""
        ahead, before = wall_ms - now_ms, self._ahead_ms
        if before is not None and abs(ahead - before) > JUMP_MS:
            self._until_ms, self._jump_ms = now_ms + hold_ms, ahead - before
        self._ahead_ms = ahead

    def why_held(self, now_ms: int) -> str:
        """Return why times are not believed now; empty: they are."""
        if now_ms >= self._until_ms:
            return ""
        return f"the operator's clock jumped by {self._jump_ms / 1000:+.0f} s"

    def wakes_in_ms(self, now_ms: int) -> int | None:
        """Return how long until a jump is over; None: there is none."""
        return self._until_ms - now_ms if now_ms < self._until_ms else None

    def forget_jump(self) -> None:
        """Forget a jump, because an admin has confirmed that all is well."""
        self._until_ms = 0
