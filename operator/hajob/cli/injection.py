"""What an injected fault changes in the objects that device plugin and NodeD write: pure, in their exact formats.

Formats and seals are those of docs/admin/faults.md. A fault joins what an object says already; recovery takes all
faults of the place away again, whoever told them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from hajob.api.base import Json
from hajob.domain.hardware import Level
from hajob.faults.rules.filters import MEMORY_FAULT
from hajob.sources import device_info, node_info, switch_info
from hajob.sources.check_code import check_codes
from hajob.sources.fault_codes import LEVEL_WORDS
from hajob.sources.reading import items, mapping

DEVICE_NAMESPACE: Final = "kube-system"
NODE_NAMESPACE: Final = "mindx-dl"
RESOURCE: Final = "huawei.com/Ascend910"
_CONSUMER: Final = {"mx-consumer-cim": "true"}
_HEALTHY: Final = frozenset({Level.NOT_HANDLE, Level.SUB_HEALTH, Level.PRE_SEPARATE})
"""At these levels the device plugin does not list a chip as unhealthy; at the last one only while a pod has it."""
_NODE_STATUS: Final = {"NotHandleFault": "Healthy", "PreSeparateFault": "PreSeparate", "SeparateFault": "UnHealthy"}


class InjectionKind(StrEnum):
    """What breaks, as the commands name it."""

    CHIP = "chip"
    SUB_HEALTH = "sub-health"
    LINK_DOWN = "link-down"
    MEMORY = "memory"
    SWITCH = "switch"
    NODE = "node"
    RECOVER = "recover"


DEFAULTS: Final = {
    InjectionKind.CHIP: ("40F84E00", "RestartNPU"),
    InjectionKind.SUB_HEALTH: ("80E18400", "SubHealthFault"),
    InjectionKind.LINK_DOWN: ("81078603", "NotHandleFault"),
    InjectionKind.MEMORY: (MEMORY_FAULT, "RestartBusiness"),
    InjectionKind.SWITCH: ("[0x00f1ff06,155910,na,na]", "Separate"),
    InjectionKind.NODE: ("2C000031", "SeparateFault"),
    InjectionKind.RECOVER: ("", ""),
}
"""Code and level of each kind where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Injection:
    """A fault to write into the cluster, or to take back.

    Attributes:
        kind: what breaks.
        node: name of the Kubernetes node.
        chip: number on the node, for faults of chips; None for recovery: all of them.
        code: of the fault.
        level: in the words of its writer.
    """

    kind: InjectionKind
    node: str
    chip: int | None = None
    code: str = ""
    level: str = ""

    @staticmethod
    def with_usual_values(
        kind: InjectionKind, node: str, chip: int | None = None, code: str = "", level: str = ""
    ) -> Injection:
        """Build an injection, with what is usual for its kind where nothing is said.

        Raises:
            ValueError: a chip is missing, or nobody knows the level.
        """
        usual_code, usual_level = DEFAULTS[kind]
        if kind in _OF_CHIPS and chip is None:
            raise ValueError(f"{kind} needs the number of a chip")
        if level and level not in LEVEL_WORDS:
            raise ValueError(f"level {level!r} is none of {', '.join(LEVEL_WORDS)}")
        if kind is InjectionKind.NODE and level and level not in _NODE_STATUS:
            raise ValueError(f"NodeD knows the levels {', '.join(_NODE_STATUS)}, not {level}")
        return Injection(kind, node, chip, code or usual_code, level or usual_level)


_OF_CHIPS: Final = frozenset(
    {InjectionKind.CHIP, InjectionKind.SUB_HEALTH, InjectionKind.LINK_DOWN, InjectionKind.MEMORY}
)


def device_map_name(node: str) -> str:
    """Name the device plugin's ConfigMap of a node."""
    return f"mindx-dl-deviceinfo-{node}"


def node_map_name(node: str) -> str:
    """Name NodeD's ConfigMap of a node."""
    return f"mindx-dl-nodeinfo-{node}"


