"""Why no node of the cluster can ever take a rank pod of a job, in words. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hajob.api.spec import HATrainingJobSpec
from hajob.capacity.demand import Demand
from hajob.sources.node import NodeView


def why_none_fits(spec: HATrainingJobSpec, demand: Demand, nodes: Collection[NodeView]) -> str:
    """Return what rules out every node, busy or cordoned ones counted as free; empty where one fits."""
    resource, chips = demand.resource, demand.chips
    most = max(((node.chips or {}).get(resource, 0) for node in nodes), default=0)
    able = [node for node in nodes if (node.chips or {}).get(resource, 0) >= chips]
    if not nodes:
        return ""
    if not most:
        return f"none of {len(nodes)} nodes has {resource} (spec.accelerator.resourceName)"
    if not able:
        return f"no node has {chips} {resource}, the most is {most} (spec.accelerator.chipsPerNode)"
    if {node.name for node in able}.issubset(spec.scheduling.excluded_node_names):
        return f"spec.scheduling.excludedNodeNames has every node with {chips} {resource}"
    if not any(map(demand.node_filter(), (replace(node, ready=True, unschedulable=False) for node in able))):
        return f"no node with {chips} {resource} fits the template's nodeSelector, affinity and tolerations"
    return ""
