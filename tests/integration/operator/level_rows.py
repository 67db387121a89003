"""What each level of each source leads to: rows that are written as their writers write them, and what may follow."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from e2e.bench.obedient_coordinator import ObedientCoordinator
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.rest import ApiError
from e2e.nodes import faults as writers
from hajob.protocol import sidecar_pb2 as wire
from tests.integration.operator.bare_nodes import ready_condition
from tests.integration.operator.scripted_jobs import ScriptedJobs
from tests.rigs import hardware_objects as objects

Object = dict[str, Any]
CHIP = "huawei.com/Ascend910"
CODE = "80AA0001"
CONFLICT = 409
SWITCH_CODE = "[0x00f1ff06,155910,na,na]"
SETTINGS = {
    "conditions": '{"Slow": SubHealthFault, "Broken": SeparateNPU}',
    "breaker": "{sharePercent: 100}",
    "quarantine": "{sharePercent: 100, firstSeconds: 0, idleChips: true}",
}
"""Of the operator of the table: half of the nodes break at once, on purpose, and are let in once they are well."""


@dataclass
class Scene:
    """Where a row plays.

    Attributes:
        job: name of its job.
        pod: that the row is about, as it was before.
        row: a word of its own, for names.
        well: what takes everything back that was written: path to merge patch; None: the object goes.
    """

    jobs: ScriptedJobs
    job: str
    pod: Object
    row: str
    well: dict[str, Object | None] = field(default_factory=dict)
    _uids: dict[int, list[str]] = field(default_factory=dict)
    _orders: int = 0
    _incidents: int = 0

    def remember(self) -> None:
        """What the job is like before."""
        self._uids, self._orders = self._now(), len(self.coordinator.given)
        self._incidents = self._incidents_now()

    def _now(self) -> dict[int, list[str]]:
        pods = self.jobs.rank_pods(self.job)
        return {node: [pod["metadata"]["uid"] for pod in there] for node, there in sorted(pods.items())}

    def _incidents_now(self) -> int:
        return len(self.jobs.status(self.job).get("incidents") or [])

    def orders(self) -> list[wire.Order]:
        """What its coordinator was told to do since then."""
        return self.coordinator.given[self._orders :]

    def anew(self) -> tuple[int, ...]:
        """Node ranks with other pods than then."""
        return tuple(node for node, uids in self._now().items() if uids != self._uids[node])

    def incidents(self) -> int:
        """How many the job has had since then."""
        return self._incidents_now() - self._incidents

    def is_over(self) -> bool:
        """Whether the job trains whole again, and no pod is there that is not to stay."""
        newest = (self.jobs.status(self.job).get("incidents") or [{}])[0]
        is_whole = self.jobs.state(self.job) == "Running" and newest.get("outcome") == "Recovered"
        pods = list(self.jobs.rank_pods(self.job).values())
        return is_whole and all(len(there) == 1 and there[0]["status"]["phase"] == "Running" for there in pods)

    @property
    def plane(self) -> ControlPlane:
        return self.jobs.plane

    @property
    def node(self) -> str:
        """On which the pod is."""
        return str(self.pod["spec"].get("nodeName", ""))

    @property
    def coordinator(self) -> ObedientCoordinator:
        return self.jobs.coordinators[self.job]

    async def create(self, body: Object, well: Object | None = None) -> None:
        """A ConfigMap of somebody; `well`: what its data are when all is well again, None: it goes then."""
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/configmaps"
        name = body["metadata"]["name"]
        await asyncio.to_thread(self._put, path, name, body)
        self.well[f"{path}/{name}"] = None if well is None else {"data": well}

    def _put(self, path: str, name: str, body: Object) -> None:
        """An earlier row may have left the node's map there, in order."""
        try:
            self.plane.api.create(path, body)
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            self.plane.api.request("PUT", f"{path}/{name}", body)

    async def write_chips(self, body: Object) -> None:
        """The device plugin's map."""
        well = writers.device_info(self.node, CHIP, (0, 1), (), time.time(), switches=())
        await self.create(body, {**well["data"], "UpgradeFaultReason": None})

    async def change_node(self, body: Object, well: Object, subresource: str = "") -> None:
        """Somebody changes the Node; `well`: the same in order again."""
        path = f"/api/v1/nodes/{self.node}{subresource}"
        await asyncio.to_thread(self.plane.api.merge, path, body)
        self.well[path] = well

    async def delete_node(self) -> None:
        await asyncio.to_thread(self.plane.api.delete, f"/api/v1/nodes/{self.node}")

    async def take_back(self) -> None:
        """Whatever was wrong is over, in the words of its writer."""
        for path, well in self.well.items():
            await asyncio.to_thread(self._write, path, well)

    def _write(self, path: str, well: Object | None) -> None:
        if well is None:
            self.plane.api.delete(path)
        else:
            self.plane.api.merge(path, well)

    def clean_up(self) -> None:
        """Nothing of it stays on the control plane, which other tests use."""
        for path in self.well:
            if "/configmaps/" in path:
                self.plane.api.delete(path)

    async def pod_status(self, **status: Any) -> None:
        """The kubelet says something else of the pod."""
        await asyncio.to_thread(self.plane.api.merge, f"{self._pod_path}/status", {"status": status})

    async def delete_pod(self) -> None:
        await asyncio.to_thread(self.plane.api.delete, self._pod_path)

    @property
    def _pod_path(self) -> str:
        return f"/api/v1/namespaces/{self.jobs.namespace}/pods/{self.pod['metadata']['name']}"


