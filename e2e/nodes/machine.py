"""The objects a node registers and renews: Node, its status and its Lease. Pure."""

from __future__ import annotations

import json
import platform
import time
from datetime import UTC, datetime

from e2e.nodes.chips import ChipAllocator, chip_name, device_address
from e2e.nodes.config import JsonObject, NodeSettings

KUBELET_VERSION = "v1.36.3"
LEASE_NAMESPACE = "kube-node-lease"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
DEVICES_ANNOTATION = "baseDeviceInfos"
_PRESSURES = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}


def labels(settings: NodeSettings) -> dict[str, str]:
    """The labels a kubelet sets, those of the device plugin for a node with chips, and the configured ones."""
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    own = {
        "kubernetes.io/hostname": settings.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
    }
    chips = {"accelerator": "huawei-Ascend910", "host-arch": "huawei-arm" if architecture == "arm64" else "huawei-x86"}
    return {**own, **(chips if settings.chips else {}), **settings.labels}


def capacity(settings: NodeSettings, chips: int, resource: str) -> dict[str, str]:
    """Capacity or allocatable with ``chips`` chips (a node without any does not name the resource)."""
    amounts = {"cpu": settings.cpu, "memory": settings.memory, "pods": str(settings.pods), "ephemeral-storage": "100Gi"}
    return amounts | ({resource: str(chips)} if settings.chips else {})


def device_list(settings: NodeSettings, resource: str, address: str) -> str:
    """The chips of the node as the device plugin notes them on it, with their addresses."""
    found = {
        chip_name(chip, resource): {"IP": device_address(address, chip), "SuperDeviceID": 0}
        for chip in range(settings.chips)
    }
    return json.dumps(found, separators=(",", ":"))


def node_object(settings: NodeSettings, resource: str, status: JsonObject) -> JsonObject:
    """What is created when the node registers."""
    address = next(one["address"] for one in status["addresses"] if one["type"] == "InternalIP")
    annotations = {DEVICES_ANNOTATION: device_list(settings, resource, address)} if settings.chips else {}
    body: JsonObject = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": settings.name, "labels": labels(settings), "annotations": annotations},
        "spec": {"taints": settings.taints} if settings.taints else {},
        "status": status,
    }
    return body


def node_status(
    settings: NodeSettings, chips: ChipAllocator, *, address: str, port: int, boot_id: str, ready_since: float
) -> JsonObject:
    """The node's status; ``port`` is where its log endpoint listens, ``ready_since`` when it came up."""
    now, since = _stamp(time.time()), _stamp(ready_since)
    conditions = [_condition(name, "False", why, now, since) for name, why in _PRESSURES.items()]
    conditions.append(_condition("Ready", "True", ("KubeletReady", "process node is ready"), now, since))
    return {
        "capacity": capacity(settings, chips.count, chips.resource),
        "allocatable": capacity(settings, chips.healthy, chips.resource),
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": settings.name},
        ],
        "declaredFeatures": ["ExtendWebSocketsToKubelet"],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "machineID": settings.name,
            "systemUUID": settings.name,
            "bootID": boot_id,
            "kernelVersion": platform.release(),
            "osImage": "process node",
            "containerRuntimeVersion": "process://1",
            "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        },
    }


def lease(name: str, node_uid: str, seconds: int) -> JsonObject:
    """The node's Lease, renewed now."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}
    renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": seconds, "renewTime": renewed},
    }


def _condition(name: str, status: str, why: tuple[str, str], now: str, since: str) -> JsonObject:
    return {
        "type": name,
        "status": status,
        "reason": why[0],
        "message": why[1],
        "lastHeartbeatTime": now,
        "lastTransitionTime": since,
    }


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
