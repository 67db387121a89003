"""What the device plugin and NodeD publish about the chips and the hardware of a node.

The formats, check codes included, are in docs/protocols/mindcluster.md. Both objects are written for programs that
compare a hash over one exact JSON encoding, so the encoding here is part of the format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable
from dataclasses import dataclass

from e2e.nodes.chips import chip_name
from e2e.nodes.config import JsonObject
from e2e.nodes.states import timestamp

CONSUMER_LABEL = {"mx-consumer-cim": "true"}
DEVICE_NAMESPACE = "kube-system"
NODE_NAMESPACE = "mindx-dl"
_NODE_STATUS = {"NotHandleFault": "Healthy", "PreSeparateFault": "PreSeparate", "SeparateFault": "UnHealthy"}
_SWITCH_LEVELS = ("NotHandle", "SubHealth", "RestartRequest", "Reset", "Separate")
_HEALTHY_LEVELS = {"NotHandleFault", "SubHealthFault"}
_HEALTHY_IN_USE = {"PreSeparateNPU"}
"""As the device plugin's `isHealthy` has it; a grace for `FreeRestartNPU` is off unless it is asked for."""


@dataclass(frozen=True)
class ChipFault:
    """One fault of one chip. ``time`` in seconds since the epoch; ``kind`` is the device plugin's ``fault_type``."""

    chip: int
    code: str
    level: str
    time: float
    kind: str = "CardUnhealthy"

    def separates(self, *, used: bool) -> bool:
        """Whether the chip is offered to nobody while the fault lasts; `used`: a pod has it."""
        healthy = _HEALTHY_LEVELS | (_HEALTHY_IN_USE if used else set())
        return self.kind == "CardUnhealthy" and self.level not in healthy


@dataclass(frozen=True)
class HardwareFault:
    """One fault NodeD reports."""

    device: str
    device_id: int
    codes: tuple[str, ...]
    level: str


@dataclass(frozen=True)
class SwitchFault:
    """One fault of a switch chip of the node. ``time`` in seconds since the epoch; ``level`` in the switch's words."""

    code: str
    level: str
    time: float
    chip: int = 0
    port: int = 0


def go_json(value: object) -> str:
    """The compact JSON Go writes: ``<``, ``>`` and ``&`` are escaped."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def check_code(inner: object) -> str:
    """The hash consumers recompute: SHA-256 over the inner object."""
    return hashlib.sha256(go_json(inner).encode()).hexdigest()


def switch_info(faults: Iterable[SwitchFault], now: float) -> str:
    """What stands under ``SwitchInfoCfg`` (A3)."""
    faults = list(faults)
    events = [
        {
            "EventType": 1,
            "AssembledFaultCode": fault.code,
            "PeerPortDevice": 0,
            "PeerPortId": 0,
            "SwitchChipId": fault.chip,
            "SwitchPortId": fault.port,
            "Severity": 2,
            "Assertion": 1,
            "AlarmRaisedTime": int(fault.time * 1000),
        }
        for fault in faults
    ]
    times = {
        f"{fault.code}_{fault.chip}_{fault.port}": {"fault_time": int(fault.time * 1000), "fault_level": fault.level}
        for fault in faults
    }
    worst = max(faults, key=lambda fault: _SWITCH_LEVELS.index(fault.level)).level if faults else ""
    return go_json(
        {
            "FaultCode": [go_json(event) for event in events],
            "FaultLevel": worst,
            "UpdateTime": int(now),
            "NodeStatus": "UnHealthy" if worst == "Separate" else "SubHealthy" if worst else "Healthy",
            "FaultTimeAndLevelMap": times,
        }
    )


def device_info(
    node: str,
    resource: str,
    free: Iterable[int],
    faults: Iterable[ChipFault],
    now: float,
    *,
    used: Container[int] = (),
    switches: Iterable[SwitchFault] | None = None,
) -> JsonObject:
    """The device plugin's ConfigMap of a node.

    Args:
        node: its name.
        resource: the chips' resource name.
        free: chips that are healthy and nobody's.
        faults: all faults there are.
        now: seconds since the epoch.
        used: chips that pods have.
        switches: faults of its switches; None: it has none (A2).
    """
    faults = list(faults)
    unhealthy = sorted({fault.chip for fault in faults if fault.separates(used=fault.chip in used)})
    unreachable = sorted({fault.chip for fault in faults if fault.kind == "CardNetworkUnhealthy"})
    devices = {
        resource: _names(free, resource),
        f"{resource}-Fault": go_json([fault_entry(fault, resource) for fault in faults]),
        f"{resource}-NetworkUnhealthy": _names(unreachable, resource),
        f"{resource}-Recovering": "",
        f"{resource}-Unhealthy": _names(unhealthy, resource),
    }
    inner = {"DeviceList": dict(sorted(devices.items())), "UpdateTime": int(now)}
    config = {
        "DeviceInfo": inner,
        "SuperPodID": -1,
        "RackID": -1,
        "ServerIndex": -1,
        "CheckCode": check_code(inner),
    }
    data = {"DeviceInfoCfg": go_json(config), "ManuallySeparateNPU": ""}
    if switches is not None:
        data["SwitchInfoCfg"] = switch_info(switches, now)
    return _config_map(f"mindx-dl-deviceinfo-{node}", DEVICE_NAMESPACE, data)


def node_info(node: str, faults: Iterable[HardwareFault], now: float) -> JsonObject:
    """NodeD's ConfigMap of a node; it exists only while there are faults."""
    faults = list(faults)
    worst = max(faults, key=lambda fault: list(_NODE_STATUS).index(fault.level)).level
    listed = [
        {
            "DeviceType": fault.device,
            "DeviceId": fault.device_id,
            "FaultCode": list(fault.codes),
            "FaultLevel": fault.level,
        }
        for fault in faults
    ]
    inner = {"FaultDevList": listed, "NodeStatus": _NODE_STATUS[worst]}
    content = go_json({"NodeInfo": inner, "CheckCode": check_code(inner)})
    return _config_map(f"mindx-dl-nodeinfo-{node}", NODE_NAMESPACE, {"NodeInfo": content, "updateTime": timestamp(now)})


def _names(chips: Iterable[int], resource: str) -> str:
    return ",".join(chip_name(chip, resource) for chip in chips)


def fault_entry(fault: ChipFault, resource: str) -> JsonObject:
    """Return what the device plugin lists for a chip's fault."""
    times = {fault.code: {"fault_time": int(fault.time * 1000), "fault_level": fault.level}}
    return {
        "fault_type": fault.kind,
        "npu_name": chip_name(fault.chip, resource),
        "large_model_fault_level": fault.level,
        "fault_level": fault.level,
        "fault_handling": fault.level,
        "fault_code": fault.code,
        "fault_time_and_level_map": times,
    }


def _config_map(name: str, namespace: str, data: dict[str, str]) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(CONSUMER_LABEL)},
        "data": data,
    }
