"""Topology-aware flavors of the stand-in for Kueue: which nodes a pod set is assigned, and what happens to them. Pure.

The lowest level alone is looked at, the nodes: what hurts an owner is that another one's nodes count here at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from e2e.kueue.requests import thousandths
from e2e.kueue.world import Object, World, key_of_workload, queue_of_admission

_HOSTNAME: Final = "kubernetes.io/hostname"


def assign_nodes(world: World, workload: Object, flavor: str, count: int, one_pod: Mapping[str, int]) -> Object | int:
    """Return a `topologyAssignment` of so many pods, or how many there is room for."""
    chosen = Counter[str]()
    for name, room in _room_of_nodes(world, workload, flavor, one_pod).items():
        chosen[name] = min(room, count - chosen.total())
    if chosen.total() < count:
        return chosen.total()
    return _to_assignment(+chosen)


def find_lost_nodes(world: World, workload: Object) -> list[str]:
    """Return the assigned nodes that are gone, not ready, or cordoned."""
    status = workload.get("status") or {}
    assigned = {
        name
        for one in (status.get("admission") or {}).get("podSetAssignments") or []
        for name in _nodes_of_assignment(one)
    }
    return sorted(name for name in assigned if not _is_usable(world.nodes.get(name)))


def replace_nodes(world: World, workload: Object, lost: Iterable[str]) -> Object | None:
    """Return the admission with other nodes in place of those that are lost; None: there are none."""
    gone, made = set(lost), list[Object]()
    admission = workload["status"]["admission"]
    for given in admission["podSetAssignments"]:
        nodes = _nodes_of_assignment(given)
        moving = sum(count for name, count in nodes.items() if name in gone)
        kept = Counter({name: count for name, count in nodes.items() if name not in gone})
        flavors = dict.fromkeys((given.get("flavors") or {}).values())
        one_pod = {
            name: thousandths(amount) // max(given["count"], 1)
            for name, amount in (given.get("resourceUsage") or {}).items()
        }
        for flavor in flavors if moving else ():
            for name, room in _room_of_nodes(world, workload, flavor, one_pod, kept).items():
                more = min(room, moving)
                kept[name] += more
                moving -= more
        if moving:
            return None
        made.append({**given, "topologyAssignment": _to_assignment(+kept)} if nodes else given)
    return {**admission, "podSetAssignments": made}


def _room_of_nodes(
    world: World, workload: Object, flavor: str, one_pod: Mapping[str, int], taken: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return how many pods each usable node of a flavor has room for, beside those of all Workloads."""
    labels = ((world.flavors.get(flavor) or {}).get("spec") or {}).get("nodeLabels") or {}
    used = Counter(taken or {})
    for other in world.workloads.values():
        if key_of_workload(other) != key_of_workload(workload) and queue_of_admission(other):
            for given in other["status"]["admission"]["podSetAssignments"]:
                used.update(_nodes_of_assignment(given))
    found = {}
    for name, node in sorted(world.nodes.items()):
        own = node["metadata"].get("labels") or {}
        if _is_usable(node) and all(own.get(key) == value for key, value in labels.items()):
            has = (node.get("status") or {}).get("allocatable") or {}
            rooms = [thousandths(has.get(each, 0)) // amount for each, amount in one_pod.items() if amount]
            found[name] = max(min(rooms, default=0) - used[name], 0)
    return found


def _is_usable(node: Object | None) -> bool:
    if node is None or (node.get("spec") or {}).get("unschedulable"):
        return False
    told = {one["type"]: one["status"] for one in (node.get("status") or {}).get("conditions") or []}
    return told.get("Ready") == "True"


def _to_assignment(chosen: Mapping[str, int]) -> Object:
    names = list(chosen)
    return {
        "levels": [_HOSTNAME],
        "slices": [
            {
                "domainCount": len(names),
                "valuesPerLevel": [{"individual": {"roots": names}}],
                "podCounts": {"individual": [chosen[name] for name in names]},
            }
        ],
    }


def _nodes_of_assignment(given: Object) -> Counter[str]:
    """Return the nodes of one pod set and its pods on each."""
    found = Counter[str]()
    for one in (given.get("topologyAssignment") or {}).get("slices") or []:
        found.update(
            dict(zip(one["valuesPerLevel"][0]["individual"]["roots"], one["podCounts"]["individual"], strict=True))
        )
    return found
