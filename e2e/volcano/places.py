"""Which node takes a pod: chips, readiness, cordon, taints, node selector, node affinity, anti-affinity of pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from e2e.memory_api.selectors import selector_of
from e2e.volcano.world import (
    CHIP,
    RANK_INDEX,
    REAL,
    SUPER_POD,
    Object,
    World,
    active_pods_on,
    chips_of,
    controller_of,
    has_ended,
    node_of,
)

_NODE_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"


class Places:
    """The room of the nodes in one session; what is given in it counts as taken.

    Attributes:
        world: the cluster.
        given: node of each pod that was placed in this session, by the pod's UID.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.given: dict[str, str] = {}
        self._nodes = {node["metadata"]["name"]: node for node in world.nodes}
        self._taken = Counter[str]()
        for pod in world.pods:
            if node_of(pod) and not has_ended(pod):
                self._taken[node_of(pod)] += chips_of(pod)

    def free_chips(self) -> int:
        """Return the chips of all nodes that are up, less what pods have."""
        return sum(self._free(name) for name, node in self._nodes.items() if is_up(node))

    def place(self, pod: Object) -> tuple[str, str]:
        """Give the pod a node; return it, or an empty text and why not."""
        refused = Counter[str]()
        for name in self._in_order(pod):
            why = self._why_not(pod, name)
            if not why:
                self.given[pod["metadata"]["uid"]] = name
                self._taken[name] += chips_of(pod)
                return name, ""
            refused[why] += 1
        told = ", ".join(f"{count} {why}" for why, count in sorted(refused.items()))
        return "", f"0/{len(self._nodes)} nodes are unavailable: {told}."

    def take_back(self, pods: list[Object]) -> None:
        """Forget what these pods were given."""
        for pod in pods:
            if name := self.given.pop(pod["metadata"]["uid"], ""):
                self._taken[name] -= chips_of(pod)

    def super_pods_with_room(self, pod: Object, size: int) -> list[str]:
        """Return a super pod, by its label, for each block of so many nodes that there is room for."""
        room = Counter[str]()
        for name, node in self._nodes.items():
            if found := (node["metadata"].get("labels") or {}).get(SUPER_POD):
                room[found] += not self._why_not(pod, name)
        return [name for name in sorted(room) for _ in range(room[name] // size)]

    def _in_order(self, pod: Object) -> list[str]:
        """Nodes, the one that the rank came from first, then the fullest."""
        index = (pod["metadata"].get("annotations") or {}).get(RANK_INDEX, "")
        before = self.world.previous.get((controller_of(pod), index), "")
        return sorted(self._nodes, key=lambda name: (name != before, self._free(name), name))

    def _free(self, name: str) -> int:
        status = self._nodes[name].get("status") or {}
        room = int((status.get("allocatable") or {}).get(CHIP, 0)) - self._taken[name]
        # Chips of a pod that nobody has told make the rest of the node useless.
        unstable = any(
            chips_of(pod) and REAL not in (pod["metadata"].get("annotations") or {})
            for pod in active_pods_on(self.world, name)
        )
        return 0 if unstable else max(room, 0)

    def _why_not(self, pod: Object, name: str) -> str:
        node = self._nodes[name]
        if not is_up(node):
            return "node(s) were not ready"
        if node["spec"].get("unschedulable"):
            return "plugin NodeUnschedulable predicates failed node(s) were unschedulable"
        if not _bears_taints(pod, node):
            return "node(s) had untolerated taint"
        if not _is_chosen(pod, node):
            return "NodeAffinity predicates failed"
        if self._free(name) < chips_of(pod):
            return f"Insufficient {CHIP}"
        if not self._keeps_apart(pod, node):
            return "node(s) didn't match pod anti-affinity rules"
        return ""

    def _keeps_apart(self, pod: Object, node: Object) -> bool:
        """Whether neither this pod's rules nor those of the pods beside it are broken."""
        beside = self._beside(pod, node)
        return not any(_is_kept_off(pod, other) or _is_kept_off(other, pod) for other in beside)

    def _beside(self, pod: Object, node: Object) -> list[Object]:
        name, own = node["metadata"]["name"], pod["metadata"]
        return [
            other
            for other in self.world.pods
            if other["metadata"]["uid"] != own["uid"]
            and not has_ended(other)
            and name in {node_of(other), self.given.get(other["metadata"]["uid"])}
        ]


def is_up(node: Object) -> bool:
    """Whether a node is ready."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _is_kept_off(pod: Object, other: Object) -> bool:
    """Whether a required anti-affinity of the pod names the other one."""
    if pod["metadata"]["namespace"] != other["metadata"]["namespace"]:
        return False
    affinity = ((pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}).get(_NODE_AFFINITY) or []
    return any(selector_of(term["labelSelector"])(other) for term in affinity)


def _bears_taints(pod: Object, node: Object) -> bool:
    tolerations = pod["spec"].get("tolerations") or []
    keeps_off = [one for one in node["spec"].get("taints") or [] if one["effect"] in {"NoSchedule", "NoExecute"}]
    return all(any(_tolerates(one, taint) for one in tolerations) for taint in keeps_off)


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") not in {None, "", taint["effect"]}:
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in {None, "", taint["key"]}
    return toleration.get("key") == taint["key"] and (toleration.get("value") or "") == (taint.get("value") or "")


def _is_chosen(pod: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    required = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(_NODE_AFFINITY)
    if required is None:
        return True
    fields = {"metadata": {"labels": {"metadata.name": node["metadata"]["name"]}}}
    return any(
        selector_of({"matchExpressions": term.get("matchExpressions")})(node)
        and selector_of({"matchExpressions": term.get("matchFields")})(fields)
        for term in required["nodeSelectorTerms"]
    )