Act = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True)
class Outcome:
    """What became of a job.

    Attributes:
        orders: what its coordinator was told to do, in order.
        lost: ranks that the first order names as lost.
        anew: node ranks with another pod than before.
        quarantine: reason for which the pod's node is kept out; empty: it is not.
        writes: what the operator has written about the job, what every incident writes apart.
    """

    orders: tuple[str, ...] = ()
    lost: tuple[int, ...] = ()
    anew: tuple[int, ...] = ()
    quarantine: str = ""
    writes: tuple[str, ...] = ()

    @property
    def is_quiet(self) -> bool:
        """Whether the job itself is to hear of nothing."""
        return not self.orders and not self.anew


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        maybe: what the operator may write in addition, by who is faster.
    """

    name: str
    act: Act
    outcome: Outcome
    recovery: Object = field(default_factory=dict)
    maybe: str = ""


def now_ms() -> int:
    return int(time.time() * 1000)


# ------------------------------------------------------------------------------------- device plugin, switch, NodeD


def chip_fault(level: str, chip: int = 1, code: str = CODE, kind: str = "CardUnhealthy") -> writers.ChipFault:
    return writers.ChipFault(chip, code, level, time.time(), kind)


def device(level: str, *, healthy: bool = False, **more: Any) -> Act:
    """The second chip of the pod, that of rank 3; `healthy`: it is in use, and not listed as unhealthy."""

    async def act(scene: Scene) -> None:
        body = writers.device_info(scene.node, CHIP, (), [chip_fault(level, **more)], time.time())
        await scene.write_chips(_resealed(body, {f"{CHIP}-Unhealthy": ""}) if healthy else body)

    return act


def _resealed(body: Object, change: dict[str, str]) -> Object:
    """The map with other entries in its list of chips."""
    config = json.loads(body["data"]["DeviceInfoCfg"])
    inner = config["DeviceInfo"]
    inner["DeviceList"] = dict(sorted({**inner["DeviceList"], **change}.items()))
    config["CheckCode"] = writers.check_code(inner)
    return {**body, "data": {**body["data"], "DeviceInfoCfg": writers.go_json(config)}}


def isolated_by_hand() -> Act:
    return relisted(lambda data: data.update(ManuallySeparateNPU="Ascend910-1"))


def broken_seal() -> Act:
    """Somebody has edited a mild fault into a bad one."""

    def edit(data: Object) -> None:
        data["DeviceInfoCfg"] = data["DeviceInfoCfg"].replace("NotHandleFault", "SeparateNPU")

    return relisted(edit)


def relisted(change: Callable[[Object], None]) -> Act:
    """The device plugin's map with a harmless fault of the chip, and something else in its data."""

    async def act(scene: Scene) -> None:
        body = writers.device_info(scene.node, CHIP, (), [chip_fault("NotHandleFault")], time.time())
        change(body["data"])
        await scene.write_chips(body)

    return act


