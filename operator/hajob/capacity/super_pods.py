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
    room = room_by_super_pod(nodes, free)
    enough = sorted(one for one, count in room.items() if count >= need)
    if enough:
        return min(enough, key=lambda one: room[one])  # the others keep their room for other blocks
    return max(sorted(room), key=lambda one: room[one], default="")


def super_pods_for_start(
    members: Mapping[int, Collection[PodView]], nodes: Mapping[str, NodeView], free: Collection[str], need: int
) -> dict[int, str]:
    """Choose the super pod of each block of a whole start; a block for which none has room is left out.

    Args:
        members: pods of each block that are there already.
        nodes: by name.
        free: names of the nodes that could take a rank pod of the start.
        need: nodes of a block.
    """
    room = room_by_super_pod(nodes, free)
    found: dict[int, str] = {}
    for block, pods in members.items():
        told = Counter(where for pod in pods if (where := _super_pod_of_pod(pod, nodes)))
        if told:
            found[block] = max(sorted(told), key=lambda one: told[one])
            # What its other pods have yet to take is no longer room for another block.
            room[found[block]] -= need - sum(1 for pod in pods if pod.node_name)
    for block in sorted(members.keys() - found):
        enough = sorted(one for one, count in room.items() if count >= need)
        if enough:
            found[block] = min(enough, key=lambda one: room[one])  # larger rooms stay for jobs with larger blocks
            room[found[block]] -= need
    return found


def room_by_super_pod(nodes: Mapping[str, NodeView], free: Collection[str]) -> Counter[str]:
    """Count these nodes by super pod; a node of which none is known does not count."""
    return Counter(where for name in free if (where := super_pod_of_node(nodes.get(name))))


def nodes_in_whole_blocks(nodes: Mapping[str, NodeView], free: Collection[str], need: int) -> int:
    """Return how many of these nodes can be taken in whole blocks of so many nodes."""
    return sum(count // need * need for count in room_by_super_pod(nodes, free).values())


def super_pod_of_node(node: NodeView | None) -> str:
    """Return the super pod of a node, as the device plugin says; empty for none."""
    return node.labels.get(names.LABEL_NODE_SUPER_POD, "") if node is not None else ""


def _super_pod_of_pod(pod: PodView, nodes: Mapping[str, NodeView]) -> str:
    return super_pod_of_node(nodes.get(pod.node_name)) or pod.super_pod
