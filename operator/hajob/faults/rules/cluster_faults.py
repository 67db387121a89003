"""The faults of the cluster as jobs receive them: store, filters, doubts, pardons and breaker together.

The caller hands in what was read and asks which nodes have changed. While the breaker holds faults back (a flood,
silent writers, a clock that jumped) no change is reported, and afterwards all of them are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Final

from hajob.capacity.caches import Caches
from hajob.domain.facts import FactKind, Source
from hajob.domain.hardware import ClusterFact, Level
from hajob.faults.rules.filters import (
    LINK_DOWN,
    LINK_MEMORY_MS,
    Frequency,
    LinkFault,
    effective_faults,
    link_of_fault,
    next_due_ms,
)
from hajob.faults.rules.holds import Breaker, ClockGuard, Feeds
from hajob.faults.rules.messages import Messages
from hajob.faults.rules.quarantine import is_pardoned
from hajob.faults.rules.store import FaultChange, FaultStore
from hajob.sources.reading import Reading, Rejection

Names = Collection[str]
_SECOND_MS: Final = 1000
_OF_THE_MACHINE: Final = frozenset({Source.NODE, Source.NODE_HARDWARE})
"""Sources that write only when something changes, so that nobody may take back what a boot has ended."""
_PAST: Final = 1000
"""Nodes with links that came up, beyond which it is asked which of them are of interest still."""


class ClusterFaults:
    """Every method costs what the nodes in question hold. Times are milliseconds of one clock that never runs back.

    Args:
        nodes: names of the nodes that exist; a fault of any other stands, and counts once its node appears.
        caches: nodes, and the pods on them; None: no chip is idle.

    Attributes:
        idle_chips_count: whether faults of chips that no pod has count, too.
        pardoned: names of the faults of a node that an admin has pardoned: they harm nobody.
    """

    def __init__(self, nodes: Names, caches: Caches | None = None) -> None:
        self._nodes, self._caches = nodes, caches
        self.idle_chips_count = False
        self.known_bad: set[str] = set()
        self.pardoned: Callable[[str], Names] = lambda _: ()
        self.breaker, self.frequency = Breaker(), Frequency()
        self.feeds, self.clock = Feeds(), ClockGuard()
        self._store, self._messages = FaultStore(), Messages()
        self.turns = self._messages.turns
        self._appeared_ms: dict[str, int] = {}
        self._past_links: dict[str, list[tuple[int, LinkFault]]] = {}
        self._most_past = _PAST
        self._bad: set[str] = set()
        self._untold: set[str] = set()
        self._due_ms: dict[str, int] = {}
        self.kept_out: set[str] = set()
        self.sub_healthy: set[str] = set()
        self._silence = (-_SECOND_MS, "")
        self._silent: frozenset[str] = frozenset()
        self._boots: dict[str, str] = {}
        self._before_boot: dict[str, dict[str, int | None]] = {}

    def store_object(self, origin: str, reading: Reading, now_ms: int, *, keeps: bool = False) -> list[Rejection]:
        """Store an object's content (see `FaultStore.store_report`).

        Returns:
            The parts for which there is no room.
        """
        refused: list[Rejection] = []
        if keeps:
            reading, refused = self._messages.accept_message(reading, now_ms)
        self._apply_fault_change(self._store.store_report(origin, reading, keeps=keeps), now_ms)
        for node in {fact.node for fact in reading.facts} & self._before_boot.keys():
            self._update_node(node, now_ms)  # told anew: it is doubted no more
        return refused

    def counts(self, fact: ClusterFact) -> bool:
        """Return whether a fault begins a quarantine and counts as a recurrence; of an idle chip the admin decides."""
        if self.idle_chips_count or not fact.chip_number or self._caches is None:
            return True
        return not self._caches.is_idle_chip(fact.node, fact.chip_number)

    def must_wait(self, origin: str, message: Reading, now_ms: int) -> bool:
        """Return whether a message must wait, as its sender sends too many; `turns` returns it in its turn."""
        return not self.turns.has_turn(origin, message, now_ms)

    def forget_object(self, origin: str, now_ms: int) -> None:
        """Remove an object, and what only it has told."""
        self.feeds.forget_writer(origin)
        self.turns.drop_object(origin)
        change = self._store.forget_object(origin)
        self._messages.forget_faults(fact.id for fact in change.withdrawn)
        self._apply_fault_change(change, now_ms)

    def end_other_senders(self, senders: Names, now_ms: int) -> None:
        """End the faults that anybody else has sent: they are not allowed to send any more."""
        self._apply_fault_change(self._store.end_faults(self._messages.end_of_others(senders)), now_ms)

    def note_boot(self, node: str, boot: str) -> None:
        """Note the boot of a node, before what it says now is taken.

        What was told before another boot is doubted until its writer tells it with another time: the machine that was
        sick then has started anew.
        """
        before, self._boots[node] = self._boots.get(node, boot), boot
        if boot != before:
            self._before_boot[node] = {
                fact.id: fact.told_ms for fact in self._store.faults_on_node(node) if fact.source in _OF_THE_MACHINE
            }

    def forget_node(self, node: str) -> None:
        """Forget the boots of a node that is gone."""
        self._boots.pop(node, None)
        self._before_boot.pop(node, None)

    def pardon_node(self, node: str, now_ms: int) -> None:
        """Count the faults of this node's chips anew, from 0, because an admin has let it in again."""
        self.frequency.forget_node(node)
        self.update_node(node, now_ms)

    def update_node(self, node: str, now_ms: int) -> None:
        """Update a node that came or went, or was quarantined or released."""
        if self._store.faults_on_node(node) or node in self._bad:
            self._update_node(node, now_ms)

    def update_all(self, now_ms: int) -> None:
        """Evaluate all nodes again, because the settings have changed."""
        for node in self._store.nodes_with_faults():
            self._update_node(node, now_ms)

    def believe_all(self, now_ms: int) -> None:
        """Believe all faults, because an admin has confirmed them."""
        self.breaker.believe_all()
        self.clock.forget_jump()
        self.update_all(now_ms)

    def take_changed_nodes(self, now_ms: int) -> frozenset[str]:
        """Return the nodes whose faults have changed; none while faults are held back."""
        if ended := self._messages.take_ended(now_ms):
            self._apply_fault_change(self._store.end_faults(ended), now_ms)
        for node in [node for node, due in self._due_ms.items() if due <= now_ms]:
            self._update_node(node, now_ms)
        self._why_silent(now_ms)
        if self.why_held(now_ms):
            return frozenset()
        news, self._untold = frozenset(self._untold), set()
        return news

    def faults_on_node(self, node: str, now_ms: int) -> tuple[ClusterFact, ...]:
        """Return the faults that a job on the node receives now: none while they are held back."""
        return () if self.why_held(now_ms) else tuple(self._effective_faults(node, now_ms))

    def standing_faults(self, node: str, now_ms: int) -> list[ClusterFact]:
        """Return the faults that concern a job on the node, believed or not."""
        return [fact for fact in self._effective_faults(node, now_ms) if fact.harms]

    def faults_for_quarantine(self, node: str, now_ms: int) -> list[ClusterFact]:
        """Return the faults that keep new pods off the node, or harm a job there, pardoned ones included."""
        return [
            fact
            for fact in self._believed_faults(node, now_ms)
            if fact.level is not None and (fact.isolates or fact.harms)
        ]

    def has_faults(self, node: str) -> bool:
        """Return whether any fault stands on the node or one of its chips."""
        return bool(self._store.faults_on_node(node))

    def appeared_ms(self, fact: ClusterFact) -> int:
        """Return when the operator first heard of a standing fault."""
        return self._appeared_ms[fact.id]

    def silent_objects(self, now_ms: int) -> list[str]:
        """Return the objects whose writers are silent."""
        return self.feeds.silent_writers(now_ms, self._nodes)

    def nodes_with_faults(self) -> frozenset[str]:
        """Return the names of the nodes with standing faults."""
        return self._store.nodes_with_faults()

    def why_held(self, now_ms: int) -> str:
        """Return why jobs receive no faults now, for people; empty: they do."""
        return (
            self.breaker.why_open(len(self._nodes), now_ms) or self._why_silent(now_ms) or self.clock.why_held(now_ms)
        )

    def wakes_in_ms(self, now_ms: int) -> int | None:
        """Return how long until `news` may change by time alone; None: never."""
        waits = [due - now_ms for due in self._due_ms.values()]
        waits += [
            one for one in (self.clock.wakes_in_ms(now_ms), self._messages.wakes_in_ms(now_ms)) if one is not None
        ]
        return max(min(waits), 0) if waits else None

    def __len__(self) -> int:
        return len(self._store)

    def _why_silent(self, now_ms: int) -> str:
        """Return why too many writers are silent; checked once a second, because it asks every writer."""
        looked_ms, why = self._silence
        if now_ms < looked_ms + _SECOND_MS:
            return why
        nodes, before = self._nodes, self._silent
        origins = self.feeds.silent_writers(now_ms, nodes)
        self._silent = frozenset(self.feeds.node_of_writer(origin) for origin in origins)
        silent = sum(Source.DEVICE in self.feeds.silent_sources(node, now_ms) for node in self._silent)
        total = self.feeds.count_writers(nodes, Source.DEVICE)
        limit = self.breaker.settings.limit_of_bad_nodes(total)
        why = f"silent device plugins: {silent} of {total}; the limit is {limit}" if silent > limit else ""
        self._silence = (now_ms, why)
        for node in before ^ self._silent:
            self.update_node(node, now_ms)
        return why

    def _effective_faults(self, node: str, now_ms: int) -> list[ClusterFact]:
        """Return the faults that count on a node: those that are believed, without those that are pardoned."""
        found, pardoned = self._believed_faults(node, now_ms), self.pardoned(node)
        return [fact for fact in found if not is_pardoned(fact, pardoned)] if pardoned else found

    def _believed_faults(self, node: str, now_ms: int) -> list[ClusterFact]:
        past = [link for until, link in self._past_links.get(node, ()) if until > now_ms]
        facts = [self._with_doubts(fact, now_ms) for fact in self._store.faults_on_node(node)]
        return effective_faults(
            facts, self._appeared_ms, now_ms, past, lambda fact: self.frequency.is_fault_frequent(fact, now_ms)
        )

    def _with_doubts(self, fact: ClusterFact, now_ms: int) -> ClusterFact:
        """Return the fault, harmless where nobody may be there any more to say that it is over.

        It keeps new pods away as before.
        """
        if fact.level is None:
            return fact
        if fact.source in self.feeds.silent_sources(fact.node, now_ms):
            return _harmless_fact(fact, "its writer has been silent for too long")
        before = self._before_boot.get(fact.node)
        if before is not None and fact.id in before and before[fact.id] == fact.told_ms:
            return _harmless_fact(fact, "it was told before the node booted")
        return fact

    def _apply_fault_change(self, change: FaultChange, now_ms: int) -> None:
        for fact in change.withdrawn:
            appeared = self._appeared_ms.pop(fact.id, now_ms)
            self._before_boot.get(fact.node, {}).pop(fact.id, None)
            if fact.code in LINK_DOWN:
                self._remember_link(fact.node, link_of_fault(fact, appeared), now_ms)
        for fact in change.appeared:
            if fact.id not in self._appeared_ms:
                self._appeared_ms[fact.id] = now_ms
                if self.counts(fact):
                    self.frequency.count_fault(self._with_doubts(fact, now_ms), now_ms)
        for node in change.affected_nodes:
            self._update_node(node, now_ms)

    def _remember_link(self, node: str, link: LinkFault, now_ms: int) -> None:
        """Store a link that came up; periodically drop what is too old on other nodes."""
        past = self._past_links
        past[node] = [*(one for one in past.get(node, ()) if one[0] > now_ms), (now_ms + LINK_MEMORY_MS, link)]
        if len(past) > self._most_past:
            self._past_links = {name: links for name, links in past.items() if links[-1][0] > now_ms}
            self._most_past = max(_PAST, 2 * len(self._past_links))

    def _update_node(self, node: str, now_ms: int) -> None:
        """Update whether the node counts as bad, and when its faults change by time alone."""
        pardoned = self.pardoned(node)
        standing = [fact for fact in self._store.faults_on_node(node) if not is_pardoned(fact, pardoned)]
        facts = self._effective_faults(node, now_ms)
        self._untold.add(node)
        due = next_due_ms(standing, self._appeared_ms, now_ms)
        if due is None:
            self._due_ms.pop(node, None)
        else:
            self._due_ms[node] = due
        mark_node(self.kept_out, node, is_so=any(fact.isolates for fact in (*standing, *facts)))
        mark_node(self.sub_healthy, node, is_so=any(fact.level is Level.SUB_HEALTH for fact in facts))
        is_bad = node in self._nodes and any(_is_bad_for_breaker(fact) for fact in facts)
        if is_bad and node in self.known_bad:
            self._bad.add(node)
            self.breaker.note_well_node(node)
        elif is_bad and node not in self._bad:
            self._bad.add(node)
            self.breaker.note_bad_node(node, now_ms)
        elif not is_bad and node in self._bad:
            self._bad.discard(node)
            self.breaker.note_well_node(node)


def _is_bad_for_breaker(fact: ClusterFact) -> bool:
    """Whether it counts for the breaker: a node that is not ready does, one that is to be emptied does not."""
    return fact.harms and fact.kind is not FactKind.CORDONED


def _harmless_fact(fact: ClusterFact, why: str) -> ClusterFact:
    return dataclasses.replace(fact, harms=False, message=f"{fact.message}; but {why}")


def mark_node(nodes: set[str], node: str, *, is_so: bool) -> None:
    """Add a node to the set, or remove it."""
    if is_so:
        nodes.add(node)
    else:
        nodes.discard(node)
