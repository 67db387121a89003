"""One session of the scheduler: what it does with a world. Pure but for `World.previous`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from e2e.volcano.places import Places, is_up
from e2e.volcano.preemption import OUTSIDE, evictions
from e2e.volcano.world import (
    CHIP,
    CONFIGURATION,
    OPERATOR_LABEL,
    RANK_INDEX,
    REAL,
    SCHEDULER,
    SUPER_POD,
    Act,
    Annotate,
    Bind,
    CountQueue,
    DeletePod,
    Explain,
    Object,
    SchedulerPanicError,
    World,
    WriteStatus,
    chips_of,
    controller_of,
    has_ended,
    is_terminating,
    node_of,
    wanted_chips,
)

_FAULT: Final = "fault-scheduling"
_ENDS_PODS: Final = frozenset({"force", "grace"})
_ONLY_THE_POD: Final = ("pod-rescheduling", "process-recover-enable")


def play_session(world: World) -> list[Act]:
    """Return what the scheduler does now.

    Raises:
        SchedulerPanicError: a PodGroup has an owner and no controller.
    """
    for group in world.groups:
        if group["metadata"].get("ownerReferences") and not controller_of(group):
            raise SchedulerPanicError("invalid memory address or nil pointer dereference: getPodGroupOwnerRef")
    places, acts = Places(world), list[Act]()
    for group in sorted(world.groups, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"])):
        if world.queue_of(group) is not None:  # of a group without a queue nothing is said at all
            acts += _Turn(world, places, group).play()
    return [*acts, *evictions(world, places), *_counts_of_queues(world, places)]


def _counts_of_queues(world: World, places: Places) -> Iterator[CountQueue]:
    """What each queue's jobs have, where that has changed."""
    for queue in world.queues:
        allocated = {CHIP: str(_chips_of_queue(world, places, queue))}
        if (queue.get("status") or {}).get("allocated", {CHIP: "0"}) != allocated:
            yield CountQueue(queue, allocated)


def _chips_of_queue(world: World, places: Places, queue: Object) -> int:
    groups = [group for group in world.groups if world.queue_of(group) is queue]
    return sum(
        chips_of(pod)
        for group in groups
        for pod in world.members(group)
        if (node_of(pod) or pod["metadata"]["uid"] in places.given) and not has_ended(pod)
    )


