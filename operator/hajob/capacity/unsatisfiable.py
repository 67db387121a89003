"""Why no node of the cluster can ever take a rank pod of a job, in words. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from hajob.api.constants import LABEL_NODE_SUPER_POD
from hajob.api.derived import nodes_per_block
from hajob.api.spec import HATrainingJobSpec
from hajob.capacity.demand import Demand
from hajob.capacity.super_pods import nodes_in_whole_blocks, room_by_super_pod
from hajob.domain.text import counted_noun
from hajob.sources.node import NodeView

_SHOWN: Final = 8


def why_none_fits(spec: HATrainingJobSpec, demand: Demand, nodes: Collection[NodeView]) -> str:
    """Return what rules out every node, busy or cordoned ones counted as free; empty where one fits."""
    resource, chips = demand.resource, demand.chips
    most = max(((node.chips or {}).get(resource, 0) for node in nodes), default=0)
    able = [node for node in nodes if (node.chips or {}).get(resource, 0) >= chips]
    if not nodes:
        return ""
    if not most:
        return f"no node has {resource}, of {counted_noun(len(nodes), 'node')} (spec.accelerator.resourceName)"
    if not able:
        return f"no node has {chips} {resource}, the most is {most} (spec.accelerator.chipsPerNode)"
    if {node.name for node in able}.issubset(spec.scheduling.excluded_node_names):
        return f"spec.scheduling.excludedNodeNames has every node with {chips} {resource}"
    if not any(map(demand.node_filter(), (replace(node, ready=True, unschedulable=False) for node in able))):
        return f"no node with {chips} {resource} fits the template's nodeSelector, affinity and tolerations"
    return _why_no_blocks(spec, demand, able)


def _why_no_blocks(spec: HATrainingJobSpec, demand: Demand, able: Collection[NodeView]) -> str:
    """Return why super pods of these nodes never hold all blocks of a job; empty where they do, or it has none."""
    size, may_take = nodes_per_block(spec), demand.node_filter()
    if not size:
        return ""
    fit = {node.name: node for node in able if may_take(replace(node, ready=True, unschedulable=False))}
    room = room_by_super_pod(fit, fit)
    if not room:
        return (
            f"no node says in which super pod it is (label {LABEL_NODE_SUPER_POD}, which the device plugin writes), "
            "and spec.accelerator.superPodChips needs that"
        )
    whole = nodes_in_whole_blocks(fit, fit, size)
    if whole >= spec.num_nodes:
        return ""
    held = ", ".join(f"{where} has {count}" for where, count in sorted(room.items())[:_SHOWN])
    return (
        f"needs {counted_noun(spec.num_nodes // size, 'block')} of {counted_noun(size, 'node')}, each in one super pod "
        f"(spec.accelerator.superPodChips), and super pods have room for {whole // size}; nodes with {demand.chips} "
        f"{demand.resource}: {held}"
    )
