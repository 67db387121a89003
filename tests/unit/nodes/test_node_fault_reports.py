"""The ConfigMaps of the device plugin and NodeD, byte by byte where consumers hash them."""

from __future__ import annotations

import hashlib
import json

import pytest

from e2e.nodes.faults import ChipFault, HardwareFault, check_code, device_info, go_json, node_info

RESOURCE = "huawei.com/Ascend910"
EXAMPLE = (
    '{"DeviceList":{"huawei.com/Ascend910":"Ascend910-0,Ascend910-1,Ascend910-2","huawei.com/Ascend910-Fault":'
    '"[{\\"fault_type\\":\\"CardUnhealthy\\",\\"npu_name\\":\\"Ascend910-3\\",\\"large_model_fault_level\\":'
    '\\"RestartBusiness\\",\\"fault_level\\":\\"RestartBusiness\\",\\"fault_handling\\":\\"RestartBusiness\\",'
    '\\"fault_code\\":\\"80E01801\\",\\"fault_time_and_level_map\\":{\\"80E01801\\":{\\"fault_time\\":1767225600000,'
    '\\"fault_level\\":\\"RestartBusiness\\"}}}]","huawei.com/Ascend910-NetworkUnhealthy":"",'
    '"huawei.com/Ascend910-Recovering":"","huawei.com/Ascend910-Unhealthy":"Ascend910-3"},"UpdateTime":1767225601}'
)


def test_the_check_code_is_the_one_a_go_program_computes() -> None:
    assert check_code(json.loads(EXAMPLE)) == "854c9fead9ac773cf0a5bcfb60ed5ef72cae456202e76bc6765f6332e793175a"


def test_go_escapes_what_html_would_trip_over() -> None:
    assert go_json({"a": "<&>ä"}) == '{"a":"\\u003c\\u0026\\u003eä"}'


def test_device_info_of_a_node_with_a_broken_chip() -> None:
    faults = [
        ChipFault(3, "80E18402", "RestartNPU", 1767225600.0),
        ChipFault(1, "81078603", "NotHandleFault", 1767225600.0, "CardNetworkUnhealthy"),
    ]
    body = device_info("node-1", RESOURCE, [0, 1, 2], faults, 1767225601.9)
    assert body["metadata"] == {
        "name": "mindx-dl-deviceinfo-node-1",
        "namespace": "kube-system",
        "labels": {"mx-consumer-cim": "true"},
    }
    config = json.loads(body["data"]["DeviceInfoCfg"])
    devices = config["DeviceInfo"]["DeviceList"]
    assert devices[RESOURCE] == "Ascend910-0,Ascend910-1,Ascend910-2"
    assert devices[f"{RESOURCE}-Unhealthy"] == "Ascend910-3"
    assert devices[f"{RESOURCE}-NetworkUnhealthy"] == "Ascend910-1"
    assert [fault["npu_name"] for fault in json.loads(devices[f"{RESOURCE}-Fault"])] == ["Ascend910-3", "Ascend910-1"]
    inner = body["data"]["DeviceInfoCfg"].split('"DeviceInfo":', 1)[1].split(',"SuperPodID"')[0]
    assert config["CheckCode"] == hashlib.sha256(inner.encode()).hexdigest()


@pytest.mark.parametrize(
    ("level", "free", "used"),
    [
        ("NotHandleFault", False, False),
        ("SubHealthFault", False, False),
        ("RestartRequest", True, True),
        ("RestartBusiness", True, True),
        ("FreeRestartNPU", True, True),
        ("RestartNPU", True, True),
        ("PreSeparateNPU", True, False),
        ("SeparateNPU", True, True),
    ],
)
def test_levels_take_a_chip_away_as_the_plugin_has_it(level: str, *, free: bool, used: bool) -> None:
    fault = ChipFault(0, "c", level, 0)
    assert (fault.separates(used=False), fault.separates(used=True)) == (free, used)
    assert not ChipFault(0, "c", level, 0, "CardNetworkUnhealthy").separates(used=False)


def test_node_info_says_the_worst() -> None:
    faults = [
        HardwareFault("CPU", 0, ("0000001D",), "NotHandleFault"),
        HardwareFault("PSU", 1, ("x",), "SeparateFault"),
    ]
    body = node_info("node-1", faults, 0.0)
    assert (body["metadata"]["name"], body["metadata"]["namespace"]) == ("mindx-dl-nodeinfo-node-1", "mindx-dl")
    content = json.loads(body["data"]["NodeInfo"])
    assert content["NodeInfo"]["NodeStatus"] == "UnHealthy"
    assert content["NodeInfo"]["FaultDevList"][0] == {
        "DeviceType": "CPU",
        "DeviceId": 0,
        "FaultCode": ["0000001D"],
        "FaultLevel": "NotHandleFault",
    }
    assert content["CheckCode"] == check_code(content["NodeInfo"])
    assert body["data"]["updateTime"] == "1970-01-01T00:00:00Z"
