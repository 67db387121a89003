"""Which nodes could take a rank pod of a job, as the scheduler would see it.

What is promised before a fault (`recoverability`) and where a start may go both count nodes, so a node of another pool
must not count. Of the template, node selector and tolerations are read; its node affinity is left to the
scheduler, so that a job that chooses nodes that way may be promised too many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from hajob.api import constants as names
from hajob.api.spec import HATrainingJobSpec
from hajob.domain.layout import Layout
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView

_KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})


def free_nodes(
    nodes: Iterable[NodeView], pods: Iterable[PodView], spec: HATrainingJobSpec, layout: Layout
) -> list[NodeView]:
    """Nodes that could take one now: usable, allowed, with enough chips, and without a rank pod among `pods`."""
    taken = {pod.node_name for pod in pods if pod.role == names.ROLE_RANK}
    resource, chips = spec.accelerator.resource_name, layout.chips_per_node
    return [
        node
        for node in nodes
        if node.name not in taken and (node.chips or {}).get(resource, 0) >= chips and may_take(node, spec)
    ]


def nodes_to_avoid(
    nodes: Collection[NodeView],
    pods: Iterable[PodView],
    spec: HATrainingJobSpec,
    layout: Layout,
    avoided: Sequence[str],
) -> set[str]:
    """For a start of the whole job: no more avoided nodes are taken than it needs.

    Args:
        nodes: all there are.
        pods: of other jobs; the job's own leave before the new ones are placed.
        spec: of the job.
        layout: of the job.
        avoided: names of nodes on which something was wrong a moment ago, the longest ago first: the likeliest to be
            well again.
    """
    sick = {node.name for node in nodes if not node.ready}
    if not avoided:
        return sick
    could_take = {node.name for node in free_nodes(nodes, pods, spec, layout)}
    missing = layout.num_nodes - len(could_take.difference(avoided))
    taken = [name for name in avoided if name in could_take][: max(missing, 0)]
    return sick | (set(avoided) - set(taken))


def may_take(node: NodeView, spec: HATrainingJobSpec) -> bool:
    """Whether the scheduler may put a rank pod there: usable, not excluded, of the right labels, taints tolerated."""
    pod: Mapping[str, Any] = spec.template["spec"]
    if not node.usable or node.name in spec.scheduling.excluded_node_names:
        return False
    selector: Mapping[str, str] = pod.get("nodeSelector") or {}
    if any(node.labels.get(label) != value for label, value in selector.items()):
        return False
    tolerations: list[Mapping[str, str]] = pod.get("tolerations") or []
    keep_off = [taint for taint in node.taints if taint.effect in _KEEPS_OFF]
    return all(any(taint.is_tolerated(toleration) for toleration in tolerations) for taint in keep_off)
