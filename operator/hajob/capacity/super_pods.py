"""The super pod of a block of nodes: where its pods are, or, where all of them are lost, where there is room. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from hajob.api import constants as names
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView


def super_pod_of_block(
    members: Collection[PodView], nodes: Mapping[str, NodeView], free: Collection[str], need: int
) -> str:
    """Return the super pod where a pod of the block has to go; empty: nodes say nothing of super pods.

    Args:
        members: pods of the block that serve, with or without a node.
        nodes: by name.
        free: names of the nodes that could take a rank pod now.
        need: nodes of a whole block.
    """
    told = Counter(found for pod in members if (found := _super_pod_of_pod(pod, nodes)))
    if told:
        return max(sorted(told), key=lambda one: told[one])
    room = Counter(found for name in free if (found := super_pod_of_node(nodes.get(name))))
    enough = sorted(one for one, count in room.items() if count >= need)
    if enough:
        return min(enough, key=lambda one: room[one])  # the others keep their room for other blocks
    return max(sorted(room), key=lambda one: room[one], default="")


def super_pod_of_node(node: NodeView | None) -> str:
    """Return the super pod of a node, as the device plugin says; empty for none."""
    return node.labels.get(names.LABEL_NODE_SUPER_POD, "") if node is not None else ""


def _super_pod_of_pod(pod: PodView, nodes: Mapping[str, NodeView]) -> str:
    return super_pod_of_node(nodes.get(pod.node_name)) or pod.super_pod
