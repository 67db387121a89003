"""Objects as MindCluster's components write them, and as they never should be: what each of them must be read as."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any

from tests.rigs import hardware_objects as objects

DAY_MS = 24 * 3600 * 1000
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Case:
    """An object, the codes that are read in it, and the reasons for what is not used."""

    name: str
    raw: dict[str, Any]
    codes: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()


def edited(raw: dict[str, Any], key: str, change: Any) -> dict[str, Any]:
    """Copy the object with the text under a key changed."""
    made = copy.deepcopy(raw)
    made["data"][key] = change(made["data"][key])
    return made


def resealed(*faults: Any, **more: Any) -> dict[str, Any]:
    """Build a node's ConfigMap of chips with these faults and a CheckCode that fits."""
    return objects.device_info(*faults, **more)


def future(fault: dict[str, Any]) -> dict[str, Any]:
    """Copy a fault, with a time that is two days ahead."""
    detail = {"fault_time": objects.NOW_MS + 2 * DAY_MS, "fault_level": fault["fault_level"]}
    return {**fault, "fault_time_and_level_map": {fault["fault_code"]: detail}}


def public(**more: Any) -> dict[str, Any]:
    """Build a ConfigMap of one public fault, with other values in it."""
    return objects.public(objects.public_fault(**more))


def aggregated(*entries: tuple[str, Any]) -> dict[str, Any]:
    """Build the ConfigMap in which many nodes' chips stand together."""
    name = "cluster-info-device-0"
    return objects.config_map(name, {name: json.dumps(dict(entries))}, "mx-consumer-volcano")


def inner(*faults: Any) -> dict[str, Any]:
    """Build a node's part of such a ConfigMap."""
    return {"DeviceList": objects.device_list(*faults), "UpdateTime": 1_767_225_601}


THOUSAND = [objects.fault(code=f"{number:08X}", level="RestartRequest") for number in range(1000)]
CASES = [
    Case("as it is written", objects.device_info(), ("80E01801",)),
    Case("truncated", edited(objects.device_info(), "DeviceInfoCfg", lambda text: text[:200]), (), ("Malformed",)),
    Case("an empty text", edited(objects.device_info(), "DeviceInfoCfg", lambda _: ""), (), ("Malformed",)),
    Case(
        "wrong hash",
        edited(objects.device_info(), "DeviceInfoCfg", lambda text: text.replace("80E01801", "x")),
        (),
        ("CheckCodeMismatch",),
    ),
    Case("no such key", {**objects.device_info(), "data": {"Description": "text"}}, (), ("MissingKey",)),
    Case("a list instead of an object", edited(objects.device_info(), "DeviceInfoCfg", lambda _: "[1, 2]"), ()),
    Case(
        "a device of no name",
        resealed(objects.fault(device="../3"), objects.fault()),
        ("80E01801",),
        ("UnknownDevice",),
    ),
    Case(
        "an unknown level", resealed(objects.fault(level="Terrible")), ("80E01801",), ("UnknownLevel", "UnknownLevel")
    ),
    Case("a time in the future", resealed(future(objects.fault())), ("80E01801",), ("FutureTime",)),
    Case("control characters", resealed(objects.fault(code="a\u0000b\u001bc")), ("a?b?c",)),
    Case("a thousand faults on a chip", resealed(*THOUSAND), tuple(one["fault_code"] for one in THOUSAND)),
    Case(
        "a value of 1 MiB", edited(objects.device_info(), "DeviceInfoCfg", lambda _: "{" * MEBIBYTE), (), ("Malformed",)
    ),
    Case("a code of 1 MiB", resealed(objects.fault(code="c" * MEBIBYTE)), ("c" * 80 + "…",)),
    Case(
        "chips isolated by hand",
        objects.device_info(ManuallySeparateNPU="Ascend910-1, ,x"),
        ("80E01801", ""),
        ("UnknownDevice",),
    ),
    Case("an upgrade of a fault", objects.device_info(UpgradeFaultReason="{"), ("80E01801",), ("Malformed",)),
    Case(
        "a node of no name",
        {**objects.device_info(), "metadata": {"name": "mindx-dl-deviceinfo-"}},
        (),
        ("UnknownNode", "UnknownNode"),
    ),
    Case("a node that does not exist", objects.device_info(node="nowhere"), ("80E01801",)),
    Case(
        "a broken switch event",
        objects.switch_info("{", objects.switch_event()),
        ("80E01801", "[0x00f1ff06,155910,na,na]"),
        ("Malformed", "Malformed"),
    ),
    Case(
        "NodeD's, truncated",
        edited(objects.node_info(objects.hardware()), "NodeInfo", lambda text: text[:-3]),
        (),
        ("Malformed",),
    ),
    Case(
        "NodeD's, edited",
        edited(objects.node_info(objects.hardware()), "NodeInfo", lambda text: text.replace("CPU", "Fan")),
        (),
        ("CheckCodeMismatch",),
    ),
    Case(
        "NodeD's, time that is none",
        {
            **objects.node_info(objects.hardware()),
            "data": {**objects.node_info(objects.hardware())["data"], "updateTime": "soon"},
        },
        ("2C000031",),
        ("Malformed",),
    ),
    Case("a public fault", public(), ("220001001", "220001001")),
    Case("a public fault of a stranger", objects.public(objects.public_fault(), resource="me"), (), ("UnknownSender",)),
    Case("a public fault of no known code", public(faultCode="999999999"), (), ("UnknownCode",)),
    Case("a hundred and one public faults", objects.public(*[objects.public_fault()] * 101), (), ("TooMany",)),
    Case(
        "one of two aggregated nodes broken",
        aggregated(("mindx-dl-deviceinfo-n1", inner()), ("elsewhere", 5)),
        ("80E01801",),
        ("UnknownNode",),
    ),
    Case(
        "an aggregated map, truncated",
        objects.config_map("cluster-info-device-0", {"cluster-info-device-0": '{"a'}),
        (),
        ("Malformed",),
    ),
    Case(
        "a node whose conditions are none", {"kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": "x"}}
    ),
    Case("a kind that nobody reads", {"kind": "Secret", "metadata": {"name": "s"}}, (), ("UnknownObject",)),
]
