"""What the operator keeps of a node, and what a node says about faults."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hajob.domain.facts import FactKind, Source
from hajob.domain.hardware import ClusterFact, Level, harms_job, kind_of_level
from hajob.sources.base_devices import devices_text_of_node
from hajob.sources.reading import (
    DRAIN_TAINTS,
    Reading,
    RejectionReason,
    Terms,
    is_node_name,
    items,
    mapping,
    name_of_object,
    printable,
    text,
)

TOLD_OTHERWISE: Final = frozenset(
    f"node.kubernetes.io/{taint}" for taint in ("not-ready", "unreachable", "unschedulable")
)
"""Taints by which Kubernetes repeats a condition or a field of the node."""

UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
"""Taint that keeps pods off a cordoned node, unless they tolerate it."""

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""Taint by which an admin says that the machine is off for good: Kubernetes deletes its pods by force."""

_SERIAL: Final = "product-serial-number"
_EFFECTS: Final = {
    "NoSchedule": "no pod is placed there that does not tolerate it",
    "PreferNoSchedule": "pods that do not tolerate it are rather placed elsewhere",
    "NoExecute": "Kubernetes removes the pods that do not tolerate it",
}


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps pods off a node unless they tolerate it; all three are Kubernetes' words."""

    key: str
    effect: str
    value: str = ""

    def is_tolerated(self, toleration: Mapping[str, str]) -> bool:
        """Return whether a pod's toleration covers the taint; an empty key or effect in it covers every one."""
        key, effect = toleration.get("key") or "", toleration.get("effect") or ""
        if (key and key != self.key) or (effect and effect != self.effect):
            return False
        if toleration.get("operator", "Equal") == "Exists":
            return True
        return bool(key) and (toleration.get("value") or "") == self.value


@dataclass(frozen=True, slots=True)
class NodeView:
    """The part of a node that the operator keeps.

    Attributes:
        ready: its Ready condition is True; a node that was not heard of for 40 s is not.
        chips: allocatable chips by resource name: without those that the device plugin calls unhealthy.
        all_chips: the same with these.
        drained: an autoscaler or a cloud empties it, as one of its taints says.
        labels: by name.
        taints: all of them, but for those that Kubernetes sets itself for what `ready` and `unschedulable` say.
        boot: another text after each start of the machine.
        address: of the machine in the cluster's network.
        devices: what the device plugin says of its chips, unread (hajob.sources.base_devices).
    """

    name: str
    uid: str = ""
    ready: bool = True
    unschedulable: bool = False
    deleting: bool = False
    chips: Mapping[str, int] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    boot: str = ""
    all_chips: Mapping[str, int] | None = None
    drained: bool = False
    address: str = ""
    devices: str = ""

    @property
    def is_to_be_emptied(self) -> bool:
        """Whether somebody wants its pods to leave: it is cordoned or being deleted, or an autoscaler takes it away."""
        return self.unschedulable or self.deleting or self.drained

    @property
    def is_out_of_service(self) -> bool:
        """Whether a person has said that it is off, so that nothing runs there any more."""
        return any(taint.key == OUT_OF_SERVICE for taint in self.taints)

    @property
    def is_usable(self) -> bool:
        """Whether the scheduler would put anything there."""
        return self.ready and not self.unschedulable


def serial_of_node(node: Mapping[str, Any]) -> str:
    """Return the serial number of a raw node, as MindCluster's device plugin notes it; empty where it does not."""
    return text(mapping(mapping(node.get("metadata")).get("annotations")).get(_SERIAL))


