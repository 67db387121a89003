"""The standing faults of nodes and chips, from all sources together.

A source reports the full content of an object each time; the store compares it with the content before.
A fault stands for as long as one object reports it, so a report by device plugin and ClusterD is one fault, and
appears and goes once. Nothing here knows a job (docs/admin/faults.md, "From a fact to a job").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hajob.domain.facts import Source
from hajob.domain.hardware import SEVERITY, ClusterFact
from hajob.sources.reading import Reading


@dataclass(frozen=True, slots=True)
class FaultChange:
    """The changes that one object caused.

    Attributes:
        appeared: faults that are new, or got worse or milder.
        withdrawn: faults that no object reports any more.
    """

    appeared: tuple[ClusterFact, ...] = ()
    withdrawn: tuple[ClusterFact, ...] = ()

    @property
    def affected_nodes(self) -> frozenset[str]:
        """Return the names of the affected nodes."""
        return frozenset(fact.node for fact in (*self.appeared, *self.withdrawn))


class FaultStore:
    """All faults that stand. Every method costs what the object holds, never what the cluster holds."""

    def __init__(self) -> None:
        self._told: dict[str, Mapping[str, ClusterFact]] = {}
        self._by_id: dict[str, dict[str, ClusterFact]] = {}
        self._on_node: dict[str, dict[str, ClusterFact]] = {}

    def store_report(self, origin: str, reading: Reading, *, keeps: bool = False) -> FaultChange:
        """Store what an object reports.

        Args:
            origin: which object, such as "kube-system/mindx-dl-deviceinfo-node-1".
            reading: its content.
            keeps: the object is a message and not a state: what it told before stands until it is said to be over.
        """
        now = {fact.id: fact for fact in reading.facts}
        if keeps:
            now = {**self._told.get(origin, {}), **now}
        for over in reading.over:
            now.pop(over, None)
        return self._replace_report(origin, now, ended=reading.over)

    def forget_object(self, origin: str) -> FaultChange:
        """Remove an object, and with it the faults that only it reports."""
        return self._replace_report(origin, {})

    def end_faults(self, faults: Iterable[str]) -> FaultChange:
        """End these faults, whichever objects report them."""
        return self._replace_report("", {}, ended=list(faults))

    def faults_on_node(self, node: str) -> tuple[ClusterFact, ...]:
        """Return the faults that stand on a node or one of its chips."""
        return tuple(self._on_node.get(node, {}).values())

    def nodes_with_faults(self) -> frozenset[str]:
        """Return the names of the nodes with standing faults."""
        return frozenset(self._on_node)

    def __len__(self) -> int:
        return len(self._by_id)

    def _replace_report(self, origin: str, now: Mapping[str, ClusterFact], ended: Iterable[str] = ()) -> FaultChange:
        before = self._told.get(origin, {})
        if now:
            self._told[origin] = now
        else:
            self._told.pop(origin, None)
        appeared, withdrawn = [], []
        # Each fault once, although it may stand before and now and be ended by the same message.
        for fact_id in dict.fromkeys((*before, *now, *ended)):
            old = self._worst_report(fact_id)
            self._store_fault(fact_id, origin, now.get(fact_id), everywhere=fact_id in ended)
            new = self._worst_report(fact_id)
            if new is not None and not _is_same_to_jobs(old, new):
                appeared.append(new)
            elif new is None and old is not None:
                withdrawn.append(old)
            self._place_fault(fact_id, old, new)
        return FaultChange(tuple(appeared), tuple(withdrawn))

    def _store_fault(self, fact_id: str, origin: str, fact: ClusterFact | None, *, everywhere: bool) -> None:
        """Store one object's report of one fault; the end of a fault holds for every object that reports it."""
        told = self._by_id.setdefault(fact_id, {})
        if everywhere:
            for other in told:
                self._told[other] = {key: value for key, value in self._told.get(other, {}).items() if key != fact_id}
            told.clear()
        elif fact is None:
            told.pop(origin, None)
        else:
            told[origin] = fact
        if not told:
            del self._by_id[fact_id]

    def _worst_report(self, fact_id: str) -> ClusterFact | None:
        """Return the fault in its worst report."""
        told = self._by_id.get(fact_id)
        return max(told.values(), key=_severity_of_fact) if told else None

    def _place_fault(self, fact_id: str, old: ClusterFact | None, new: ClusterFact | None) -> None:
        node = (new or old).node if (new or old) else ""  # type: ignore[union-attr]  # one of the two is there
        here = self._on_node.setdefault(node, {})
        if new is not None:
            here[fact_id] = _as_it_began(here.get(fact_id), new)
        else:
            here.pop(fact_id, None)
        if not here:
            del self._on_node[node]


def _as_it_began(known: ClusterFact | None, fact: ClusterFact) -> ClusterFact:
    """Keep a fault's start time: another report may lack it, and NodeD gives that of its writing."""
    tells_time = fact.since_ms is not None and fact.source is not Source.NODE_HARDWARE
    if known is None or (tells_time and known.since_ms is not None):
        return fact
    return dataclasses.replace(fact, since_ms=known.since_ms)


def _severity_of_fact(fact: ClusterFact) -> int:
    return SEVERITY[fact.level] if fact.level is not None else len(SEVERITY)


def _is_same_to_jobs(old: ClusterFact | None, new: ClusterFact) -> bool:
    """Whether nothing has changed that matters to a job."""
    return old is not None and (old.kind, old.level, old.harms) == (new.kind, new.level, new.harms)
