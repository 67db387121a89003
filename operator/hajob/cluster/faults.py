"""The faults of the cluster as jobs hear of them: store, filters and breaker together.

Whoever drives it hands in what was read and asks which nodes have news; nothing is told while the breaker is open, and
everything that waited is told when it closes.
"""

from __future__ import annotations

from hajob.cluster.breaker import Breaker
from hajob.cluster.fault_store import FaultChange, FaultStore
from hajob.cluster.filters import effective, next_due_ms
from hajob.domain.hardware import ClusterFact
from hajob.sources.reading import Reading


class ClusterFaults:
    """Every method costs what the nodes in question hold. Times are milliseconds of one clock that never runs back."""

    def __init__(self, breaker: Breaker | None = None) -> None:
        self._breaker = breaker or Breaker()
        self._store = FaultStore()
        self._appeared_ms: dict[str, int] = {}
        self._bad: set[str] = set()
        self._untold: set[str] = set()
        self._due_ms: dict[str, int] = {}

    def take(self, origin: str, reading: Reading, now_ms: int, *, keeps: bool = False) -> None:
        """An object was read (see `FaultStore.take`)."""
        self._follow(self._store.take(origin, reading, keeps=keeps), now_ms)

    def forget(self, origin: str, now_ms: int) -> None:
        """An object is gone."""
        self._follow(self._store.forget(origin), now_ms)

    def news(self, num_nodes: int, now_ms: int) -> frozenset[str]:
        """Names of the nodes whose faults have to be looked at anew; none while the breaker is open."""
        for node in [node for node, due in self._due_ms.items() if due <= now_ms]:
            self._look(node, now_ms)
        if self.why_held(num_nodes, now_ms):
            return frozenset()
        news, self._untold = frozenset(self._untold), set()
        return news

    def of_node(self, node: str, num_nodes: int, now_ms: int) -> tuple[ClusterFact, ...]:
        """What a job on the node hears of now: nothing while the breaker is open."""
        if self.why_held(num_nodes, now_ms):
            return ()
        return tuple(effective(self._store.on_node(node), self._appeared_ms, now_ms))

    def appeared_ms(self, fact: ClusterFact) -> int:
        """When the operator first heard of a standing fault."""
        return self._appeared_ms[fact.id]

    def kept_out(self) -> frozenset[str]:
        """Names of nodes on which nothing new should be placed, whatever the breaker says."""
        return self._store.kept_out()

    def why_held(self, num_nodes: int, now_ms: int) -> str:
        """Why jobs are told of no fault now, for people; empty: they are."""
        return self._breaker.why_open(num_nodes, now_ms)

    def wakes_in_ms(self, num_nodes: int, now_ms: int) -> int | None:
        """How long until `news` may answer otherwise by itself; None: never."""
        waits = [due - now_ms for due in self._due_ms.values()]
        if held := self._breaker.closes_in_ms(num_nodes, now_ms):
            waits.append(held)
        return max(min(waits), 0) if waits else None

    def __len__(self) -> int:
        return len(self._store)

    def _follow(self, change: FaultChange, now_ms: int) -> None:
        for fact in change.withdrawn:
            self._appeared_ms.pop(fact.id, None)
        for fact in change.appeared:
            self._appeared_ms.setdefault(fact.id, now_ms)
        for node in change.nodes:
            self._look(node, now_ms)

    def _look(self, node: str, now_ms: int) -> None:
        """Count the node among the bad ones or not, and note when its faults change by themselves."""
        facts = self._store.on_node(node)
        self._untold.add(node)
        due = next_due_ms(facts, self._appeared_ms, now_ms)
        if due is None:
            self._due_ms.pop(node, None)
        else:
            self._due_ms[node] = due
        is_bad = any(fact.harms for fact in effective(facts, self._appeared_ms, now_ms))
        if is_bad and node not in self._bad:
            self._bad.add(node)
            self._breaker.turned_bad(node, now_ms)
        elif not is_bad and node in self._bad:
            self._bad.discard(node)
            self._breaker.turned_well(node)