def nodes_by_serial(objects: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the name of every Node among these objects, by serial number."""
    return {
        serial: name_of_object(one) for one in objects if one.get("kind") == "Node" and (serial := serial_of_node(one))
    }


def node_view_of(node: Mapping[str, Any], drain_taints: Collection[str] = DRAIN_TAINTS) -> NodeView:
    """Build the view of a raw node; `drain_taints`: keys of taints that say that it is to be emptied."""
    metadata, spec, status = mapping(node.get("metadata")), mapping(node.get("spec")), mapping(node.get("status"))
    conditions = map(mapping, items(status.get("conditions")))
    taints = tuple(
        Taint(taint.get("key", ""), taint.get("effect", ""), taint.get("value") or "")
        for taint in spec.get("taints") or []
        if taint.get("key") not in TOLD_OTHERWISE
    )
    ready: Mapping[str, Any] = next((c for c in conditions if c.get("type") == "Ready"), {})
    return NodeView(
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        ready=ready.get("status") == "True",
        unschedulable=bool(spec.get("unschedulable")),
        deleting="deletionTimestamp" in metadata,
        chips=_extended_resources(status.get("allocatable")),
        labels=dict(metadata.get("labels") or {}),
        taints=taints,
        boot=str((status.get("nodeInfo") or {}).get("bootID") or ""),
        all_chips=_extended_resources(status.get("capacity")),
        drained=any(taint.key in drain_taints for taint in taints),
        address=_address_of_node(status),
        devices=devices_text_of_node(node),
    )


def _address_of_node(status: Mapping[str, Any]) -> str:
    addresses = map(mapping, items(status.get("addresses")))
    return next((text(one.get("address")) for one in addresses if one.get("type") == "InternalIP"), "")


def _extended_resources(amounts: object) -> dict[str, int]:
    """Resources like chips: their names have a domain."""
    return {name: int(amount) for name, amount in mapping(amounts).items() if "/" in name and str(amount).isdigit()}


def read_node(raw: Mapping[str, Any], terms: Terms) -> Reading:
    """Read what a Node says: not ready, to be emptied, its taints, and the conditions that an admin has named.

    A taint that only keeps pods away harms no running pod: it is shown, and placement reads it for itself.
    """
    reading, node = Reading(terms), name_of_object(raw)
    if not is_node_name(node):
        reading.note_rejection(RejectionReason.UNKNOWN_NODE, "metadata.name", node)
        return reading
    told = [mapping(one) for one in items(mapping(raw.get("status")).get("conditions"))]
    ready = next((one for one in told if one.get("type") == "Ready"), None)
    if ready is not None and ready.get("status") != "True":
        why = text(ready.get("message")) or text(ready.get("reason")) or "the node does not report"
        reading.facts.append(
            _fact_of_node(node, FactKind.NODE_NOT_READY, "NotReady", _transition_time(ready, reading), why)
        )
    if mapping(raw.get("spec")).get("unschedulable") is True:
        reading.facts.append(_fact_of_node(node, FactKind.CORDONED, "Unschedulable", None, "the node is cordoned"))
    if deleted := mapping(raw.get("metadata")).get("deletionTimestamp"):
        # Its pods go with it: what trains there moves as from a cordoned node.
        since = reading.parse_timestamp(deleted, "deletionTimestamp")
        reading.facts.append(_fact_of_node(node, FactKind.CORDONED, "NodeDeleting", since, "the node is being deleted"))
    for place, taint in enumerate(items(mapping(raw.get("spec")).get("taints"))):
        _read_node_taint(mapping(taint), node, reading, f"spec.taints[{place}]")
    for one in told:
        sick = terms.conditions.get(text(one.get("type")))
        if sick is not None and one.get("status") == sick.status:
            reading.facts.append(_fact_of_condition(node, one, sick.level, reading))
    return reading


def _read_node_taint(told: Mapping[str, Any], node: str, reading: Reading, where: str) -> None:
    key, effect = text(told.get("key")), text(told.get("effect"))
    if key in TOLD_OTHERWISE:
        return
    if not key or effect not in _EFFECTS:
        reading.note_rejection(RejectionReason.MALFORMED, where, told)
        return
    kind, value = FactKind.CORDONED, text(told.get("value"))
    words = _EFFECTS[effect]
    if key == OUT_OF_SERVICE:
        kind, words = FactKind.NODE_NOT_READY, "an admin says that it is out of service, its pods are deleted by force"
    elif key in reading.terms.drain_taints:
        words = "an autoscaler empties the node"
    shown = printable(f"{key}={value}:{effect}" if value else f"{key}:{effect}")
    since = reading.parse_timestamp(told.get("timeAdded"), f"{where}.timeAdded")
    reading.facts.append(
        ClusterFact(
            f"node/{node}/taint/{shown}",
            Source.NODE,
            kind,
            node,
            code=printable(key),
            since_ms=since,
            harms=key in reading.terms.drain_taints or key == OUT_OF_SERVICE,
            message=f"taint {shown}: {words}",
        )
    )


def _fact_of_condition(node: str, told: Mapping[str, Any], level: Level, reading: Reading) -> ClusterFact:
    kind, since_ms = text(told.get("type")), _transition_time(told, reading)
    why = text(told.get("message")) or text(told.get("reason"))
    renewed_ms = reading.parse_timestamp(told.get("lastHeartbeatTime"), "lastHeartbeatTime")
    # A detector renews its condition without a transition: the later of the two says whether it still looks.
    told_ms = max((one for one in (since_ms, renewed_ms) if one is not None), default=None)
    return ClusterFact(
        id=f"node/{node}/condition/{kind}",
        source=Source.NODE,
        kind=kind_of_level(level),
        node=node,
        code=kind,
        level=level,
        since_ms=since_ms,
        harms=harms_job(level),
        told_ms=told_ms,
        message=f"condition {kind} is {text(told.get('status'))}: {why}",
    )


def _fact_of_node(node: str, kind: FactKind, code: str, since_ms: int | None, message: str) -> ClusterFact:
    return ClusterFact(f"node/{node}/{code}", Source.NODE, kind, node, code=code, since_ms=since_ms, message=message)


def _transition_time(condition: Mapping[str, Any], reading: Reading) -> int | None:
    return reading.parse_timestamp(condition.get("lastTransitionTime"), "lastTransitionTime")
