"""Chips: one pod's at a time, shown as the device plugin shows them, broken and repaired."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.nodes.conftest import Object, Rig

RESOURCE = "huawei.com/Ascend910"


def asks(count: int) -> Object:
    return {"resources": {"limits": {RESOURCE: count}}}


def device_info(rig: Rig, node: str) -> Any:
    body = rig.plane.api.find(f"/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-{node}")
    return json.loads(body["data"]["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"] if body else None


def allocatable(rig: Rig, node: str) -> str:
    return str(rig.plane.api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"][RESOURCE])


def test_chips_are_annotated_by_the_device_plugin_s_own_account(rig: Rig) -> None:
    rig.run("p", "exec sleep 600", node=rig.small, container=asks(1))

    def annotations() -> Object | None:
        found = rig.pod("p")["metadata"].get("annotations", {})
        return found if "huawei.com/AscendReal" in found else None

    found = rig.wait("annotations", annotations)
    assert found["huawei.com/AscendReal"] == found["huawei.com/kltDev"] == "Ascend910-0"
    configuration = json.loads(found["ascend.kubectl.kubernetes.io/ascend-910-configuration"])
    assert configuration["server_id"] == rig.pod("p")["metadata"]["uid"]
    patches = [w for w in rig.plane.audit.writes() if w.name == "p" and "device-plugin" in w.user]
    assert {write.user for write in patches} == {"system:serviceaccount:kube-system:ascend-device-plugin-sa-910"}
    rig.wait("one free chip", lambda: device_info(rig, rig.small)[RESOURCE] == "Ascend910-1")


def test_chips_are_refused_when_taken_and_freed_with_containers(rig: Rig) -> None:
    rig.run("first", "exec sleep 600", node=rig.small, container=asks(2))
    rig.wait_phase("first", "Running")
    rig.run("second", "exec sleep 600", node=rig.small, container=asks(1))
    refused = rig.wait_phase("second", "Failed")["status"]
    assert refused["reason"] == "UnexpectedAdmissionError"
    assert refused["message"] == (
        "Pod was rejected: Allocate failed due to requested number of devices unavailable for huawei.com/Ascend910. "
        "Requested: 1, Available: 0, which is unexpected"
    )
    rig.control.kill(pod="first", container="main")
    rig.wait_phase("first", "Failed")
    rig.run("third", "exit 0", node=rig.small, container=asks(2))
    rig.wait_phase("third", "Succeeded")


def test_a_node_offers_its_chips(rig: Rig) -> None:
    node = rig.plane.api.get(f"/api/v1/nodes/{rig.large}")["status"]
    assert node["capacity"][RESOURCE] == node["allocatable"][RESOURCE] == "4"
    assert RESOURCE not in rig.plane.api.get(f"/api/v1/nodes/{rig.plain}")["status"]["capacity"]
    assert device_info(rig, rig.large)[RESOURCE] == "Ascend910-0,Ascend910-1,Ascend910-2,Ascend910-3"
    assert device_info(rig, rig.plain) is None


def test_a_chip_breaks_and_is_repaired(rig: Rig) -> None:
    rig.control.break_chip(rig.small, 1, code="80E18402", level="RestartNPU")
    assert allocatable(rig, rig.small) == "1"
    devices = rig.wait(
        "the fault", lambda: d if (d := device_info(rig, rig.small))[f"{RESOURCE}-Unhealthy"] == "Ascend910-1" else None
    )
    (fault,) = json.loads(devices[f"{RESOURCE}-Fault"])
    assert (fault["npu_name"], fault["fault_code"], fault["fault_level"]) == ("Ascend910-1", "80E18402", "RestartNPU")
    assert rig.plane.api.get(f"/api/v1/nodes/{rig.small}")["status"]["capacity"][RESOURCE] == "2"
    rig.control.repair_chip(rig.small, 1)
    assert allocatable(rig, rig.small) == "2"
    rig.wait("no fault", lambda: device_info(rig, rig.small)[f"{RESOURCE}-Fault"] == "[]")


def test_node_info_is_there_only_while_there_is_a_fault(rig: Rig) -> None:
    path = f"/api/v1/namespaces/mindx-dl/configmaps/mindx-dl-nodeinfo-{rig.small}"
    assert rig.plane.api.find(path) is None
    fault = {"device": "CPU", "deviceId": 0, "codes": ["0000001D"], "level": "SeparateFault"}
    rig.control.set_node_faults(rig.small, [fault])
    body = rig.wait("the fault", lambda: rig.plane.api.find(path))
    assert json.loads(body["data"]["NodeInfo"])["NodeInfo"]["NodeStatus"] == "UnHealthy"
    assert body["metadata"]["labels"] == {"mx-consumer-cim": "true"}
    rig.control.set_node_faults(rig.small, [])
    rig.wait("its end", lambda: rig.plane.api.find(path) is None)
