"""Faults of a node's own hardware (CPU, memory, disks, fans): the ConfigMap `mindx-dl-nodeinfo-<node>` of NodeD.

It is there only while something is wrong: its deletion is the recovery. Sealed by a CheckCode. Formats:
docs/admin/faults.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hajob.domain.facts import Source
from hajob.domain.hardware import ClusterFact, harms_job, kind_of_level
from hajob.sources.check_code import check_codes
from hajob.sources.fault_codes import CodeTable
from hajob.sources.reading import (
    Reading,
    RejectionReason,
    Terms,
    data_of_config_map,
    is_integer,
    items,
    mapping,
    printable,
    text,
)

KEY: Final = "NodeInfo"
TIME_KEY: Final = "updateTime"


def parse_node_info(raw: Mapping[str, Any], node: str, terms: Terms) -> Reading:
    """Read what NodeD's ConfigMap says about a node."""
    reading = Reading(terms)
    told = data_of_config_map(raw, KEY)
    if told is None:
        reading.note_rejection(RejectionReason.MISSING_KEY, KEY)
        return reading
    sealed = mapping(reading.parse_json(told, KEY))
    info = mapping(sealed.get("NodeInfo"))
    if not sealed or not _has_right_check_code(sealed, info, reading):
        return reading
    reading.updated_ms = reading.parse_timestamp(data_of_config_map(raw, TIME_KEY), TIME_KEY)
    read_node_info(info, node, reading)
    return reading


def _has_right_check_code(sealed: Mapping[str, Any], info: Mapping[str, Any], reading: Reading) -> bool:
    devices = info.get("FaultDevList")
    fields = [_device_fields(mapping(one)) for one in items(devices)]
    if (devices is not None and not isinstance(devices, list)) or None in fields:
        reading.note_rejection(RejectionReason.MALFORMED, KEY, info)
        return False
    content = {"FaultDevList": None if devices is None else fields, "NodeStatus": text(info.get("NodeStatus"))}
    if sealed.get("CheckCode") in check_codes(content):
        return True
    reading.note_rejection(RejectionReason.CHECK_CODE, KEY, sealed.get("CheckCode"))
    return False


def _device_fields(device: Mapping[str, Any]) -> dict[str, object] | None:
    """The fields of one device in the order of the writer's struct; None where one has another type."""
    number, codes = device.get("DeviceId", 0), device.get("FaultCode")
    if not is_integer(number) or not (codes is None or isinstance(codes, list)):
        return None
    return {
        "DeviceType": text(device.get("DeviceType")),
        "DeviceId": number,
        "FaultCode": codes,
        "FaultLevel": text(device.get("FaultLevel")),
    }


def read_node_info(info: Mapping[str, Any], node: str, reading: Reading) -> None:
    """Read an inner NodeInfo, which ClusterD's aggregated map holds without a seal of its own."""
    for place, entry in enumerate(items(info.get("FaultDevList"))):
        device, where = mapping(entry), f"FaultDevList[{place}]"
        name = f"{printable(device.get('DeviceType') or 'Device')}-{printable(device.get('DeviceId', 0))}"
        told = reading.parse_level(device.get("FaultLevel"), f"{where}.FaultLevel")
        for code in dict.fromkeys(one for one in items(device.get("FaultCode")) if isinstance(one, str) and one):
            level = reading.terms.codes.level_by_writer(CodeTable.NODE, code, told)
            reading.facts.append(
                ClusterFact(
                    id=f"node/{node}/hardware/{name}/{printable(code)}",
                    source=Source.NODE_HARDWARE,
                    kind=kind_of_level(level),
                    node=node,
                    device=name,
                    code=printable(code),
                    level=level,
                    since_ms=reading.updated_ms,
                    told_ms=reading.updated_ms,
                    harms=harms_job(level),
                    message=f"{name} of the node: {printable(code)}",
                )
            )