def upgraded(level: str) -> Act:
    entry = {
        "upgrade_time": now_ms(),
        "fault_code": CODE.lower(),
        "fault_level": level,
        "upgrade_type": "FaultFrequency",
    }
    return relisted(lambda data: data.update(UpgradeFaultReason=writers.go_json({"Ascend910-1": [entry]})))


def switch(level: str) -> Act:
    async def act(scene: Scene) -> None:
        now = time.time()
        told = [writers.SwitchFault(SWITCH_CODE, level, now)]
        await scene.write_chips(writers.device_info(scene.node, CHIP, (0, 1), (), now, switches=told))

    return act


def noded(level: str) -> Act:
    async def act(scene: Scene) -> None:
        told = [writers.HardwareFault("CPU", 0, ("2C000031",), level)]
        await scene.create(writers.node_info(scene.node, told, time.time()))

    return act


# ------------------------------------------------------------------------------------------------------- ClusterD


async def gathered(scene: Scene, kind: str, info: Object, source: str) -> None:
    """One of ClusterD's maps; the data key is the map's own name."""
    name = f"cluster-info-{kind}-{scene.jobs.namespace[-6:]}-{scene.row}"
    body = objects.config_map(name, {name: writers.go_json({f"{source}-{scene.node}": info})}, "mx-consumer-volcano")
    body["metadata"]["namespace"] = writers.NODE_NAMESPACE
    await scene.create(body, {name: ""})


def gathered_chips(level: str, **more: Any) -> Act:
    async def act(scene: Scene) -> None:
        fault = writers.fault_entry(chip_fault(level), CHIP) | more
        listed = {f"{CHIP}-Fault": writers.go_json([fault]), f"{CHIP}-Unhealthy": "", CHIP: ""}
        info = {"DeviceList": listed, "UpdateTime": int(time.time()), "CmName": f"mindx-dl-deviceinfo-{scene.node}"}
        await gathered(scene, "device", info, "mindx-dl-deviceinfo")

    return act


def isolated_by_clusterd() -> Act:
    return gathered_chips("ManuallySeparateNPU", fault_code="", fault_time_and_level_map={})


def repeated_by_clusterd(level: str) -> Act:
    return gathered_chips(level, fault_type="PublicFault")


def gathered_switches(level: str) -> Act:
    async def act(scene: Scene) -> None:
        info = json.loads(writers.switch_info([writers.SwitchFault(SWITCH_CODE, level, time.time())], time.time()))
        await gathered(scene, "switch", info, "mindx-dl-switchinfo")

    return act


def gathered_hardware(level: str) -> Act:
    async def act(scene: Scene) -> None:
        fault = {"DeviceType": "CPU", "DeviceId": 0, "FaultCode": ["2C000031"], "FaultLevel": level}
        await gathered(scene, "node-cm", {"FaultDevList": [fault], "NodeStatus": "UnHealthy"}, "mindx-dl-nodeinfo")

    return act


# -------------------------------------------------------------------------------------------------- public faults


async def _message(scene: Scene, sender: str = "CCAE", **fields: Any) -> None:
    now = now_ms()
    place = {"nodeName": scene.node, "deviceIds": [1]}
    fault = objects.public_fault(faultTime=now, influence=[place], faultId=f"fault-{scene.row}-00", **fields)
    sent = {"timestamp": now, "id": f"message-{scene.row}", "resource": sender}
    body = objects.public(fault, **sent)
    body["metadata"]["name"] = f"public-{scene.jobs.namespace[-6:]}-{scene.row}"
    await scene.create(body, objects.public({**fault, "assertion": "recover"}, **sent)["data"])


