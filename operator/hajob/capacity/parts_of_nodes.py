"""Whether the device plugin would refuse pods that want a part of a node's chips. Pure.

In its Volcano mode MindCluster's device plugin serves pods of other schedulers with all chips of a node or none
(docs/admin/schedulers.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hajob.capacity.demand import Demand
from hajob.sources.node import NodeView


class PluginPod(NamedTuple):
    """A pod of the device plugin: its node, and whether it is in Volcano mode."""

    node_name: str
    in_volcano_mode: bool


def nodes_of_demand(demand: Demand, nodes: Iterable[NodeView]) -> list[NodeView]:
    """Return the nodes with such chips where these pods may go; where there is none at the moment, all with chips."""
    with_chips = [node for node in nodes if (node.all_chips or {}).get(demand.resource)]
    may_take = demand.node_filter()
    return [node for node in with_chips if may_take(node)] or with_chips


def chips_of_whole_nodes(demand: Demand, nodes: Iterable[NodeView]) -> int:
    """Return how many chips a node has of which these pods want a part; 0: they want all of some node, or too many.

    Not by the product alone: there are nodes with fewer chips, of which a pod may want all.
    """
    whole = {(node.all_chips or {})[demand.resource] for node in nodes}
    return 0 if not whole or demand.chips in whole or demand.chips > max(whole) else max(whole)


def why_parts_refused(demand: Demand, nodes: Iterable[NodeView], plugins: Mapping[str, PluginPod]) -> str:
    """Return why the device plugin would refuse these pods wherever they go; empty where it would not, or may not.

    Args:
        demand: of the pods, by whichever scheduler.
        nodes: of the cluster.
        plugins: the pods of the device plugin that are known, by namespace and name.
    """
    if demand.by_volcano or not plugins:
        return ""
    near = {node.name: node for node in nodes_of_demand(demand, nodes)}
    there = {key: pod for key, pod in plugins.items() if pod.node_name in near}
    if not there or not all(pod.in_volcano_mode for pod in there.values()):
        return ""
    whole = chips_of_whole_nodes(demand, (near[name] for name in {pod.node_name for pod in there.values()}))
    if not whole:
        return ""
    return (
        f"spec.accelerator.chipsPerNode: {demand.chips} of the {whole} {demand.resource} of a node, without Volcano: "
        f"the device plugin ({min(there)}) is in its Volcano mode, in which it refuses such pods (not get valid pod): "
        "set spec.scheduling.gangPolicy: Volcano, or ask for all chips of a node"
    )