def device_config_map(known: Mapping[str, Any] | None, injection: Injection, now_ms: int) -> Json:
    """Return the device plugin's ConfigMap with the fault in it, or without those that recover."""
    body = _body_of_config_map(known, device_map_name(injection.node), DEVICE_NAMESPACE)
    data = body["data"]
    if injection.kind is InjectionKind.SWITCH:
        data[switch_info.KEY] = _build_switch_fault(injection, now_ms)
    elif injection.kind is InjectionKind.RECOVER:
        data.pop(switch_info.KEY, None)
    sealed = mapping(_parse_json(data.get(device_info.KEY)))
    inner = mapping(sealed.get("DeviceInfo"))
    devices = dict(mapping(inner.get("DeviceList"))) or {RESOURCE: ""}
    resource = next((key for key in devices if "-" not in key.rpartition("/")[2]), RESOURCE)
    if injection.kind is not InjectionKind.SWITCH:
        _change_devices(devices, resource, injection, now_ms)
    info = {"DeviceList": dict(sorted(devices.items())), "UpdateTime": now_ms // 1000}
    rest = {key: sealed.get(key, -1) for key in ("SuperPodID", "RackID", "ServerIndex")}
    data[device_info.KEY] = _compact_json({"DeviceInfo": info, **rest, "CheckCode": check_codes(info)[0]})
    return body


def _change_devices(devices: dict[str, str], resource: str, injection: Injection, now_ms: int) -> None:
    """Add the fault to the list of chips, or take those of the chip away."""
    prefix = resource.rpartition("/")[2]
    faults = [
        fault
        for fault in items(_parse_json(devices.get(f"{resource}-Fault")))
        if _does_fault_stay(fault, prefix, injection)
    ]
    if injection.kind is not InjectionKind.RECOVER:
        faults.append(_build_chip_fault(f"{prefix}-{injection.chip}", injection, now_ms))
    unhealthy = {
        fault["npu_name"]
        for fault in faults
        if LEVEL_WORDS.get(fault.get("fault_level", ""), Level.SEPARATE) not in _HEALTHY
    }
    devices[f"{resource}-Fault"] = _compact_json(faults)
    devices[f"{resource}-Unhealthy"] = ",".join(sorted(unhealthy))
    for missing in (resource, f"{resource}-NetworkUnhealthy", f"{resource}-Recovering"):
        devices.setdefault(missing, "")


def _does_fault_stay(fault: Mapping[str, Any], prefix: str, injection: Injection) -> bool:
    if injection.kind is InjectionKind.RECOVER:
        return injection.chip is not None and fault.get("npu_name") != f"{prefix}-{injection.chip}"
    return (fault.get("npu_name"), fault.get("fault_code")) != (f"{prefix}-{injection.chip}", injection.code)


def _build_chip_fault(device: str, injection: Injection, now_ms: int) -> Json:
    network = injection.kind is InjectionKind.LINK_DOWN
    return {
        "fault_type": "CardNetworkUnhealthy" if network else "CardUnhealthy",
        "npu_name": device,
        "large_model_fault_level": injection.level,
        "fault_level": injection.level,
        "fault_handling": injection.level,
        "fault_code": injection.code,
        "fault_time_and_level_map": {injection.code: {"fault_time": now_ms, "fault_level": injection.level}},
    }


def _build_switch_fault(injection: Injection, now_ms: int) -> str:
    event = {
        "EventType": 1,
        "AssembledFaultCode": injection.code,
        "PeerPortDevice": 0,
        "PeerPortId": 0,
        "SwitchChipId": 0,
        "SwitchPortId": 0,
        "Severity": 2,
        "Assertion": 1,
        "AlarmRaisedTime": now_ms,
    }
    times = {f"{injection.code}_0_0": {"fault_time": now_ms, "fault_level": injection.level}}
    return _compact_json(
        {
            "FaultCode": [_compact_json(event)],
            "FaultLevel": injection.level,
            "UpdateTime": now_ms // 1000,
            "NodeStatus": "UnHealthy",
            "FaultTimeAndLevelMap": times,
        }
    )


def node_config_map(injection: Injection, now: str) -> Json:
    """Build NodeD's ConfigMap with the fault in it; `now`: RFC 3339."""
    device = {"DeviceType": "CPU", "DeviceId": 0, "FaultCode": [injection.code], "FaultLevel": injection.level}
    info = {"FaultDevList": [device], "NodeStatus": _NODE_STATUS[injection.level]}
    body = _body_of_config_map(None, node_map_name(injection.node), NODE_NAMESPACE)
    sealed = {"NodeInfo": info, "CheckCode": check_codes(info)[0]}
    body["data"] = {node_info.KEY: _compact_json(sealed), node_info.TIME_KEY: now}
    return body


def _body_of_config_map(known: Mapping[str, Any] | None, name: str, namespace: str) -> Json:
    if known is None:
        metadata = {"name": name, "namespace": namespace, "labels": dict(_CONSUMER)}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}}
    return {**known, "apiVersion": "v1", "kind": "ConfigMap", "data": dict(mapping(known.get("data")))}


def _parse_json(source: object) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(source) if isinstance(source, str) and source else None
    except ValueError:
        return None


def _compact_json(value: object) -> str:
    """As Go writes it: compact, with `<`, `>` and `&` escaped."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
