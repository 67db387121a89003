"""A node's Lease: how long its kubelet has been silent, some seconds before the Node says so.

The operator does not watch Leases: 1,000 nodes renew 100 of them a second, agents tell of a silent pod within three
seconds, and the Node turns not ready 40 s after the last renewal. `kubectl hajob facts` and `doctor` read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hajob.domain.facts import FactKind, Source
from hajob.domain.hardware import ClusterFact
from hajob.sources.reading import (
    Reading,
    RejectionReason,
    Terms,
    is_integer,
    is_node_name,
    mapping,
    name_of_object,
    text,
)

NAMESPACE: Final = "kube-node-lease"
_USUAL_SECONDS: Final = 40  # the kubelet's default of leaseDurationSeconds


def read_node_lease(raw: Mapping[str, Any], terms: Terms) -> Reading:
    """Read a fact from a node's Lease that has run out; a Lease that is no node's is rejected."""
    reading, node, spec = Reading(terms), name_of_object(raw), mapping(raw.get("spec"))
    if text(mapping(raw.get("metadata")).get("namespace")) != NAMESPACE:
        reading.note_rejection(RejectionReason.UNKNOWN_OBJECT, f"Lease {node}")
        return reading
    if not is_node_name(node):
        reading.note_rejection(RejectionReason.UNKNOWN_NODE, "metadata.name", node)
        return reading
    renewed_ms = reading.parse_timestamp(spec.get("renewTime"), "renewTime")
    told = spec.get("leaseDurationSeconds")
    seconds = told if is_integer(told) and told > 0 else _USUAL_SECONDS
    if renewed_ms is None or terms.now_ms - renewed_ms <= seconds * 1000:
        return reading
    silent = (terms.now_ms - renewed_ms) // 1000
    reading.facts.append(
        ClusterFact(
            id=f"node/{node}/LeaseExpired",
            source=Source.NODE,
            kind=FactKind.NODE_NOT_READY,
            node=node,
            code="LeaseExpired",
            since_ms=renewed_ms,
            message=f"the kubelet has not renewed its Lease for {silent} s",
        )
    )
    return reading
