"""Objects as MindCluster's components write them, for the tests of the parsers; formats in docs/admin/faults.md."""

from __future__ import annotations

import json
from typing import Any

from hajob.sources.check_code import check_codes

NOW_MS = 1_767_225_900_000
FAULT_TIME = 1_767_225_600_000
PUBLISHED_CODE = "854c9fead9ac773cf0a5bcfb60ed5ef72cae456202e76bc6765f6332e793175a"
"""CheckCode that a Go build of the writer gives `device_list()` with this fault."""


def fault(device: str = "Ascend910-3", level: str = "RestartBusiness", code: str = "80E01801", **more: Any) -> Any:
    """Build a fault of a chip, as the device plugin reports it."""
    return {
        "fault_type": "CardUnhealthy",
        "npu_name": device,
        "large_model_fault_level": level,
        "fault_level": level,
        "fault_handling": level,
        "fault_code": code,
        "fault_time_and_level_map": {code: {"fault_time": FAULT_TIME, "fault_level": level}},
        **more,
    }


def compact(value: object) -> str:
    """Write JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


FREE = "Ascend910-0,Ascend910-1,Ascend910-2"


def device_list(*faults: Any, unhealthy: str = "Ascend910-3", free: str = FREE) -> dict[str, str]:
    """Build the list of chips and their faults."""
    return {
        "huawei.com/Ascend910": free,
        "huawei.com/Ascend910-Fault": compact(list(faults) or [fault()]),
        "huawei.com/Ascend910-NetworkUnhealthy": "",
        "huawei.com/Ascend910-Recovering": "",
        "huawei.com/Ascend910-Unhealthy": unhealthy,
    }


UPDATED = 1_767_225_601


def device_info(
    *faults: Any,
    node: str = "node-1",
    unhealthy: str = "Ascend910-3",
    free: str = FREE,
    updated: int = UPDATED,
    **data: str,
) -> dict[str, Any]:
    """Build a node's ConfigMap of chips, sealed with its CheckCode."""
    info = {"DeviceList": device_list(*faults, unhealthy=unhealthy, free=free), "UpdateTime": updated}
    sealed = {"DeviceInfo": info, "SuperPodID": -2, "RackID": -2, "ServerIndex": -2, "CheckCode": check_codes(info)[0]}
    return config_map(f"mindx-dl-deviceinfo-{node}", {"DeviceInfoCfg": compact(sealed), **data}, "mx-consumer-cim")


def config_map(name: str, data: dict[str, str], label: str = "") -> dict[str, Any]:
    """Build a ConfigMap with this label set to true."""
    labels = {label: "true"} if label else {}
    metadata = {"name": name, "namespace": "kube-system", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def node_info(*devices: Any, node: str = "node-1", status: str = "UnHealthy") -> dict[str, Any]:
    """Build a node's ConfigMap of other devices, sealed with its CheckCode."""
    info = {"FaultDevList": list(devices), "NodeStatus": status}
    sealed = {"NodeInfo": info, "CheckCode": check_codes(info)[0]}
    data = {"NodeInfo": compact(sealed), "updateTime": "2026-01-01T00:00:00Z"}
    return config_map(f"mindx-dl-nodeinfo-{node}", data, "mx-consumer-cim")


def hardware(kind: str = "CPU", number: int = 0, code: str = "2C000031", level: str = "SeparateFault") -> Any:
    """Build a fault of another device of the node."""
    return {"DeviceType": kind, "DeviceId": number, "FaultCode": [code], "FaultLevel": level}


def switch_event(code: str = "[0x00f1ff06,155910,na,na]", **more: Any) -> str:
    """Build an event of a switch, as text."""
    event = {
        "EventType": 1,
        "AssembledFaultCode": code,
        "PeerPortDevice": 1,
        "PeerPortId": 2,
        "SwitchChipId": 0,
        "SwitchPortId": 5,
        "Severity": 2,
        "Assertion": 1,
        "AlarmRaisedTime": FAULT_TIME,
        **more,
    }
    return compact(event)


def switch_info(*events: str, level: str = "SubHealth", **more: Any) -> dict[str, Any]:
    """Build a node's ConfigMap with events of its switch."""
    info = {"FaultCode": list(events), "FaultLevel": level, "UpdateTime": 1, "NodeStatus": "SubHealthy", **more}
    return device_info(SwitchInfoCfg=compact(info))


def public(*faults: Any, **more: Any) -> dict[str, Any]:
    """Build a ConfigMap of public faults."""
    message = {
        "id": "message-0001",
        "timestamp": FAULT_TIME,
        "version": "1.0",
        "resource": "CCAE",
        "faults": list(faults),
        **more,
    }
    return config_map("any-name", {"PublicFault": compact(message)}, "mc-consumer-publicfault")


def public_fault(**more: Any) -> Any:
    """Build a public fault, with other values in it."""
    return {
        "faultId": "fault-00001",
        "faultType": "Network",
        "faultCode": "220001001",
        "faultTime": FAULT_TIME,
        "assertion": "occur",
        "faultLocation": {"port": "1"},
        "influence": [{"nodeName": "node-1", "deviceIds": [0, 3]}],
        "description": "a cable",
        **more,
    }


def pod(node: str = "node-1", rank: int = 1, devices: tuple[str, ...] = ("3", "0")) -> dict[str, Any]:
    """Build a rank pod to which these chips were given."""
    listed = [{"device_id": number, "device_ip": ""} for number in devices]
    configuration = {"pod_name": f"job-{rank}", "server_id": "uid", "devices": listed}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"job-{rank}",
            "namespace": "team",
            "uid": f"uid-{rank}",
            "labels": {"training.hajob.io/node-rank": str(rank), "training.hajob.io/role": "rank"},
            "annotations": {"ascend.kubectl.kubernetes.io/ascend-910-configuration": compact(configuration)},
        },
        "spec": {"nodeName": node},
        "status": {"phase": "Running"},
    }


def node(
    name: str = "node-1", *, ready: str = "True", unschedulable: bool = False, **conditions: str
) -> dict[str, Any]:
    """Build a node that became ready at the start of 2026, with conditions beside."""
    told = [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "kubelet says"}]
    told += [{"type": kind, "status": status, "reason": "Found"} for kind, status in conditions.items()]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"unschedulable": unschedulable} if unschedulable else {},
        "status": {"conditions": told},
    }