class _Turn:
    """One PodGroup's turn."""

    def __init__(self, world: World, places: Places, group: Object) -> None:
        self._world, self._places, self._group = world, places, group
        self._least = int(group["spec"].get("minMember", 1))
        self._members = world.members(group)
        self._status: Object = dict(group.get("status") or {})
        self._conditions: list[Object] = list(self._status.get("conditions") or [])

    def play(self) -> Iterator[Act]:
        """Play it."""
        yield from self._reschedule()
        waiting = [pod for pod in self._members if not node_of(pod) and not is_terminating(pod) and not has_ended(pod)]
        if self._let_in():
            yield from self._allocate([pod for pod in waiting if pod["spec"].get("schedulerName") == SCHEDULER])
        elif waiting:
            yield from self._explain(waiting, {})
        self._status["running"] = sum(pod["status"].get("phase") == "Running" for pod in self._members)
        self._status["conditions"] = self._conditions
        if self._status != (self._group.get("status") or {}):
            yield WriteStatus(self._group, self._status)

    def _let_in(self) -> bool:
        """Whether the group is past the gate, which asks for all of its chips at once."""
        if self._status.get("phase", "") not in OUTSIDE:
            return True
        wanted, free = wanted_chips(self._group) or 0, self._places.free_chips()
        if wanted > free:
            self._status["phase"] = "Pending"
            self._tell("JobEnqueueFailed", f"require npu num is {wanted}, but cluster npu num is {free}")
            return False
        self._status["phase"] = "Inqueue"
        return True

    def _allocate(self, waiting: list[Object]) -> Iterator[Act]:
        """Place the waiting pods together with those that have a node, or none of them."""
        valid = [pod for pod in self._members if not is_terminating(pod) and pod["status"].get("phase") != "Failed"]
        bound = sum(bool(node_of(pod)) for pod in valid)
        held = any(map(is_terminating, self._members)) or len(valid) < self._least
        refused = self._why_no_blocks(waiting) if waiting and not held else ""
        placed, why = ({}, "") if held or refused or not waiting else self._place(waiting)
        if waiting and held:
            told = f"the pods of job is not enough, req: {self._least}, actual: {len(valid)}"
            self._tell("JobValidateFailed", f"NotEnoughPod: {told}")
        if refused:
            self._tell("BatchOrderFailed" if refused.startswith("select") else "JobValidateFailed", refused)
        elif waiting and not held and len(placed) < len(waiting):
            self._tell("NodePredicateFailed", why)
        if placed and bound + len(placed) >= self._least:
            for pod in waiting:
                if pod["metadata"]["uid"] in placed:
                    yield self._bind(pod, placed[pod["metadata"]["uid"]])
            bound += len(placed)
        elif waiting:
            self._places.take_back(waiting)
            yield from self._explain(waiting, placed)
        self._count_phase(bound)

    def _count_phase(self, bound: int) -> None:
        if bound >= self._least:
            self._status["phase"] = "Running"
            self._tell("tasks in gang are ready to be scheduled", "", kind="Scheduled")
        elif bound and self._status["phase"] == "Running":
            self._status["phase"] = "Unknown"
        elif not bound:
            self._status["phase"] = "Inqueue"

    def _place(self, waiting: list[Object]) -> tuple[dict[str, str], str]:
        """Return nodes by the pods' UIDs, as far as the queue's limit and the nodes go, and why no further."""
        placed, why, left = dict[str, str](), "", self._left_in_queue()
        for pod in sorted(waiting, key=lambda one: one["metadata"]["name"]):
            if chips_of(pod) > left:
                count = len(self._world.nodes)
                why = f"Predicated-Nodes count: {count}, nodes: [{self._world.nodes[0]['metadata']['name']} ...]..., "
                continue
            node, refusal = self._places.place(pod)  # gates are not known
            if node:
                placed[pod["metadata"]["uid"]] = node
                left -= chips_of(pod)
            why = why or refusal
        return placed, why

    def _why_no_blocks(self, waiting: list[Object]) -> str:
        """Why the plugin finds no super pods; where it does, the waiting pods are held to one for each block.

        It chooses for the whole job anew from the nodes that are free, also for a single pod, which then gets any.
        """
        annotations = self._group["metadata"].get("annotations") or {}
        if not str(annotations.get("huawei.com/schedule_policy", "")).endswith("-sp"):
            return ""
        total, chips = wanted_chips(self._group) or 0, chips_of(waiting[0])
        block = int(annotations.get("sp-block", total))
        if total % block:
            return (
                f"InvalidResourceRequest: distributed super-pod job require npu({total}) should be multiple of sp-block"
            )
        size, number = block // chips, total // block
        found = self._places.super_pods_with_room(waiting[0], size)[:number]
        if len(found) < number:
            return f"select super pod failed, required {number}, total {len(found)}, node top: "
        for pod in waiting if len(waiting) * chips == total else ():
            place = int(pod["metadata"]["annotations"][RANK_INDEX]) // size
            pod["spec"]["nodeSelector"] = {**(pod["spec"].get("nodeSelector") or {}), SUPER_POD: found[place]}
            pod["metadata"]["annotations"] |= {"super-pod-rank": str(place), "super-pod-id": found[place]}
        return ""

    def _left_in_queue(self) -> int:
        queue = self._world.queue_of(self._group)
        limit = ((queue or {"spec": {}})["spec"].get("capability") or {}).get(CHIP)
        if queue is None or limit is None:
            return 1_000_000
        return int(limit) - _chips_of_queue(self._world, self._places, queue)

    def _bind(self, pod: Object, node: str) -> Bind:
        metadata = pod["metadata"]
        annotations = dict[str, str]()
        if wanted_chips(self._group) is not None:  # else it is no job with chips
            annotations = self._chips_on(pod, node)
            own = (metadata.get("annotations") or {}).get(RANK_INDEX)
            index = own if own is not None else self._smallest_free_index()
            annotations |= {"predicate-time": str(len(self._places.given)), RANK_INDEX: index}
            known = metadata.get("annotations") or {}
            annotations |= {key: known[key] for key in ("super-pod-rank", "super-pod-id") if key in known}
            self._world.previous[controller_of(pod), index] = node
            metadata["annotations"] = {**(metadata.get("annotations") or {}), RANK_INDEX: index}
        return Bind(pod, node, annotations)

    def _smallest_free_index(self) -> str:
        """A rank index for whoever in the group has none, a stranger to the ranks as well."""
        taken = {(pod["metadata"].get("annotations") or {}).get(RANK_INDEX) for pod in self._members}
        return next(str(number) for number in range(len(self._members)) if str(number) not in taken)

    def _chips_on(self, pod: Object, node: str) -> dict[str, str]:
        asked = chips_of(pod)
        if not asked:
            return {}
        whole = next(one for one in self._world.nodes if one["metadata"]["name"] == node)
        count = int(whole["status"]["allocatable"][CHIP])
        taken = {
            name
            for other in self._world.pods
            if node in {node_of(other), self._places.given.get(other["metadata"]["uid"])} and not has_ended(other)
            for name in (other["metadata"].get("annotations") or {}).get(REAL, "").split(",")
        }
        free = [f"Ascend910-{number}" for number in range(count) if f"Ascend910-{number}" not in taken]
        chosen = ",".join(free[:asked])
        found = {CHIP: chosen, "distributed-job": str(len(self._members) > 1).lower()}
        if OPERATOR_LABEL in (pod["metadata"].get("labels") or {}) or asked == count:
            found |= {REAL: chosen, CONFIGURATION: _configuration(pod, whole, free[:asked])}
            pod["metadata"]["annotations"] = {**(pod["metadata"].get("annotations") or {}), REAL: chosen}
        return found

    def _explain(self, waiting: list[Object], placed: dict[str, str]) -> Iterator[Explain]:
        """Write why; of a gang that is short the pods themselves say only that."""
        releasing = sum(map(is_terminating, self._members))
        running = sum(bool(node_of(pod)) and not is_terminating(pod) and not has_ended(pod) for pod in self._members)
        counts = [f"{len(waiting)} Pending", f"{releasing} Releasing", f"{running} Running"]
        shown = ", ".join([*(one for one in counts if not one.startswith("0 ")), f"{self._least} minAvailable"])
        total = len(waiting) + releasing + running
        gang = f"{len(waiting)}/{total} tasks in gang unschedulable: pod group is not ready, {shown}"
        self._tell("NotEnoughResources", gang)
        for pod in waiting:
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            fits = placed.get(pod["metadata"]["uid"])
            if fits:
                yield Explain(pod, "Schedulable", f"Pod {name} can possibly be assigned to {fits}")
            else:
                yield Explain(pod, "Unschedulable", gang)

    def _tell(self, reason: str, message: str, *, kind: str = "Unschedulable") -> None:
        """A condition is added or renewed, and never taken back."""
        known = next((one for one in self._conditions if (one["type"], one["reason"]) == (kind, reason)), None)
        if known is not None and known["message"] == message and kind != "Unschedulable":
            return
        told = {"type": kind, "status": "True", "reason": reason, "message": message}
        self._conditions = [one for one in self._conditions if one is not known]
        self._conditions.append({**told, "lastTransitionTime": self._world.now})

    def _reschedule(self) -> Iterator[Act]:
        """What the plugin does about a node that is not ready: by labels of the group and of all pods together."""
        found = dict[str, set[str]]()
        for one in (self._group, *self._members):
            for key, value in (one["metadata"].get("labels") or {}).items():
                found.setdefault(key, set()).add(value)
        policy = "|".join(sorted(found.get(_FAULT, set())))
        down = {node["metadata"]["name"] for node in self._world.nodes if not is_up(node)}
        lost = [pod for pod in self._members if node_of(pod) in down and not is_terminating(pod)]
        if not lost or policy in {"", "off"} or "|" in policy:
            return
        if policy.startswith("external-"):
            yield from (Annotate(pod, {"huawei.com/pod-status": "Unhealthy-NodeUnhealthy"}) for pod in lost)
        elif policy in _ENDS_PODS:
            alone = any("on" in found.get(label, set()) for label in _ONLY_THE_POD)
            for pod in lost if alone else self._members:
                yield DeletePod(pod, force=policy == "force")


def _configuration(pod: Object, node: Object, chips: list[str]) -> str:
    addresses = (node.get("status") or {}).get("addresses") or []
    address = next((one["address"] for one in addresses if one["type"] == "InternalIP"), "")
    devices = [
        {"device_id": name.rpartition("-")[2], "device_ip": f"10.0.0.{number}", "super_device_id": "-1"}
        for number, name in enumerate(chips)
    ]
    return json.dumps(
        {
            "pod_name": pod["metadata"]["name"],
            "server_id": pod["metadata"]["uid"],
            "host_ip": address,
            "super_pod_id": -2,
            "devices": devices,
        },
        separators=(",", ":"),
    )