def public(code: str, **fields: Any) -> Act:
    async def act(scene: Scene) -> None:
        await _message(scene, faultCode=code, **fields)

    return act


async def public_and_repeated(scene: Scene) -> None:
    """The same from its sender and from ClusterD."""
    await _message(scene, faultCode="020001001")
    await gathered_chips(
        "SeparateNPU",
        fault_type="PublicFault",
        fault_code="020001001",
        fault_time_and_level_map={"020001001": {"fault_time": int(time.time()), "fault_level": "SeparateNPU"}},
    )(scene)


async def device_and_gathered(scene: Scene) -> None:
    """The same from the device plugin and from ClusterD."""
    await device("RestartNPU")(scene)
    await gathered_chips("RestartNPU")(scene)


# ------------------------------------------------------------------------------------------------------------ Node


def condition(kind: str) -> Act:
    async def act(scene: Scene) -> None:
        told = {**ready_condition(), "type": kind, "reason": "Found"}
        await _conditions(scene, ready_condition(), told)

    return act


async def not_ready(scene: Scene) -> None:
    await _conditions(scene, ready_condition("Unknown"))


async def _conditions(scene: Scene, *told: Object) -> None:
    well = {"status": {"conditions": [ready_condition()]}}
    await scene.change_node({"status": {"conditions": told}}, well, "/status")


async def cordoned(scene: Scene) -> None:
    await scene.change_node({"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}})


def tainted(key: str) -> Act:
    async def act(scene: Scene) -> None:
        taint = {"key": key, "value": "x", "effect": "NoSchedule"}
        await scene.change_node({"spec": {"taints": [taint]}}, {"spec": {"taints": None}})

    return act


async def node_is_being_deleted(scene: Scene) -> None:
    """Somebody keeps it from going at once."""
    finalizers = {"metadata": {"finalizers": ["test.hajob.io/kept"]}}
    await scene.change_node(finalizers, {"metadata": {"finalizers": None}})
    await scene.delete_node()


async def node_is_gone(scene: Scene) -> None:
    """The controller manager takes its pods away a while later; here at once."""
    await scene.delete_node()
    await taken("DeletionByPodGC")(scene)


# ------------------------------------------------------------------------------------------------------------- Pod


def container_ended(reason: str, code: int) -> Act:
    async def act(scene: Scene) -> None:
        ended = {"reason": reason, "exitCode": code}
        told = [
            {**one, "ready": False, "state": {"terminated": ended}} if one["name"] == "trainer" else one
            for one in scene.pod["status"]["containerStatuses"]
        ]
        await scene.pod_status(phase="Failed", containerStatuses=told)

    return act


async def evicted_by_kubelet(scene: Scene) -> None:
    await scene.pod_status(phase="Failed", reason="Evicted", message="The node was low on resource: memory.")


def taken(reason: str) -> Act:
    """Whoever takes it says so before it deletes it."""

    async def act(scene: Scene) -> None:
        told = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "made room"}
        await scene.pod_status(conditions=[*scene.pod["status"]["conditions"], told])
        await scene.delete_pod()

    return act


async def deleted(scene: Scene) -> None:
    await scene.delete_pod()


async def image_cannot_be_pulled(scene: Scene) -> None:
    """Of a container that somebody has added: the trainer goes on."""
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    told = [*scene.pod["status"]["containerStatuses"]]
    told[-1] = {**told[-1], "ready": False, "state": waiting}
    await scene.pod_status(containerStatuses=told)


# --------------------------------------------------------------------------------------------------------- reports


def report(kind: wire.FactKind, **fields: Any) -> Act:
    async def act(scene: Scene) -> None:
        scene.coordinator.report_fact(kind, **fields)

    return act


async def connection_lost(scene: Scene) -> None:
    """The coordinator's process answers no more."""
    await scene.jobs.hang_up(scene.coordinator.pod_uid)
