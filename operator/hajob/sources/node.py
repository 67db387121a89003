"""What the operator keeps of a node, and what a node says about faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

TOLD_OTHERWISE: Final = frozenset(
    f"node.kubernetes.io/{taint}" for taint in ("not-ready", "unreachable", "unschedulable")
)
"""Taints by which Kubernetes repeats a condition or a field of the node."""


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
    """

    name: str
    uid: str = ""
    ready: bool = True
    unschedulable: bool = False
    chips: Mapping[str, int] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

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
    )
