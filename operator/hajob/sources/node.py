"""What the operator keeps of a node, and what a node says about faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NodeView:
    """The part of a node that the operator keeps.

    Attributes:
        ready: its Ready condition is True; a node that was not heard of for 40 s is not.
        chips: allocatable chips by resource name.
    """

    name: str
    uid: str = ""
    ready: bool = True
    unschedulable: bool = False
    chips: Mapping[str, int] | None = None

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
    )
