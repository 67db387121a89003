"""What the operator keeps of a node, and what a node says about faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from hajob.domain.facts import FactKind, Source
from hajob.domain.hardware import ClusterFact, Level, harms, kind_of
from hajob.sources.reading import Reading, RejectionReason, Terms, is_node_name, items, mapping, name_of, text

TOLD_OTHERWISE: Final = frozenset(
    f"node.kubernetes.io/{taint}" for taint in ("not-ready", "unreachable", "unschedulable")
)
"""Taints by which Kubernetes repeats a condition or a field of the node."""

DRAIN_TAINTS: Final = frozenset({"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"})
"""Taints with which cluster-autoscaler and Karpenter begin to empty a node, where `kubectl drain` cordons it."""


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps pods off a node unless they tolerate it; all three are Kubernetes' words."""

    key: str
    effect: str
    value: str = ""

    def is_tolerated(self, toleration: Mapping[str, str]) -> bool:
        """Whether a pod's toleration covers it; an empty key or effect in it covers every one."""
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
        chips: allocatable chips by resource name.
        labels: by name.
        taints: all of them, but for those that Kubernetes sets itself for what `ready` and `unschedulable` say.
        boot: another text after each start of the machine.
    """

    name: str
    uid: str = ""
    ready: bool = True
    unschedulable: bool = False
    chips: Mapping[str, int] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    boot: str = ""

    @property
    def is_to_be_emptied(self) -> bool:
        """Whether somebody wants its pods to leave: it is cordoned, or an autoscaler is about to take it away."""
        return self.unschedulable or any(taint.key in DRAIN_TAINTS for taint in self.taints)

    @property
    def usable(self) -> bool:
        """Whether the scheduler would put anything there."""
        return self.ready and not self.unschedulable


def view(node: Mapping[str, Any]) -> NodeView:
    """The view of a raw node."""
    metadata, spec, status = node.get("metadata", {}), node.get("spec", {}), node.get("status", {})
    ready: Mapping[str, Any] = next((c for c in status.get("conditions") or [] if c.get("type") == "Ready"), {})
    return NodeView(
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        ready=ready.get("status") == "True",
        unschedulable=bool(spec.get("unschedulable")),
        chips={
            name: int(amount)
            for name, amount in (status.get("allocatable") or {}).items()
            if "/" in name and str(amount).isdigit()
        },
        labels=dict(metadata.get("labels") or {}),
        taints=tuple(
            Taint(taint.get("key", ""), taint.get("effect", ""), taint.get("value") or "")
            for taint in spec.get("taints") or []
            if taint.get("key") not in TOLD_OTHERWISE
        ),
        boot=str((status.get("nodeInfo") or {}).get("bootID") or ""),
    )


def read(raw: Mapping[str, Any], terms: Terms) -> Reading:
    """What a Node says about faults: not ready, cordoned, and the conditions that an admin has named."""
    reading, node = Reading(terms), name_of(raw)
    if not is_node_name(node):
        reading.reject(RejectionReason.UNKNOWN_NODE, "metadata.name", node)
        return reading
    told = [mapping(one) for one in items(mapping(raw.get("status")).get("conditions"))]
    ready = next((one for one in told if one.get("type") == "Ready"), None)
    if ready is not None and ready.get("status") != "True":
        why = text(ready.get("message")) or text(ready.get("reason")) or "the node does not report"
        reading.facts.append(_fact(node, FactKind.NODE_NOT_READY, "NotReady", _since(ready, reading), why))
    if mapping(raw.get("spec")).get("unschedulable") is True:
        reading.facts.append(_fact(node, FactKind.CORDONED, "Unschedulable", None, "the node is cordoned"))
    for one in told:
        level = terms.conditions.get(text(one.get("type")))
        if one.get("status") == "True" and level is not None:
            reading.facts.append(_condition(node, one, level, _since(one, reading)))
    return reading


def _condition(node: str, told: Mapping[str, Any], level: Level, since_ms: int | None) -> ClusterFact:
    kind = text(told.get("type"))
    return ClusterFact(
        id=f"node/{node}/condition/{kind}",
        source=Source.NODE,
        kind=kind_of(level),
        node=node,
        code=kind,
        level=level,
        since_ms=since_ms,
        harms=harms(level),
        message=f"condition {kind}: {text(told.get('message')) or text(told.get('reason'))}",
    )


def _fact(node: str, kind: FactKind, code: str, since_ms: int | None, message: str) -> ClusterFact:
    return ClusterFact(f"node/{node}/{code}", Source.NODE, kind, node, code=code, since_ms=since_ms, message=message)


def _since(condition: Mapping[str, Any], reading: Reading) -> int | None:
    told = condition.get("lastTransitionTime")
    if told is None:
        return None
    try:
        since = int(datetime.fromisoformat(str(told)).timestamp() * 1000)
    except (ValueError, OverflowError):
        reading.reject(RejectionReason.MALFORMED, "lastTransitionTime", told)
        return None
    return reading.time(max(since, 0), "lastTransitionTime")
