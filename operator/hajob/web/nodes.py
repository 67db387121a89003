"""The nodes with chips as the page shows them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hajob.api.base import Json
from hajob.cli.nodes import count_by_state, read_nodes, what_keeps_out
from hajob.cli.objects import ReadObjects


def list_of_nodes(objects: ReadObjects, resource: str, namespaces: Sequence[str], now_ms: int) -> Json:
    """Return the nodes that have chips.

    Args:
        objects: of the cluster.
        resource: name of the chips.
        namespaces: of the operator, then those of MindCluster's ConfigMaps.
        now_ms: milliseconds since 1970.

    Raises:
        ClusterError: the nodes may not be read.
    """
    found = read_nodes(objects, resource, namespaces, now_ms)
    return {
        "resource": resource,
        "nodes": [{**row.as_json(), "free": row.free, "detail": what_keeps_out(row, now_ms)} for row in found.rows],
        "counts": count_by_state(found.rows),
        "unknown": [f"needs the right to {right}" for right in found.unread],
    }
