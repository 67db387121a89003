"""The chips of a node and who has them.

A chip belongs to one pod at a time. Which chips a pod got is shown on the pod in the device plugin's annotations; the
formats are in docs/protocols/mindcluster.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from e2e.nodes.config import JsonObject

ASKED_ANNOTATION = "huawei.com/kltDev"
REAL_ANNOTATION = "huawei.com/AscendReal"
CONFIGURATION_ANNOTATION = "ascend.kubectl.kubernetes.io/ascend-910-configuration"


class ChipsUnavailableError(Exception):
    """A pod asked for more chips than are free and healthy; the message is a kubelet's."""


def chips_asked(container: JsonObject, resource: str) -> int:
    """How many chips a container asks for (requests must equal limits for such resources)."""
    resources = container.get("resources") or {}
    return int((resources.get("limits") or {}).get(resource) or (resources.get("requests") or {}).get(resource) or 0)


@dataclass
class ChipAllocator:
    """Gives chips 0 … ``count - 1`` to pods, lowest number first; ``changed`` hears of each change."""

    count: int
    resource: str
    broken: set[int] = field(default_factory=set)
    changed: Callable[[], None] = field(default=lambda: None)
    _owners: dict[int, str] = field(default_factory=dict)

    @property
    def healthy(self) -> int:
        """How many chips the node can offer at all: what ``allocatable`` says."""
        return self.count - len(self.broken)

    def free(self) -> list[int]:
        """The chips that are healthy and nobody's."""
        return [chip for chip in range(self.count) if chip not in self.broken and chip not in self._owners]

    def owner(self, chip: int) -> str | None:
        """The UID of the pod that has the chip."""
        return self._owners.get(chip)

    def allocate(
        self, pod_uid: str, asked: Mapping[str, int], chosen: Collection[int] | None = None
    ) -> dict[str, list[int]]:
        """Give each container of a pod its chips, all or none.

        Args:
            pod_uid: whose they are from now on.
            asked: container name → number of chips.
            chosen: the only chips that it may have; None: any.

        Raises:
            ChipsUnavailableError: there are not enough.
        """
        wanted, free = sum(asked.values()), [chip for chip in self.free() if chosen is None or chip in chosen]
        if wanted > len(free):
            raise ChipsUnavailableError(
                f"Allocate failed due to requested number of devices unavailable for {self.resource}. "
                f"Requested: {wanted}, Available: {len(free)}, which is unexpected"
            )
        given: dict[str, list[int]] = {}
        for name, number in asked.items():
            given[name], free = free[:number], free[number:]
        self._owners.update({chip: pod_uid for chips in given.values() for chip in chips})
        if wanted:
            self.changed()
        return given

    def release(self, pod_uid: str) -> None:
        """Take back what the pod had; nothing happens when it had nothing."""
        kept = {chip: owner for chip, owner in self._owners.items() if owner != pod_uid}
        if len(kept) != len(self._owners):
            self._owners = kept
            self.changed()


def chip_name(chip: int, resource: str) -> str:
    """The device plugin's name of a chip, for example ``Ascend910-3``."""
    return f"{resource.rpartition('/')[2]}-{chip}"


def pod_annotations(pod: JsonObject, chips: list[int], resource: str, host_address: str) -> dict[str, str]:
    """The annotations the device plugin writes on a pod that holds ``chips``."""
    names = ",".join(chip_name(chip, resource) for chip in chips)
    configuration = {
        "pod_name": pod["metadata"]["name"],
        "server_id": pod["metadata"]["uid"],
        "host_ip": host_address,
        "super_pod_id": -1,
        "devices": [
            {"device_id": str(chip), "device_ip": device_address(host_address, chip), "super_device_id": "-1"}
            for chip in chips
        ],
    }
    return {
        ASKED_ANNOTATION: names,
        REAL_ANNOTATION: names,
        CONFIGURATION_ANNOTATION: json.dumps(configuration, separators=(",", ":")),
    }


def chosen_by_volcano(pod: JsonObject, wanted: int, count: int, resource: str) -> list[int] | None:
    """The chips that a device plugin in Volcano mode gives a pod; None: any, as the pod wants all of the node.

    Only of the pod itself is looked whether Volcano has chosen some; the real one looks at all pods of the node.

    Args:
        pod: as the node sees it first.
        wanted: number of chips.
        count: chips of the node.
        resource: name of the chips.

    Raises:
        ChipsUnavailableError: Volcano has chosen none.
    """
    if wanted in {0, count}:
        return None
    told = str((pod["metadata"].get("annotations") or {}).get(resource) or "")
    chosen = [int(name.rpartition("-")[2]) for name in told.split(",") if name]
    if len(chosen) != wanted:
        raise ChipsUnavailableError(
            "Allocate failed due to rpc error: code = Unknown desc = not get valid pod, which is unexpected"
        )
    return chosen


def device_address(host_address: str, chip: int) -> str:
    """The address of a chip's own network port: made up, but one of its own (nobody listens there)."""
    network = ".".join(host_address.split(".")[1:3])
    return f"10.{network}.{chip + 1}"
