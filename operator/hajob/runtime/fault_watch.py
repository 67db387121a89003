"""Watches the objects that tell of faults of nodes and chips, and tells the core which nodes have news.

Which objects, and how they are read, is a table (`hajob.sources.registry`); what stands and what is believed is
`hajob.cluster`. Here are only the watches and the one timer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hajob.api.base import Json
from hajob.cluster.faults import ClusterFaults
from hajob.domain.hardware import ClusterFact
from hajob.runtime import metrics
from hajob.runtime.clock import Clock, Timer
from hajob.runtime.informer import Change, ChangeType, Informer
from hajob.runtime.kube import Kube
from hajob.sources import registry
from hajob.sources.reading import Reading, Terms

log = logging.getLogger(__name__)

MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class ReadObject:
    """One object, as its parsers have read it; `keeps`: it is a message, and not a state."""

    origin: str
    reading: Reading
    keeps: bool


class FaultWatch:
    """The faults of the cluster, kept current.

    Args:
        kube: the API.
        clock: for times and the timer.
        num_nodes: of the cluster, for the breaker.
        namespaces: where the objects are; one that may not be read is asked for again, now and then.
        tell: called with the names of nodes whose faults have changed for the jobs on them.

    Attributes:
        informers: to be run for as long as the process.
    """

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        num_nodes: Callable[[], int],
        tell: Callable[[frozenset[str]], None],
        namespaces: Sequence[str],
    ) -> None:
        self._clock, self._num_nodes, self._tell = clock, num_nodes, tell
        self._faults = ClusterFaults()
        self._timer: Timer | None = None
        self._held = ""
        self.informers = [
            Informer(kube, clock, "configmaps", self._read, self._changed, namespace=namespace, label_selector=selector)
            for namespace in namespaces
            for selector in dict.fromkeys(row.selector for row in registry.SOURCES if row.kind == "ConfigMap")
        ]

    def on_node(self, node: str) -> list[tuple[ClusterFact, int]]:
        """What a job on the node hears of now, each with how many milliseconds ago it was first heard of."""
        now = self._now_ms()
        facts = self._faults.of_node(node, self._num_nodes(), now)
        return [(fact, now - self._faults.appeared_ms(fact)) for fact in facts]

    def kept_out(self) -> frozenset[str]:
        """Names of nodes with isolated chips, on which nothing new should be placed."""
        return self._faults.kept_out()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * MILLISECONDS)

    def _read(self, raw: Json) -> ReadObject:
        metadata = raw["metadata"]
        whole = {**raw, "kind": "ConfigMap"}  # the items of a list do not say it
        reading = registry.read(whole, Terms(self._clock.now_milliseconds()))
        keeps = any(row.keeps for row in registry.SOURCES if row.takes(whole))
        return ReadObject(f"{metadata.get('namespace', '')}/{metadata['name']}", reading, keeps)

    def _changed(self, change: Change[ReadObject]) -> None:
        found = change.value
        for one in found.reading.rejected if change.type is not ChangeType.DELETED else ():
            metrics.REFUSED.labels(f"fault source: {one.reason}").inc()
            log.warning("%s: %s", found.origin, one.message)
        if change.type is not ChangeType.DELETED:
            self._faults.take(found.origin, found.reading, self._now_ms(), keeps=found.keeps)
        elif not found.keeps:
            self._faults.forget(found.origin, self._now_ms())
        self._tell_news()

    def _tell_news(self) -> None:
        """Tell what there is to tell, and wake again when that changes by itself."""
        nodes, now = self._num_nodes(), self._now_ms()
        metrics.HARDWARE_FAULTS.set(len(self._faults))
        news, held = self._faults.news(nodes, now), self._faults.why_held(nodes, now)
        metrics.BREAKER_OPEN.set(1 if held else 0)
        if bool(held) != bool(self._held):
            log.warning("breaker: %s", held or "closed again, jobs are told of faults")
        self._held = held
        if self._timer is not None:
            self._timer.cancel()
        wait = self._faults.wakes_in_ms(nodes, now)
        self._timer = self._clock.call_later(wait / MILLISECONDS, self._tell_news) if wait is not None else None
        if news:
            self._tell(news)
