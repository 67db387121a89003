"""Every source of hardware faults: which objects it reads, and with what.

A new source is one file with one pure function and one line here. Informers watch what the rows name;
`kubectl hajob facts` hands every object of a file to the row that takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hajob.domain.facts import Source
from hajob.sources import cluster_info, device_info, lease, node, node_info, public_fault, switch_info
from hajob.sources.reading import Reading, RejectionReason, Terms, is_node_name, mapping, name_of_object


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One source of facts: which objects it reads, and how.

    Attributes:
        name: for people.
        kind: of the objects.
        selector: label selector by which they are listed; empty: all of the kind.
        prefix: what their names begin with; what follows is the node, where `of_node`.
        label: a label that they carry, where the name says nothing.
        of_node: whether the name ends in a node's.
        keeps: the object is a message and not a state: what it told stands until it is said to be over.
        read: the pure parser; gets the object, the node's name (or nothing) and the terms.
        tells: sources of the facts that it writes, where it writes now and then though nothing changes.
        silent_after_seconds: without an update for so long the writer is taken for dead; 0: it writes only on change.
        ends: how its facts end, for the table in docs/admin/faults.md.
    """

    name: str
    kind: str
    read: Callable[[Mapping[str, Any], str, Terms], Reading]
    selector: str = ""
    prefix: str = ""
    label: str = ""
    of_node: bool = False
    keeps: bool = False
    tells: frozenset[Source] = frozenset()
    silent_after_seconds: int = 0
    ends: str = ""

    def takes_object(self, raw: Mapping[str, Any]) -> bool:
        """Return whether an object is this source's."""
        if raw.get("kind") != self.kind or not name_of_object(raw).startswith(self.prefix):
            return False
        return not self.label or self.label in mapping(mapping(raw.get("metadata")).get("labels"))


CONSUMER: Final = "mx-consumer-cim=true"
VOLCANO: Final = "mx-consumer-volcano=true"
_DEVICE_SECONDS: Final = 3 * 300
"""The device plugin writes every five minutes."""
_NODED_SECONDS: Final = 3 * 1800
"""NodeD writes every half an hour, as long as its ConfigMap is there."""
_DOUBTED: Final = "doubted while its writer is silent for {} minutes"
_OF_DEVICES: Final = "its object no longer tells it, or is gone; " + _DOUBTED.format(_DEVICE_SECONDS // 60)

SOURCES: Final = (
    SourceRow(
        "device info",
        "ConfigMap",
        device_info.parse_device_info,
        selector=CONSUMER,
        prefix="mindx-dl-deviceinfo-",
        of_node=True,
        tells=frozenset({Source.DEVICE}),
        silent_after_seconds=_DEVICE_SECONDS,
        ends=f"{_OF_DEVICES}. An `UpgradeFaultReason` that isolates a chip which the object offers is a left-over",
    ),
    SourceRow(
        "switch info",
        "ConfigMap",
        switch_info.parse_switch_info,
        selector=CONSUMER,
        prefix="mindx-dl-deviceinfo-",
        of_node=True,
        tells=frozenset({Source.SWITCH}),
        silent_after_seconds=_DEVICE_SECONDS,
        ends=_OF_DEVICES,
    ),
    SourceRow(
        "node info",
        "ConfigMap",
        node_info.parse_node_info,
        selector=CONSUMER,
        prefix="mindx-dl-nodeinfo-",
        of_node=True,
        tells=frozenset({Source.NODE_HARDWARE}),
        silent_after_seconds=_NODED_SECONDS,
        ends="its object no longer tells it, or is gone; "
        f"{_DOUBTED.format(_NODED_SECONDS // 60)}, or since its node booted",
    ),
    SourceRow(
        "public fault",
        "ConfigMap",
        lambda raw, _, terms: public_fault.read_public_faults(raw, terms),
        selector=f"{public_fault.LABEL}=true",
        label=public_fault.LABEL,
        keeps=True,
        ends="`recover`, five seconds (`once`), its ConfigMap is gone, or its sender is no longer allowed",
    ),
    SourceRow(
        "cluster info",
        "ConfigMap",
        lambda raw, _, terms: cluster_info.read_cluster_info(raw, terms),
        selector=VOLCANO,
        prefix=cluster_info.PREFIX,
        ends="ClusterD no longer tells it, or its object is gone; doubted with the writer that it repeats",
    ),
    SourceRow(
        "node",
        "Node",
        lambda raw, _, terms: node.read_node(raw, terms),
        ends="the condition or taint is over, or the node is gone; a condition is doubted since its node booted, until "
        "its writer gives it another time",
    ),
    SourceRow("lease", "Lease", lambda raw, _, terms: lease.read_node_lease(raw, terms), ends="the kubelet renews it"),
)
"""In the order in which they are asked."""


def read_object(raw: Mapping[str, Any], terms: Terms) -> Reading:
    """Read what every source that takes an object finds in it; an object that none takes is rejected."""
    whole = Reading(terms)
    rows = [row for row in SOURCES if row.takes_object(raw)]
    if not rows:
        whole.note_rejection(RejectionReason.UNKNOWN_OBJECT, f"{raw.get('kind')} {name_of_object(raw)}")
    for row in rows:
        name = name_of_object(raw).removeprefix(row.prefix) if row.of_node else ""
        if row.of_node and not is_node_name(name):
            whole.note_rejection(RejectionReason.UNKNOWN_NODE, "metadata.name", name_of_object(raw))
            continue
        found = row.read(raw, name, terms)
        whole.facts += found.facts
        whole.over += found.over
        whole.rejected += found.rejected
        whole.updated_ms = found.updated_ms if whole.updated_ms is None else whole.updated_ms
        whole.sender = whole.sender or found.sender
    return whole


def is_source_silent(row: SourceRow, updated_ms: int | None, now_ms: int) -> bool:
    """Return whether the source's object is too old to be believed: its writer updates it at least every so often."""
    if not row.silent_after_seconds or updated_ms is None:
        return False
    return now_ms - updated_ms > row.silent_after_seconds * 1000
