"""What one session of the scheduler sees, and what it may do: plain objects, no requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Object = dict[str, Any]

SCHEDULER: Final = "volcano"
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
RANK_INDEX: Final = "hccl/rankIndex"
CHIP: Final = "huawei.com/Ascend910"
REAL: Final = "huawei.com/AscendReal"
CONFIGURATION: Final = "ascend.kubectl.kubernetes.io/ascend-910-configuration"
OPERATOR_LABEL: Final = "training.kubeflow.org/operator-name"
SUPER_POD: Final = "huawei.com/topotree.superpodid"
ENDED: Final = frozenset({"Succeeded", "Failed"})


class SchedulerPanicError(RuntimeError):
    """The scheduler has ended with a nil pointer, for all jobs of the cluster."""


@dataclass(frozen=True)
class Bind:
    """Put a pod on a node, with these annotations written before."""

    pod: Object
    node: str
    annotations: dict[str, str]


@dataclass(frozen=True)
class Explain:
    """Write why a pod has no node: its condition PodScheduled."""

    pod: Object
    reason: str
    message: str


@dataclass(frozen=True)
class WriteStatus:
    """Write a PodGroup with a new status: the whole object, for there is no subresource."""

    group: Object
    status: Object


@dataclass(frozen=True)
class CountQueue:
    """Write what the jobs of a queue have."""

    queue: Object
    allocated: dict[str, str]


@dataclass(frozen=True)
class DeletePod:
    """Delete a pod; with `force` without grace."""

    pod: Object
    force: bool


@dataclass(frozen=True)
class Annotate:
    """Write annotations of a pod."""

    pod: Object
    annotations: dict[str, str]


Act = Bind | Explain | WriteStatus | CountQueue | DeletePod | Annotate


@dataclass
class World:
    """The objects of the cluster.

    Attributes:
        now: time of the session, as RFC 3339 text.
        previous: node of each rank that was bound, by the controller's UID and rank index.
    """

    pods: Sequence[Object] = ()
    nodes: Sequence[Object] = ()
    groups: Sequence[Object] = ()
    queues: Sequence[Object] = ()
    now: str = "2026-01-01T00:00:00Z"
    previous: dict[tuple[str, str], str] = field(default_factory=dict)

    def members(self, group: Object) -> list[Object]:
        """Every pod that names the group, whoever schedules it, the ended ones too."""
        metadata = group["metadata"]
        return [
            pod
            for pod in self.pods
            if pod["metadata"]["namespace"] == metadata["namespace"] and group_of(pod) == metadata["name"]
        ]

    def queue_of(self, group: Object) -> Object | None:
        """The queue of a group; None if there is none, or it is closed."""
        name = group["spec"].get("queue", "default")
        found = next((queue for queue in self.queues if queue["metadata"]["name"] == name), None)
        closed = found is not None and (found.get("status") or {}).get("state", "Open") != "Open"
        return None if closed else found


def group_of(pod: Object) -> str:
    """The PodGroup that a pod names; empty for none."""
    return str((pod["metadata"].get("annotations") or {}).get(GROUP_NAME, ""))


def chips_of(pod: Object) -> int:
    """How many chips a pod asks for."""
    return sum(
        int(((container.get("resources") or {}).get("requests") or {}).get(CHIP, 0))
        for container in pod["spec"]["containers"]
    )


def is_terminating(pod: Object) -> bool:
    """Whether it is being deleted."""
    return "deletionTimestamp" in pod["metadata"]


def has_ended(pod: Object) -> bool:
    """Whether its containers will not run again."""
    return (pod.get("status") or {}).get("phase") in ENDED


def node_of(pod: Object) -> str:
    """The node that it has; empty for none."""
    return str(pod["spec"].get("nodeName") or "")


def controller_of(owned: Object) -> str:
    """The UID of the controller; empty for none."""
    owners = owned["metadata"].get("ownerReferences") or []
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def wanted_chips(group: Object) -> int | None:
    """The chips of all pods together, as the group says; None: it says nothing, so it is no job with chips."""
    found = (group["spec"].get("minResources") or {}).get(CHIP)
    return None if found is None else int(found)


def active_pods_on(world: World, node: str) -> Iterator[Object]:
    """The pods that take something of a node."""
    return (pod for pod in world.pods if node_of(pod) == node and not has_ended(pod))
