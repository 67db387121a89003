"""Watches the objects that report faults of nodes and chips, and tells the core which nodes' faults changed.

`hajob.sources.registry` is the table of these objects and their parsers; `hajob.faults.rules` keeps the
standing faults and decides which are believed. This module has only the watches, the one timer, and what
could not be read.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hajob import metrics
from hajob.api.base import Json
from hajob.capacity.caches import Caches
from hajob.clock import Alarm, Clock
from hajob.domain.facts import Source
from hajob.domain.hardware import ClusterFact
from hajob.faults.node_faults import NodeFaults
from hajob.faults.rules.cluster_faults import ClusterFaults
from hajob.faults.rules.holds import WriteTime
from hajob.faults.rules.settings import NAME as SETTINGS_NAME
from hajob.faults.rules.settings import SELECTOR, FaultSettings
from hajob.faults.rules.settings import parse_settings as read_settings
from hajob.kube.client import Kube
from hajob.kube.informer import Change, ChangeType, Informer, Selection
from hajob.sources import registry
from hajob.sources.node import serial_of_node
from hajob.sources.reading import Reading, Rejection, RejectionReason, Terms, mapping, printable, text

log = logging.getLogger(__name__)

MILLISECONDS: Final = 1000
LOOK_MS: Final = 5_000
"""So often the clocks are compared, and whether writers have fallen silent is asked, if nothing else happens."""
MOST_SHOWN: Final = 500
"""So many objects or nodes the report names at most."""
CLOCK_HOLD_MS: Final = 60_000
"""For so long after a jump of the wall clock nothing is believed."""


@dataclass(frozen=True, slots=True)
class ReadObject:
    """One object, as its parsers have read it.

    Attributes:
        origin: namespace and name.
        reading: what it says.
        keeps: whether it is a message, and not a state.
        silent_after_ms: longest time between two writes; 0: its writer writes only when something changes.
        tells: sources whose facts it tells so regularly.
        node: of the writer; empty for an object of no single node.
        serial: of the machine, where the object is its Node.
        boot: another text after each start of the machine.
    """

    origin: str
    reading: Reading
    keeps: bool = False
    silent_after_ms: int = 0
    tells: frozenset[Source] = frozenset()
    node: str = ""
    serial: str = ""
    boot: str = ""


class FaultListener:
    """A receiver of changes; this one does nothing with them."""

    def handle_changed_faults(self, nodes: frozenset[str]) -> None:
        """Handle changed faults of these nodes, or a change in which of them are believed."""

    def handle_breaker_change(self, held: str) -> None:
        """Handle that no fault is believed from now on (why), or all are again (empty)."""

    def handle_changed_places(self) -> None:
        """Handle that nodes were isolated, or let in again."""


class Rejections:
    """The unusable parts of fault objects, by the object: counted, logged once, and listed for an admin."""

    def __init__(self) -> None:
        self._known: dict[str, Sequence[Rejection]] = {}

    def store_rejections(self, origin: str, rejected: Sequence[Rejection]) -> None:
        """Store the current rejections of an object; log only the new ones."""
        known = self._known.pop(origin, ())
        for one in known:
            metrics.REJECTED.labels(one.reason).dec()
        for one in rejected:
            metrics.REJECTED.labels(one.reason).inc()
            if one not in known:
                metrics.REFUSED.labels(f"fault source: {one.reason}").inc()
                log.warning("%s: %s", origin, one.rejection_message)
        if rejected:
            self._known[origin] = tuple(rejected)

    def rejected_values(self, reason: RejectionReason) -> set[str]:
        """Return the values that are rejected now for this reason."""
        return {one.found for row in self._known.values() for one in row if one.reason is reason}

    def rejection_report(self, most: int) -> Json:
        """Return how many there are by reason, and at most `most` of them."""
        rows = [
            {"object": origin, "reason": one.reason, "where": one.where, "message": one.rejection_message}
            for origin, row in self._known.items()
            for one in row
        ]
        return {"rejectedByReason": dict(Counter(one["reason"] for one in rows)), "rejected": rows[:most]}


class FaultWatch(NodeFaults):
    """The faults of the cluster, kept current.

    Args:
        kube: the API.
        clock: for times and the timer.
        caches: nodes, and the pods of jobs on them.
        namespaces: where the objects are; one that may not be read is asked for again, now and then.

    Attributes:
        informers: to be run for as long as the process.
        readers: informers of what tells of faults; that of nodes joins them, and is run by its maker.
        settings: the admin's.
        listeners: are told of every change, one after the other.
    """

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        caches: Caches,
        namespaces: Sequence[str],
    ) -> None:
        self._kube, self._clock = kube, clock
        self.listeners: list[FaultListener] = []
        self.cluster = ClusterFaults(caches.own_nodes.keys(), caches)
        self._alarm = Alarm(clock)
        self._held = ""
        self._rejections = Rejections()
        self._serials: dict[str, str] = {}
        self.settings = FaultSettings()
        selectors = dict.fromkeys(row.selector for row in registry.SOURCES if row.kind == "ConfigMap")
        self.readers: list[Informer[Any]] = [
            Informer(kube, clock, Selection("configmaps", namespace, selector), self._read_object, self._apply_change)
            for namespace in namespaces
            for selector in selectors
        ]
        self.informers = [*self.readers]

    def follow_settings(self, namespace: str) -> None:
        """Follow the admin's settings in this namespace, too; until they are read the usual ones hold."""
        selection = Selection("configmaps", namespace, SELECTOR)
        self.informers.append(Informer(self._kube, self._clock, selection, lambda raw: raw, self._apply_settings))

    # ------------------------------------------------------------------------------------------- questions

    def faults_on(self, node: str) -> list[tuple[ClusterFact, int]]:
        """Return the believed faults that concern a job on the node, each with milliseconds since it was first seen."""
        now = self._now_ms()
        return [(fact, now - self.cluster.appeared_ms(fact)) for fact in self.cluster.faults_on_node(node, now)]

    def standing_faults(self, node: str) -> list[ClusterFact] | None:
        """Return the standing faults of a node that concern a job there; None while they are unknown."""
        return self.cluster.standing_faults(node, self._now_ms()) if self.complete and not self._held else None

    def of_quarantine(self, node: str) -> list[ClusterFact]:
        """Return the faults that keep new pods off a node or harm a job there, believed and pardoned or not."""
        return self.cluster.faults_for_quarantine(node, self._now_ms())

    def why_held(self) -> str:
        """Return why no fault is believed now; empty: faults are believed."""
        return self._held

    @property
    def complete(self) -> bool:
        """Whether every readable object has been read: a fault that is not known then does not stand."""
        return all(informer.synced.is_set() or informer.refused for informer in self.readers)

    def state_report(self) -> Json:
        """Return the state for an admin who looks for the reason of an inaction; served at /faults."""
        return {
            "held": self._held,
            "standing": len(self.cluster),
            "nodes": sorted(self.cluster.nodes_with_faults())[:MOST_SHOWN],
            "silent": sorted(self.cluster.silent_objects(self._now_ms()))[:MOST_SHOWN],
            **self._rejections.rejection_report(MOST_SHOWN),
            "complete": self.complete,
        }

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * MILLISECONDS)

    # --------------------------------------------------------------------------------------------- changes

    def read_node_faults(self, raw: Json) -> ReadObject:
        """Read a Node's faults, under the present settings."""
        reading = registry.read_object({**raw, "kind": "Node"}, self._parsing_terms())
        reading.facts = [fact for fact in reading.facts if fact.harms or fact.level is not None]  # taints are no faults
        boot = text(mapping(mapping(raw.get("status")).get("nodeInfo")).get("bootID"))
        return ReadObject(f"/{raw['metadata']['name']}", reading, serial=serial_of_node(raw), boot=boot)

    def apply_node(self, name: str, found: ReadObject | None) -> None:
        """Handle a node as it is now; None: it is gone."""
        if found is not None:
            if found.boot:
                self.cluster.note_boot(name, found.boot)
            self._store_object(found)
            self._learn_serial(name, found.serial)
        else:
            self._forget_object(f"/{name}")
            self.cluster.forget_node(name)
            self._serials = {serial: node for serial, node in self._serials.items() if node != name}
        self.cluster.update_node(name, self._now_ms())
        self._report_changes()

    def _learn_serial(self, name: str, serial: str) -> None:
        """Store the serial number of a node's machine: messages may name a node by it, and come before the node."""
        if not serial or self._serials.get(serial) == name:
            return
        self._serials[serial] = name
        if printable(serial) in self._rejections.rejected_values(RejectionReason.UNKNOWN_NODE):
            self._reread_all()

    def _reread_all(self) -> None:
        for informer in self.readers:
            informer.reproject_all()

    def _parsing_terms(self) -> Terms:
        return self.settings.parsing_terms(self._clock.now_milliseconds(), self._serials)

    def pardon(self, node: str) -> None:
        """Count the faults of a node from 0, because an admin has released it."""
        self.cluster.pardon_node(node, self._now_ms())

    def look_at(self, node: str) -> None:
        """Update a node after it was quarantined or released."""
        self.cluster.update_node(node, self._now_ms())

    def note_turned_places(self, nodes: Collection[str]) -> None:
        """Update nodes that were isolated or let in again, and tell the listener."""
        for node in nodes:
            self.look_at(node)
        for listener in self.listeners:
            listener.handle_changed_places()

    def _read_object(self, raw: Json) -> ReadObject:
        metadata = raw["metadata"]
        whole = {**raw, "kind": "ConfigMap"}  # items of a list lack their kind
        reading = registry.read_object(whole, self._parsing_terms())
        rows = [row for row in registry.SOURCES if row.takes_object(whole)]
        silent_after = max((row.silent_after_seconds for row in rows), default=0)
        origin = f"{metadata.get('namespace', '')}/{metadata['name']}"
        node = next((metadata["name"].removeprefix(row.prefix) for row in rows if row.of_node), "")
        tells = frozenset[Source]().union(*(row.tells for row in rows))
        return ReadObject(origin, reading, any(row.keeps for row in rows), silent_after * MILLISECONDS, tells, node)

    def _apply_change(self, change: Change[ReadObject]) -> None:
        found = change.value
        if change.type is not ChangeType.DELETED:
            self._store_in_turn(found)
        else:
            self._forget_object(found.origin)
        self._report_changes()

    def _store_object(self, found: ReadObject) -> None:
        now, reading = self._now_ms(), found.reading
        if found.silent_after_ms and reading.updated_ms is not None:
            wall = self._clock.now_milliseconds()
            told = WriteTime(reading.updated_ms, wall, found.silent_after_ms, found.tells)
            self.cluster.feeds.note_writing(found.origin, found.node, told, now)
        refused = self.cluster.store_object(found.origin, reading, now, keeps=found.keeps)
        self._rejections.store_rejections(found.origin, [*reading.rejected, *refused])

    def _store_in_turn(self, found: ReadObject) -> None:
        """Process an object: at once if it was there at the start, otherwise in its sender's turn."""
        if found.keeps and self.complete and self.cluster.must_wait(found.origin, found.reading, self._now_ms()):
            sender = found.reading.sender
            self._rejections.store_rejections(found.origin, [Rejection(RejectionReason.RATE, "resource", sender)])
        else:
            self._store_object(found)

    def _store_due_messages(self) -> None:
        for origin, reading in self.cluster.turns.take_due(self._now_ms()):
            self._store_object(ReadObject(origin, reading, keeps=True))

    def _forget_object(self, origin: str) -> None:
        self._rejections.store_rejections(origin, ())
        self.cluster.forget_object(origin, self._now_ms())

    def _apply_settings(self, change: Change[Json]) -> None:
        if change.value["metadata"]["name"] != SETTINGS_NAME:
            return
        before, gone = self.settings, change.type is ChangeType.DELETED
        self.settings, reading = read_settings({} if gone else change.value, self._clock.now_milliseconds())
        self._rejections.store_rejections(f"settings {SETTINGS_NAME}", reading.rejected)
        faults, now = self.cluster, self._now_ms()
        faults.breaker.settings, faults.frequency.settings = self.settings.breaker, self.settings.frequency
        faults.idle_chips_count = self.settings.quarantine.idle_chips
        if self.settings.believe != before.believe and change.type is ChangeType.MODIFIED:
            log.warning("an admin says that what is told of nodes is true: %s", self.settings.believe)
            faults.believe_all(now)
        if not self.settings.reads_alike(before):
            self._reread_all()
        if self.settings.senders != before.senders:
            faults.end_other_senders(self.settings.senders, now)
        faults.update_all(now)
        self._report_changes()

    def _report_changes(self) -> None:
        """Pass on all changes, and wake again when faults change by time alone."""
        now = self._now_ms()
        self._store_due_messages()
        self.cluster.clock.compare_clocks(now, self._clock.now_milliseconds(), CLOCK_HOLD_MS)
        metrics.HARDWARE_FAULTS.set(len(self.cluster))
        news, held = self.cluster.take_changed_nodes(now), self.cluster.why_held(now)
        metrics.BREAKER_OPEN.set(1 if held else 0)
        turned, self._held = bool(held) != bool(self._held), held
        if turned:
            log.warning("breaker: %s", held or "closed again, jobs are told of faults")
        wait = self.cluster.wakes_in_ms(now)
        wait = LOOK_MS if wait is None else min(wait, LOOK_MS)
        self._alarm.set_alarm(wait / MILLISECONDS, self._report_changes)
        for listener in self.listeners if turned else ():
            listener.handle_breaker_change(held)
        for listener in self.listeners if news else ():
            listener.handle_changed_faults(news)
