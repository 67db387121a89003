"""What each level of each source leads to: from the raw object to the job's decision, and to nothing more.

The whole way but the wire: the parsers, the cluster's faults with their filters, the job's controller, its orders.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest

from hajob.api import constants as names
from hajob.domain.actions import Action
from hajob.domain.hardware import Level
from hajob.faults.rules.cluster_faults import ClusterFaults
from hajob.plan.state import JobPhase
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources import registry
from hajob.sources.pod import pod_view_of
from hajob.sources.reading import SickCondition, Terms
from tests.rigs import hardware_objects as objects
from tests.rigs.job_controller import NAMESPACE, ControllerTown, settle_town

Expected = tuple[JobPhase, Action | None, tuple[int, ...], tuple[int, ...]]
"""Phase, action, ranks that are lost, node ranks whose pods are replaced."""

NOTHING: Final[Expected] = (JobPhase.RUNNING, None, (), ())
CHIP_IN_PLACE: Final[Expected] = (JobPhase.GATHERING, Action.IN_PLACE, (3,), ())
NODE_IN_PLACE: Final[Expected] = (JobPhase.GATHERING, Action.IN_PLACE, (2, 3), ())
REPLACE: Final[Expected] = (JobPhase.GATHERING, Action.REPLACE, (2, 3), (1,))
MIGRATE: Final[Expected] = (JobPhase.MIGRATING, Action.MIGRATE, (), (1,))

Make = Callable[[str, str], dict[str, Any]]
"""The object of a node, with a fault of a level."""


def device(node: str, level: str) -> dict[str, Any]:
    """The second chip of the pod, that of rank 3."""
    return objects.device_info(objects.fault("Ascend910-1", level, "80AA0001"), node=node, unhealthy="")


def unhealthy(node: str, level: str) -> dict[str, Any]:
    fault = objects.fault("Ascend910-1", level, "80AA0001")
    return objects.device_info(fault, node=node, unhealthy="Ascend910-1")


def stranger(node: str, level: str) -> dict[str, Any]:
    """A chip of the node that another pod has."""
    return objects.device_info(objects.fault("Ascend910-7", level, "80AA0001"), node=node, unhealthy="")


def manual(node: str, _: str) -> dict[str, Any]:
    well = objects.fault("Ascend910-1", "NotHandleFault", "80AA0001")
    return objects.device_info(well, node=node, unhealthy="", ManuallySeparateNPU="Ascend910-1")


def upgraded(node: str, level: str) -> dict[str, Any]:
    entry = {"upgrade_time": 1, "fault_code": "80AA0001", "fault_level": level, "upgrade_type": "FaultFrequency"}
    mild = objects.fault("Ascend910-1", "NotHandleFault", "80AA0001")
    raised = objects.compact({"Ascend910-1": [entry]})
    return objects.device_info(mild, node=node, unhealthy="", free="Ascend910-2", UpgradeFaultReason=raised)


def switch(node: str, level: str) -> dict[str, Any]:
    code = "[0x08520003,na,X,na]"
    times = {f"{code}_0_5": {"fault_time": objects.FAULT_TIME, "fault_level": level}}
    raw = objects.switch_info(objects.switch_event(code), level=level, FaultTimeAndLevelMap=times)
    raw["metadata"]["name"] = f"mindx-dl-deviceinfo-{node}"
    well = objects.device_info(objects.fault("Ascend910-9", "NotHandleFault"), unhealthy="")
    return {**raw, "data": {**raw["data"], "DeviceInfoCfg": well["data"]["DeviceInfoCfg"]}}


def noded(node: str, level: str) -> dict[str, Any]:
    return objects.node_info(objects.hardware(code="AAAA0001", level=level), node=node)


def condition(node: str, level: str) -> dict[str, Any]:
    raw = objects.node(node)
    raw["status"]["conditions"].append({"type": level, "status": "True", "reason": "Found"})
    return raw


def not_ready(node: str, _: str) -> dict[str, Any]:
    return objects.node(node, ready="Unknown")


def taint(node: str, _: str) -> dict[str, Any]:
    raw = objects.node(node)
    raw["spec"]["taints"] = [{"key": "team", "value": "vision", "effect": "NoExecute"}]
    return raw


def public(node: str, code: str) -> dict[str, Any]:
    return objects.public(objects.public_fault(faultCode=code, influence=[{"nodeName": node, "deviceIds": [1]}]))


def gathered(node: str, level: str, **more: Any) -> dict[str, Any]:
    """ClusterD's map of the same."""
    faults = objects.compact([objects.fault("Ascend910-1", level, "80AA0001", **more)])
    info = {"DeviceList": {"huawei.com/Ascend910-Fault": faults}, "UpdateTime": objects.UPDATED}
    name = "cluster-info-device-0"
    return objects.config_map(name, {name: objects.compact({f"mindx-dl-deviceinfo-{node}": info})})


def isolated(node: str, level: str) -> dict[str, Any]:
    """A chip that ClusterD has isolated: the level of its fault is a milder one."""
    return gathered(node, "NotHandleFault", fault_level=level)


def repeated(node: str, level: str) -> dict[str, Any]:
    """A public fault that ClusterD alone tells."""
    return gathered(node, level, fault_type="PublicFault")


