"""How the parts of the process are put together."""

from __future__ import annotations

import asyncio
import copy

import pytest
from aiohttp import web

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.requests import requests
from hajob.api import constants as names
from hajob.cli.injection import Injection, InjectionKind, device_map
from hajob.cluster.reachability import ExpectedCoordinator, Reach
from hajob.runtime import app
from hajob.runtime.app import Operator
from hajob.runtime.credentials import ApiCredentials
from hajob.runtime.kube import ApiError
from hajob.runtime.lease import FENCE_LIMIT
from hajob.runtime.settings import Settings
from hajob.sources.node import NodeView
from release.generate.crd_schema import custom_resource_definition, quarantine_definition
from tests.rigs.fake_clock import settle
from tests.rigs.operator import LedOperator, OperatorWorld


@pytest.fixture
async def world() -> OperatorWorld:
    return OperatorWorld()


@pytest.fixture
async def operator(world: OperatorWorld) -> Operator:
    return world.operator


async def test_every_list_of_pods_is_told_to_the_core(world: OperatorWorld, operator: Operator) -> None:
    watch = asyncio.create_task(operator._pods.informers[0].run())
    await settle()
    assert operator._caches.listed_version("default") == str(world.server.history.version)
    watch.cancel()


async def broken() -> None:
    raise RuntimeError("a bug")


async def test_a_frontend_that_nobody_supervises_is_unhealthy(operator: Operator) -> None:
    assert operator._unhealthy() == ""
    ended = operator._frontend._supervisor = asyncio.create_task(broken())
    await settle()
    assert operator._unhealthy() == "the frontend has ended"
    assert isinstance(ended.exception(), RuntimeError)  # not retrieved, it is told in the middle of a later test


async def test_a_task_that_ends_is_unhealthy_and_says_why(operator: Operator, caplog: pytest.LogCaptureFixture) -> None:
    operator._look_after([asyncio.create_task(broken(), name="lease")])
    await settle()
    assert operator._unhealthy() == "the task lease has ended"
    assert "RuntimeError: a bug" in caplog.text


async def test_the_lease_is_given_back_also_after_a_task_has_failed(operator: Operator) -> None:
    await operator._lease.step()
    operator._look_after([asyncio.create_task(broken(), name="announcer")])
    await settle()
    await operator._shut_down(web.AppRunner(web.Application()))
    lease = await operator._kube.get("leases", "hajob-system", "hajob-operator")
    assert lease["spec"]["holderIdentity"] == ""


