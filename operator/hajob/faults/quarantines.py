"""Keeps the NodeQuarantines current, and reports which nodes they keep out.

A node's quarantine is a function of the present one and of the standing faults (`hajob.faults.rules.quarantine`); it is
computed after every change and written, several nodes at a time. Only the leader writes; a standby only reads.
Nothing is changed while faults are not believed, or not all of them are known yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from hajob import metrics
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.quarantine import BY_HAND, NodeQuarantine, QuarantineState
from hajob.capacity.caches import Caches
from hajob.clock import Clock
from hajob.faults.node_quarantine import node_quarantine
from hajob.faults.rules.cluster_faults import mark_node
from hajob.faults.rules.quarantine import (
    QuarantineSettings,
    counting_offences,
    keeps_node_out,
    next_change_ms,
    next_quarantine,
    pardoned_faults,
)
from hajob.faults.watch import FaultListener, FaultWatch
from hajob.kube.client import ApiError, Kube
from hajob.kube.informer import Change, ChangeType, Informer, Selection
from hajob.leader.leadership import Leadership

log = logging.getLogger(__name__)

WRITERS: Final = 16
"""So many are written at once: a rack that goes is quarantined within seconds."""
LOOK_SECONDS: Final = 5.0
"""So often it is asked which quarantines are over."""
RETRY_SECONDS: Final = 2.0
_MEANWHILE: Final = frozenset({404, 409})
"""It was made, changed or deleted by somebody else a moment ago."""


class OffenceSource:
    """Who knows how often nodes were isolated: the quarantines. This one knows none."""

    def offences_by_node(self) -> Mapping[str, int]:
        """Return the offences that count now, by node."""
        return {}


class Quarantines(FaultListener, OffenceSource):
    """The quarantines of the cluster.

    Args:
        kube: the API, as the leader may use it.
        clock: for times and pauses.
        faults: what stands.
        caches: the nodes, and which are another operator's: nothing is written for these, but they are kept out, too.
        leadership: of this process.

    Attributes:
        informer: to be run for as long as the process.
    """

    def __init__(self, kube: Kube, clock: Clock, faults: FaultWatch, caches: Caches, leadership: Leadership) -> None:
        self._kube, self._clock, self._faults = kube, clock, faults
        self._caches, self._leadership = caches, leadership
        self._known: dict[str, NodeQuarantine] = {}
        self._wanted: dict[str, NodeQuarantine | None] = {}
        self._active: set[str] = set()
        self.kept_out: set[str] = set()  # the same, as last reported
        self._ours: set[str] = set()  # of these, what this operator has decided itself
        faults.cluster.pardoned = self.pardoned_faults
        self._inherited = faults.cluster.known_bad  # isolated when this process began
        self._could = False
        self._refused: set[str] = set()
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self.informer: Informer[NodeQuarantine] = Informer(
            kube, clock, Selection(names.QUARANTINES), NodeQuarantine.from_object, self._apply_change
        )

    def pardoned_faults(self, node: str) -> Collection[str]:
        """Return the names of the node's faults that an admin has pardoned."""
        return pardoned_faults(self._current_quarantine(node), self._clock.now_milliseconds())

    def offences_by_node(self) -> Mapping[str, int]:
        """Return the offences that count now, by node: each quiet day has taken one away."""
        now_ms, settings = self._clock.now_milliseconds(), self._settings
        return {node: counting_offences(one, now_ms, settings) for node, one in self._known.items()}

    @property
    def _leads(self) -> bool:
        return self._leadership.fence > 0

    @property
    def _settings(self) -> QuarantineSettings:
        return self._faults.settings.quarantine

    async def write_for_ever(self) -> None:
        """Write what is due until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._check_periodically(), name="quarantines that end")
            for _ in range(WRITERS):
                group.create_task(self._write_queued(), name="writer of quarantines")

    # --------------------------------------------------------------------------------------------- changes

    def handle_changed_faults(self, nodes: Iterable[str]) -> None:
        """Update the quarantines of these nodes, because their faults have changed."""
        decides, turned = self._may_decide(), set()
        for node in nodes:
            if decides:
                self._update_quarantine(node)
            if self._has_turned(node):
                turned.add(node)
        self._report_turned(frozenset(turned))

    def handle_breaker_change(self, held: str) -> None:
        """Update all quarantines once faults are believed again (empty): none was processed meanwhile."""
        if not held:
            self.update_all()

    def update_all(self) -> None:
        """Update all quarantines: this process now leads, faults are believed again, or the settings have changed."""
        self.handle_changed_faults({*self._faults.cluster.nodes_with_faults(), *self._known, *self._wanted})

    def _apply_change(self, change: Change[NodeQuarantine]) -> None:
        """Store the server's newest version; it replaces a pending write."""
        node = change.value.metadata.name
        before, state = self._known.get(node), change.value.status.state
        newly_released = state is QuarantineState.RELEASED and (before is None or before.status.state is not state)
        if change.type is ChangeType.DELETED or newly_released:
            self._faults.pardon(node)
        if change.type is ChangeType.DELETED:
            self._known.pop(node, None)
        else:
            self._known[node] = change.value
            if not self.informer.synced.is_set():
                self._inherited.add(node)
        self._wanted.pop(node, None)
        self.handle_changed_faults({node})

    def _may_decide(self) -> bool:
        """Whether this process leads, knows all faults, and believes them."""
        settled = self.informer.synced.is_set() and self._faults.complete
        return self._leads and settled and not self._faults.why_held()

    def _current_quarantine(self, node: str) -> NodeQuarantine | None:
        return self._wanted[node] if node in self._wanted else self._known.get(node)

    def _update_quarantine(self, node: str) -> None:
        """Compute the node's quarantine, and schedule a write if it differs."""
        if self._caches.is_foreign_node(node):
            self._refused.discard(node)
            return
        facts = self._faults.of_quarantine(node) if node in self._caches.own_nodes else []
        current, now = self._current_quarantine(node), self._clock.now_milliseconds()
        wanted = next_quarantine(node, current, facts, now, self._settings, counts=self._faults.cluster.counts)
        if wanted is not None and keeps_node_out(wanted, now) and not self._has_room(node):
            return
        self._refused.discard(node)
        if wanted != current:
            self._wanted[node] = wanted
            self._enqueue_write(node)
            self._faults.look_at(node)  # another one may be pardoned now

    def _has_room(self, node: str) -> bool:
        """Whether one more node may be kept out: the share limits what the operator does by itself."""
        ours, most = len(self._ours), self._settings.most_nodes(len(self._caches.own_nodes))
        if node in self._active or ours < most:
            return True
        if node not in self._refused:
            self._refused.add(node)
            log.warning("node %s is not quarantined: %d are, of at most %d; see docs/admin/faults.md", node, ours, most)
        return False

    def _has_turned(self, node: str) -> bool:
        """Update whether the node is kept out and by whom; return whether that has changed."""
        current, before = self._current_quarantine(node), node in self._active
        keeps_out = keeps_node_out(current, self._clock.now_milliseconds())
        mark_node(self._active, node, is_so=keeps_out)
        own = (
            keeps_out
            and current is not None
            and current.spec.source != BY_HAND
            and not self._caches.is_foreign_node(node)
        )
        mark_node(self._ours, node, is_so=own)
        return keeps_out is not before

    def _report_turned(self, turned: frozenset[str]) -> None:
        """Report the changed nodes to the faults and the jobs."""
        metrics.QUARANTINED.set(len(self._active))
        metrics.QUARANTINES_REFUSED.set(len(self._refused))
        self._inherited &= self._active
        if not turned:
            return
        self.kept_out.clear()
        self.kept_out.update(self._active)
        self._faults.note_turned_places(turned)

    async def _check_periodically(self) -> None:
        """End quarantines that are over; retry nodes for which there was no room."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            could, self._could = self._could, self._may_decide()
            # While faults are not believed none is processed, so all of them are due at once when they are believed
            # again.
            if self._could and not could:  # faults from before that were not processed
                self.update_all()
            settings, now = self._settings, self._clock.now_milliseconds()
            due = {
                node
                for node, one in self._known.items()
                if node not in self._wanted and (at := next_change_ms(one, settings)) is not None and at <= now
            }
            self.handle_changed_faults(due | self._refused)
            self._report_turned(frozenset(filter(self._has_turned, {*self._known, *self._wanted, *self._active})))

    # ---------------------------------------------------------------------------------------------- writes

    def _enqueue_write(self, node: str) -> None:
        if node not in self._queued:
            self._queued.add(node)
            self._queue.put_nowait(node)

    async def _write_queued(self) -> None:
        while True:
            node = await self._queue.get()
            self._queued.discard(node)
            if node not in self._wanted or not self._leads:
                continue
            try:
                await self._write_quarantine(node, self._known.get(node), self._wanted[node])
            except ApiError as error:
                log.warning("NodeQuarantine %s: %s; trying again soon", node, error)
                # The other writers go on meanwhile; where the server refuses them all, it is spared.
                await self._clock.sleep(RETRY_SECONDS)
                self._enqueue_write(node)

    async def _write_quarantine(self, node: str, known: NodeQuarantine | None, wanted: NodeQuarantine | None) -> None:
        """Write the wanted quarantine; another writer's change comes back by the watch."""
        try:
            if wanted is None:
                if known is None:
                    self._wanted.pop(node, None)
                else:
                    await self._kube.delete_object(names.QUARANTINES, "", node, uid=known.metadata.uid)
            elif known is None:
                await self._kube.create_object(names.QUARANTINES, "", self._body_of_quarantine(wanted))
            else:
                await self._kube.patch_object(names.QUARANTINES, "", node, _patch_of_quarantine(known, wanted))
        except ApiError as error:
            if error.status not in _MEANWHILE:
                raise
            log.info("NodeQuarantine %s has changed meanwhile: %s", node, error.reason)
            self._wanted.pop(node, None)

    def _body_of_quarantine(self, wanted: NodeQuarantine) -> Json:
        node, body = self._caches.own_nodes.get(wanted.spec.node_name), wanted.to_json()
        return body | node_quarantine(body["spec"], node.uid if node is not None else "")


def _patch_of_quarantine(known: NodeQuarantine, wanted: NodeQuarantine) -> Json:
    """Build the merge patch; it fails where the object has another version by now."""
    patch: Json = {"metadata": {"resourceVersion": known.metadata.resource_version}}
    before, after = known.to_json(), wanted.to_json()
    for part in ("spec", "status"):
        old, new = before.get(part) or {}, after.get(part) or {}
        changed = {name: new.get(name) for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
        if changed:
            patch[part] = changed
    return patch
