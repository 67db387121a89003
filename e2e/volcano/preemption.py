"""Preemption, which an admin of Volcano may switch on: pods of lower groups go for the sake of one that waits.

A gang is never taken below its `minMember`. Of one that has more members any of them goes, the lowest first on each
node, and nodes are tried in their order: so a rank goes where the spare is on a later node.
"""

from __future__ import annotations

from collections.abc import Iterator

from e2e.volcano.places import Places
from e2e.volcano.world import DeletePod, Object, World, chips_of, group_of, has_ended, is_terminating, node_of

OUTSIDE = frozenset({"", "Pending"})
"""Phases of a group that the gate has not let in: it preempts nobody."""


def evictions(world: World, places: Places) -> Iterator[DeletePod]:
    """Yield the pods that are deleted for the sake of pods that are still without a node."""
    surplus = {_key_of(group): _surplus_of(world, group) for group in world.groups}
    evicted: set[str] = set()
    for group in world.groups:
        if (group.get("status") or {}).get("phase", "") in OUTSIDE:
            continue
        for pod in world.members(group):
            waits = not node_of(pod) and not is_terminating(pod) and pod["metadata"]["uid"] not in places.given
            if not waits:
                continue
            for victim in _victims_for(world, pod, surplus, evicted):
                surplus[victim["metadata"]["namespace"], group_of(victim)] -= 1
                evicted.add(victim["metadata"]["uid"])
                yield DeletePod(victim, force=False)


def _victims_for(world: World, pod: Object, surplus: dict[tuple[str, str], int], evicted: set[str]) -> list[Object]:
    """Return who goes from the first node that has enough to give; nobody where none has."""
    for node in world.nodes:
        left, found, need = dict(surplus), list[Object](), chips_of(pod)
        there = [one for one in world.pods if node_of(one) == node["metadata"]["name"] and not has_ended(one)]
        for one in sorted(there, key=_priority_of):
            key = one["metadata"]["namespace"], group_of(one)
            lower = _priority_of(one) < _priority_of(pod) and left.get(key, 0) > 0
            if need > 0 and lower and not is_terminating(one) and one["metadata"]["uid"] not in evicted:
                left[key] -= 1
                need -= chips_of(one)
                found.append(one)
        if need <= 0:
            return found
    return []


def _surplus_of(world: World, group: Object) -> int:
    """How many members of a group have a node beyond those that are placed together."""
    valid = [pod for pod in world.members(group) if node_of(pod) and not is_terminating(pod) and not has_ended(pod)]
    return len(valid) - int(group["spec"].get("minMember", 1))


def _key_of(group: Object) -> tuple[str, str]:
    return group["metadata"]["namespace"], group["metadata"]["name"]


def _priority_of(pod: Object) -> int:
    return int(pod["spec"].get("priority") or 0)