MATRIX: Final[tuple[tuple[Make, str, Expected], ...]] = (
    (device, "NotHandleFault", NOTHING),
    (device, "SubHealthFault", MIGRATE),
    (device, "RestartRequest", CHIP_IN_PLACE),
    (device, "RestartBusiness", CHIP_IN_PLACE),
    (device, "FreeRestartNPU", NOTHING),
    (unhealthy, "FreeRestartNPU", REPLACE),
    (device, "RestartNPU", REPLACE),
    (device, "PreSeparateNPU", NOTHING),
    (device, "SeparateNPU", REPLACE),
    (device, "ManuallySeparateNPU", REPLACE),
    (device, "NeverHeardOf", REPLACE),  # of a code that nobody knows either
    (stranger, "SeparateNPU", NOTHING),
    (manual, "", REPLACE),
    (upgraded, "SeparateNPU", REPLACE),
    (upgraded, "PreSeparateNPU", NOTHING),
    (switch, "NotHandle", NOTHING),
    (switch, "SubHealth", MIGRATE),
    (switch, "RestartRequest", NODE_IN_PLACE),
    (switch, "Reset", REPLACE),
    (switch, "Separate", REPLACE),
    (noded, "NotHandleFault", NOTHING),
    (noded, "PreSeparateFault", NOTHING),
    (noded, "SeparateFault", REPLACE),
    (condition, "Slow", MIGRATE),
    (condition, "Broken", REPLACE),
    (condition, "Unnamed", NOTHING),
    (not_ready, "", NOTHING),
    (taint, "", NOTHING),
    (public, "100001011", NOTHING),
    (public, "010001001", MIGRATE),
    (public, "110001022", NOTHING),
    (public, "020001001", REPLACE),
    (gathered, "RestartBusiness", CHIP_IN_PLACE),
    (gathered, "SeparateNPU", REPLACE),
    (isolated, "ManuallySeparateNPU", REPLACE),
    (repeated, "PreSeparateNPU", NOTHING),
    (repeated, "SeparateNPU", REPLACE),
)
"""Object, level (or what stands for it), what follows."""
CONDITIONS: Final = {"Slow": SickCondition(Level.SUB_HEALTH), "Broken": SickCondition(Level.SEPARATE)}


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    yield made
    await made.controller.stop_managing()


async def training(town: ControllerTown) -> str:
    """A job that trains, each rank pod on chips 0 and 1 of its node; the node of node rank 1."""
    await town.train()
    node = ""
    for (resource, _, name), body in list(town.kube.objects.items()):
        if resource == "pods" and body["metadata"]["labels"][names.LABEL_ROLE] == names.ROLE_RANK:
            chips = {"huawei.com/AscendReal": "Ascend910-0,Ascend910-1"}
            body["metadata"].setdefault("annotations", {}).update(chips)
            town.controller.apply_pod(pod_view_of(town.kube.objects["pods", NAMESPACE, name]))
            if body["metadata"]["labels"][names.LABEL_NODE_RANK] == "1":
                node = body["spec"]["nodeName"]
    return node


async def told(town: ControllerTown, *raws: dict[str, Any]) -> None:
    """The operator reads these objects, and a minute passes."""
    faults = ClusterFaults(town.nodes.keys())
    for number, raw in enumerate(raws):
        reading = registry.read_object(raw, Terms(objects.NOW_MS, conditions=CONDITIONS))
        faults.store_object(f"{number}", reading, 0)
    for name in town.nodes:
        town.faults[name] = list(faults.faults_on_node(name, 1))
    town.sub_healthy.update(faults.sub_healthy)
    town.controller.look_for_faults(frozenset(town.nodes))
    await settle_town(town)


def outcome(town: ControllerTown) -> Expected:
    state = town.controller.state
    if state.incident is None:
        return (state.phase, None, (), ())
    incident = state.incident
    return (state.phase, incident.action, tuple(incident.lost_ranks), tuple(incident.replaced_nodes))


@pytest.mark.parametrize(("make", "level", "expected"), MATRIX, ids=[f"{m.__name__} {one}" for m, one, _ in MATRIX])
async def test_each_level_leads_to_its_action(town: ControllerTown, make: Make, level: str, expected: Expected) -> None:
    node = await training(town)
    orders, writes = len(town.links[0].orders), len(town.kube.objects)
    await told(town, make(node, level))
    phase, action, ranks, nodes = outcome(town)
    assert (phase, action, nodes) == (expected[0], expected[1], expected[3])
    assert action in {None, Action.MIGRATE} or ranks == expected[2]
    if expected == NOTHING:
        assert (len(town.links[0].orders), len(town.kube.objects)) == (orders, writes)
    elif expected in (CHIP_IN_PLACE, NODE_IN_PLACE):
        assert list(town.links[0].orders[-1].restart_ranks) == list(expected[2])
        assert len(town.kube.objects) == writes


async def test_one_fault_from_three_tellers_is_one_incident(town: ControllerTown) -> None:
    node = await training(town)
    await told(town, device(node, "RestartNPU"), gathered(node, "RestartNPU"))
    first = town.controller.state.incident
    await told(town, gathered(node, "RestartNPU"), device(node, "RestartNPU"))
    assert town.controller.state.incident == first
    assert first is not None
    assert len(first.fact_ids) == 1


async def test_a_worse_fault_in_a_recovery_raises_the_action(town: ControllerTown) -> None:
    node = await training(town)
    await told(town, device(node, "RestartRequest"))
    assert outcome(town) == CHIP_IN_PLACE
    await told(town, device(node, "RestartRequest"), noded(node, "SeparateFault"))
    assert outcome(town) == REPLACE
    assert town.links[0].orders[-1].action == wire.REPLACE
