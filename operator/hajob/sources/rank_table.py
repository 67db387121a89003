"""The rank table of MindCluster, hccl.json, from what the device plugin or Volcano has noted on a job's rank pods.

Images that are started by a rank table read from it which chip is which rank, and where. Ascend Operator makes the same
table for its jobs: version 1.0, and 1.2 with super pods, where a job is placed in blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from hajob.api import constants as names
from hajob.domain.text import counted_noun, first_of_list
from hajob.sources.pod import PodView
from hajob.sources.reading import Reading, Terms, items, mapping, text

COMPLETED: Final = "completed"
"""Its `status`; a pod has a table of status `initializing` before."""
_NO_ADDRESS: Final = frozenset({"", "-1"})
"""What the device plugin notes of a chip whose own network has no address."""
_SHOWN: Final = 8


class Chip(NamedTuple):
    """One chip of a pod: its number on the node, its own network's address, its number in a super pod."""

    number: str
    address: str
    super_device: str


@dataclass(frozen=True, slots=True)
class PodDevices:
    """What is noted of one pod's chips, in the order of its ranks.

    Attributes:
        server: what the note calls its machine: the pod's UID.
        host: address of its node.
        chips: of the pod.
    """

    server: str
    host: str
    chips: tuple[Chip, ...]


@dataclass(frozen=True, slots=True)
class RankTable:
    """The rank table of a job, or why there is none.

    Attributes:
        content: JSON; empty while it cannot be made.
        pod_uids: of the pods whose chips it holds, by node rank.
        missing: what it waits for, in words; empty where it is there, or only waits for pods to get nodes.
    """

    content: bytes = b""
    pod_uids: tuple[str, ...] = ()
    missing: str = ""


def parse_devices(written: str) -> PodDevices | None:
    """Parse what is noted of a pod's chips; None where there is nothing, or a part of it cannot be read."""
    told = mapping(Reading(Terms(0)).parse_json(written or "null", names.ANNOTATION_CONFIGURATION))
    chips = tuple(_chip_of_device(mapping(device)) for device in items(told.get("devices")))
    host, server = text(told.get("host_ip")), text(told.get("server_id"))
    if not chips or not host or not all(chip.number for chip in chips):
        return None
    return PodDevices(server or host, host, chips)


def _chip_of_device(device: Mapping[str, Any]) -> Chip:
    super_device = device.get("super_device_id")
    return Chip(
        text(device.get("device_id")),
        text(device.get("device_ip")),
        super_device if isinstance(super_device, str) else str(super_device if super_device is not None else ""),
    )


def build_rank_table(pods: Sequence[PodView | None], chips_per_node: int, nodes_per_block: int) -> RankTable:
    """Build the rank table of a job.

    Args:
        pods: by node rank; None: there is none.
        chips_per_node: of each pod.
        nodes_per_block: nodes that are in one super pod together; 0: the job has no blocks.
    """
    found = [parse_devices(pod.devices) if pod is not None and pod.node_name else None for pod in pods]
    if missing := _why_incomplete(pods, found, chips_per_node, spans=not 0 < len(pods) <= nodes_per_block):
        return RankTable(missing=missing)
    devices = [one for one in found if one is not None]
    if len(devices) < len(pods) or not all(pod is not None and pod.address for pod in pods):
        return RankTable()
    # HCCL finds out by it which chips reach each other within a machine. Two pods that share one have different chips
    # of it, and the same address would make them one server with ranks that are not in a row.
    hosts = [one.host for one in devices]
    alone = len(set(hosts)) == len(hosts)
    servers = [one.host if alone else one.server for one in devices]
    table: dict[str, object] = {
        "status": COMPLETED,
        "server_list": [
            {
                "device": [
                    _device_entry(chip, node_rank * chips_per_node + index, in_super_pod=nodes_per_block > 0)
                    for index, chip in enumerate(one.chips)
                ],
                "server_id": servers[node_rank],
                "host_ip": one.host,
                "container_ip": pod.address if (pod := pods[node_rank]) is not None else "",
            }
            for node_rank, one in enumerate(devices)
        ],
        "server_count": str(len(devices)),
        "version": "1.2" if nodes_per_block else "1.0",
    }
    if nodes_per_block:
        blocks = [servers[first : first + nodes_per_block] for first in range(0, len(servers), nodes_per_block)]
        table["super_pod_list"] = [
            {"super_pod_id": str(number), "server_list": [{"server_id": server} for server in block]}
            for number, block in enumerate(blocks)
        ]
    return RankTable(orjson.dumps(table), tuple(pod.uid for pod in pods if pod is not None))


def _device_entry(chip: Chip, rank: int, *, in_super_pod: bool) -> dict[str, str]:
    entry = {"device_id": chip.number, "device_ip": chip.address, "rank_id": str(rank)}
    return {**entry, "super_device_id": chip.super_device} if in_super_pod else entry


def _why_incomplete(
    pods: Sequence[PodView | None], found: Sequence[PodDevices | None], chips_per_node: int, *, spans: bool
) -> str:
    """Return what is wrong with the notes of pods that have a node, in words; empty where nothing is.

    `spans`: the job is in more than one super pod, between which chips speak by their own network's addresses.
    """
    placed = [(pod, one) for pod, one in zip(pods, found, strict=True) if pod is not None and pod.node_name]
    if unnoted := [pod.name for pod, one in placed if one is None]:
        return (
            f"the rank table waits for the chips of {first_of_list(unnoted, _SHOWN)}: the device plugin or Volcano "
            f"notes them in the annotation {names.ANNOTATION_CONFIGURATION}"
        )
    for pod, one in placed:
        if one is not None and len(one.chips) != chips_per_node:
            return (
                f"no rank table can be made: pod {pod.name} has {counted_noun(chips_per_node, 'rank')}, and on it "
                f"{counted_noun(len(one.chips), 'chip')} noted"
            )
        bare = [chip.number for chip in one.chips if chip.address in _NO_ADDRESS] if one is not None else []
        if bare and spans:
            return (
                f"no rank table can be made: chip {bare[0]} of pod {pod.name} on {pod.node_name} has no address of its "
                "own (device_ip): give its network one with hccn_tool"
            )
    return ""