async def test_an_api_server_away_for_half_an_hour_ends_nothing(
    world: OperatorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    led = LedOperator(world, monkeypatch)
    await led.wait_until_leading()
    fence = led.operator._lease.fence
    outage = world.server.faults.unreachable()
    for stream in world.server.open_streams():
        stream.silent = True
    for _ in range(180):
        await world.clock.advance(10)
        assert led.operator._unhealthy() == ""
        assert (led.operator._lease.is_leader, led.operator._lease.may_write) == (True, False)
    outage.end()
    await world.clock.advance(80)
    assert (led.operator._lease.fence, led.operator._lease.may_write, led.starts) == (fence, True, 1)
    assert max(led.operator._pods.age(), led.operator._nodes.age()) < 70
    await led.end()


async def test_an_operator_that_starts_without_an_api_waits(
    world: OperatorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.job("job", 41)
    outage = world.server.faults.unreachable()
    led = LedOperator(world, monkeypatch)
    for _ in range(60):
        await world.clock.advance(10)
        assert (led.operator._unhealthy(), led.operator._unready() == "") == ("", False)
    outage.end()
    world.server.faults.refuse(ApiError(500, "", ""), matching=requests(names.PLURAL), times=5)
    await led.wait_until_leading()
    assert led.operator._lease.fence == 42
    await led.end()


async def test_a_forged_fence_costs_no_leader(world: OperatorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.job("honest", 7)
    await world.job("forged", FENCE_LIMIT)
    led = LedOperator(world, monkeypatch)
    await led.wait_until_leading()
    assert led.operator._lease.fence == 8
    led.operator._lease.claim(FENCE_LIMIT)
    led.operator._lease.claim(900)
    await world.clock.advance(5)
    assert (led.operator._lease.fence, led.starts, led.task.done()) == (901, 1, False)
    await led.end()


async def test_a_lease_deleted_under_a_leader_starts_one_frontend(
    world: OperatorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    led = LedOperator(world, monkeypatch)
    await led.wait_until_leading()
    await world.kube.delete("leases", "hajob-system", "hajob-operator")
    await world.clock.advance(5)
    assert (led.starts, led.operator._lease.fence, led.task.done()) == (1, 2, False)
    await led.end()


async def test_an_operator_with_an_older_crd_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a rolling upgrade that forgot the CRD stops at its first pod, and the version before goes on leading."""
    world = OperatorWorld()
    crd = copy.deepcopy(custom_resource_definition())
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop("output")
    await world.kube.create("customresourcedefinitions", "", crd)
    await world.kube.create("customresourcedefinitions", "", quarantine_definition())
    led = LedOperator(world, monkeypatch)
    await led.wait_until_leading()
    assert "it lacks spec.output" in world.operator._unready()
    assert world.operator._unhealthy() == ""
    await led.end()


async def test_a_leader_that_is_cut_off_ends_for_a_better_one(
    world: OperatorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    led = LedOperator(world, monkeypatch)
    await led.wait_until_leading()
    other = Operator(
        Settings(identity="two", metrics_port=0),
        MemoryKube(world.server, "two"),
        ApiCredentials("https://nowhere"),
        world.clock,
    )

    async def reaches(*_: object) -> list[ExpectedCoordinator]:
        return [ExpectedCoordinator("node-0", reached=True)] * 2

    monkeypatch.setattr(app, "probe", reaches)
    other._caches.nodes["node-0"] = NodeView("node-0")
    standby = asyncio.create_task(other._lease.run())
    await world.clock.advance(5)
    assert not led.task.done()
    monkeypatch.setattr(led.operator._partition, "_count", lambda: Reach(2, 2))
    await world.clock.advance(12)
    await asyncio.wait_for(led.task, 60)
    await world.clock.advance(2)
    assert (led.operator._lease.is_leader, other._lease.fence) == (False, 2)
    standby.cancel()


async def test_the_lease_is_free_before_kopf_has_ended(world: OperatorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    led = LedOperator(world, monkeypatch)
    await led.wait_until_leading()
    holders: list[str] = []

    async def stop() -> None:
        lease = await world.kube.get("leases", "hajob-system", "hajob-operator")
        holders.append(lease["spec"]["holderIdentity"])

    monkeypatch.setattr(led.operator._frontend, "stop", stop)
    await led.end()
    assert holders == [""]


async def test_a_broken_chip_quarantines_its_node(world: OperatorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    led = LedOperator(world, monkeypatch)
    await led.wait_until_leading()
    await world.kube.create("nodes", "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    injection = Injection.of(InjectionKind.CHIP, "n1", 3)
    body = device_map(None, injection, world.clock.now_milliseconds())
    await world.kube.create(
        "namespaces", "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
    )
    labels = {"training.hajob.io/settings": "faults"}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hajob-faults", "labels": labels}}
    idle_chips_count = {"quarantine": "idleChips: true"}
    await world.kube.create("configmaps", "hajob-system", settings | {"data": idle_chips_count})
    await world.kube.create("configmaps", "kube-system", body)
    for _ in range(20):
        await world.clock.advance(0.5)
    found = [raw async for page in world.kube.pages(names.QUARANTINES) for raw in page.items]
    assert [(raw["metadata"]["name"], raw["spec"]["reason"]) for raw in found] == [("n1", "RestartNPU")]
    assert led.operator._quarantines.kept_out() == {"n1"}
    assert led.operator._faults.report()["nodes"] == ["n1"]
    await led.end()


async def test_only_nodes_with_its_labels_are_quarantined(monkeypatch: pytest.MonkeyPatch) -> None:
    world = OperatorWorld(HAJOB_FAULT_NODE_SELECTOR="pool=a")
    for name in ("a1", "b1", "b2"):
        await world.node(name, KernelDeadlock="True")
    labels = {"training.hajob.io/settings": "faults"}
    settings = {
        "metadata": {"name": "hajob-faults", "labels": labels},
        "data": {"conditions": "KernelDeadlock: SeparateNPU"},
    }
    await world.kube.create("configmaps", "hajob-system", settings)
    theirs = {"kind": names.QUARANTINE_KIND, "apiVersion": names.API_VERSION, "metadata": {"name": "b2"}}
    theirs["spec"] = {"nodeName": "b2", "source": "Device", "reason": "SeparateNPU", "faults": ["x"]}
    theirs = await world.kube.create(names.QUARANTINES, "", theirs)
    led = LedOperator(world, monkeypatch)
    await led.wait_until_leading()
    for _ in range(10):
        await world.clock.advance(1)
    found = {raw["metadata"]["name"]: raw async for page in world.kube.pages(names.QUARANTINES) for raw in page.items}
    await led.end()
    assert found.keys() == {"a1", "b2"}
    assert found["b2"]["spec"] == theirs["spec"]


@pytest.mark.parametrize("text", ["pool", "=a", "pool=a,b"])
def test_a_selector_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(SystemExit, match="HAJOB_FAULT_NODE_SELECTOR"):
        Settings.from_environment({"HAJOB_FAULT_NODE_SELECTOR": text})
