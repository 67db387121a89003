"""How the parts of the process are put together."""

from __future__ import annotations

import copy
import json

import pytest

from e2e.memory_api.requests import requests
from hajob.api import constants as names
from hajob.app import operator as app
from hajob.app.core import OperatorCore
from hajob.app.settings import Settings
from hajob.cli.injection import Injection, InjectionKind, device_config_map
from hajob.clock import format_microtime
from hajob.kube.client import ApiError
from hajob.kube.events import Announcer
from hajob.leader.lease import FENCE_LIMIT
from hajob.leader.reachability import ExpectedCoordinator
from release.generate.crd_schema import custom_resource_definition, quarantine_definition
from tests.rigs.metrics import sample
from tests.rigs.operator import LedOperator, OperatorWorld


@pytest.fixture
async def world() -> OperatorWorld:
    return OperatorWorld()


async def test_every_list_of_pods_is_told_to_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, str]] = []
    genuine = OperatorCore.note_complete_pods

    def complete(core: OperatorCore, version: str = "", namespace: str = "") -> None:
        told.append((version, namespace))
        genuine(core, version, namespace)

    monkeypatch.setattr(OperatorCore, "note_complete_pods", complete)
    world = OperatorWorld()
    led = LedOperator(world)
    version = str(world.server.history.version)
    await led.wait_until_leading()
    assert told == [(version, "")]
    await led.end()


async def test_a_frontend_that_nobody_supervises_is_unhealthy(world: OperatorWorld) -> None:
    led = LedOperator(world)
    await led.wait_until_leading()
    assert await led.asked("/healthz") == "ok"
    world.frontend.has_ended = True
    assert await led.asked("/healthz") == "the frontend has ended"
    await led.end()


async def test_after_a_failed_task_the_lease_is_given_back(
    world: OperatorWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(_: Announcer) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Announcer, "post_queued", fails)
    led = LedOperator(world)
    await led.wait_until_leading()
    assert await led.asked("/healthz") == "the task announcer has ended"
    assert "RuntimeError: a bug" in caplog.text
    await led.end()
    assert (await world.lease())["holderIdentity"] == ""


async def test_an_api_server_away_for_half_an_hour_ends_nothing(world: OperatorWorld) -> None:
    led = LedOperator(world)
    await led.wait_until_leading()
    fence = (await world.lease())["leaseTransitions"]
    outage = world.server.faults.unreachable()
    for stream in world.server.open_streams():
        stream.silent = True
    for _ in range(30):
        await world.clock.advance(60)
        assert await led.asked("/healthz") == "ok"
        assert not led.task.done()
    outage.end()
    await world.clock.advance(80)
    lease = await world.lease()
    assert (lease["leaseTransitions"], world.frontend.starts, led.task.done()) == (fence, 1, False)
    assert format_microtime(world.clock.now_milliseconds() - 5_000) < lease["renewTime"]
    await led.asked("/healthz")
    ages = [sample("hajob_watch_age_seconds", resource=resource) for resource in ("pods", "nodes")]
    assert max(ages) < 70
    await led.end()


async def test_an_operator_that_starts_without_an_api_waits(world: OperatorWorld) -> None:
    await world.job("job", 41)
    outage = world.server.faults.unreachable()
    led = LedOperator(world)
    for _ in range(10):
        await world.clock.advance(60)
        assert await led.asked("/healthz") == "ok"
        assert (await led.asked("/readyz")).startswith("still listing")
    outage.end()
    world.server.faults.refuse(ApiError(500, "", ""), matching=requests(names.PLURAL), times=5)
    await led.wait_until_leading()
    assert (await world.lease())["leaseTransitions"] == 42
    await led.end()


async def test_a_forged_fence_costs_no_leader(world: OperatorWorld) -> None:
    await world.job("honest", 7)
    await world.job("forged", FENCE_LIMIT)
    led = LedOperator(world)
    await led.wait_until_leading()
    assert (await world.lease())["leaseTransitions"] == 8
    await world.job("later", 900)
    for name in ("honest", "forged", "later"):
        await world.show_job(name)
    await world.clock.advance(5)
    assert (await world.lease())["leaseTransitions"] == 901
    assert (world.frontend.starts, led.task.done()) == (1, False)
    await led.end()


async def test_a_lease_deleted_under_a_leader_starts_one_frontend(world: OperatorWorld) -> None:
    led = LedOperator(world)
    await led.wait_until_leading()
    await world.kube.delete_object("leases", "hajob-system", "hajob-operator")
    await world.clock.advance(5)
    assert (await world.lease())["leaseTransitions"] == 2
    assert (world.frontend.starts, led.task.done()) == (1, False)
    await led.end()


async def test_an_operator_with_an_older_crd_is_not_ready() -> None:
    """So a rolling upgrade that forgot the CRD stops at its first pod, and the version before goes on leading."""
    world = OperatorWorld()
    crd = copy.deepcopy(custom_resource_definition())
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop("output")
    await world.kube.create_object("customresourcedefinitions", "", crd)
    await world.kube.create_object("customresourcedefinitions", "", quarantine_definition())
    led = LedOperator(world)
    await led.wait_until_leading()
    assert "it lacks spec.output" in await led.asked("/readyz")
    assert await led.asked("/healthz") == "ok"
    await led.end()


async def test_a_leader_that_is_cut_off_ends_for_a_better_one(
    world: OperatorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        await world.chip_node(f"node-{number}")
    led = LedOperator(world)
    await led.wait_until_leading()
    channels = [await world.train("a"), await world.train("b")]

    async def reaches(*_: object) -> list[ExpectedCoordinator]:
        return [ExpectedCoordinator("node-0", reached=True)] * 2

    monkeypatch.setattr(app, "probe_coordinators", reaches)
    beside = OperatorWorld(world, HAJOB_IDENTITY="two")
    standby = LedOperator(beside)
    assert await standby.asked("/healthz") == "ok"
    await world.clock.advance(5)
    assert (led.task.done(), beside.frontend.starts) == (False, 0)
    for channel in channels:
        channel.listener.note_connection_change(False, "no route")
    await world.until(led.task.done)
    await world.until(lambda: beside.frontend.starts)
    lease = await world.lease()
    assert (lease["holderIdentity"], lease["leaseTransitions"], beside.frontend.starts) == ("two", 2, 1)
    await standby.end()


async def test_the_lease_is_free_before_kopf_has_ended(world: OperatorWorld) -> None:
    led = LedOperator(world)
    await led.wait_until_leading()
    holders: list[str] = []
    [(_, lease)] = [each for each in world.server.history.everything() if each[0] == "leases"]
    assert lease["spec"]["holderIdentity"] == "one"
    world.frontend.stopping = lambda: holders.extend(
        body["spec"]["holderIdentity"] for plural, body in world.server.history.everything() if plural == "leases"
    )
    await led.end()
    assert holders == [""]


async def test_a_broken_chip_quarantines_its_node(world: OperatorWorld) -> None:
    led = LedOperator(world)
    await led.wait_until_leading()
    await world.kube.create_object("nodes", "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    injection = Injection.with_usual_values(InjectionKind.CHIP, "n1", 3)
    body = device_config_map(None, injection, world.clock.now_milliseconds())
    await world.kube.create_object(
        "namespaces", "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
    )
    labels = {"training.hajob.io/settings": "faults"}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hajob-faults", "labels": labels}}
    idle_chips_count = {"quarantine": "idleChips: true"}
    await world.kube.create_object("configmaps", "hajob-system", settings | {"data": idle_chips_count})
    await world.kube.create_object("configmaps", "kube-system", body)
    for _ in range(20):
        await world.clock.advance(0.5)
    found = [raw async for page in world.kube.list_pages(names.QUARANTINES) for raw in page.items]
    assert [(raw["metadata"]["name"], raw["spec"]["reason"]) for raw in found] == [("n1", "RestartNPU")]
    assert json.loads(await led.asked("/faults"))["nodes"] == ["n1"]
    await led.end()


async def test_only_nodes_with_its_labels_are_quarantined() -> None:
    world = OperatorWorld(HAJOB_FAULT_NODE_SELECTOR="pool=a")
    for name in ("a1", "b1", "b2"):
        await world.node(name, KernelDeadlock="True")
    labels = {"training.hajob.io/settings": "faults"}
    settings = {
        "metadata": {"name": "hajob-faults", "labels": labels},
        "data": {"conditions": "KernelDeadlock: SeparateNPU"},
    }
    await world.kube.create_object("configmaps", "hajob-system", settings)
    theirs = {"kind": names.QUARANTINE_KIND, "apiVersion": names.API_VERSION, "metadata": {"name": "b2"}}
    theirs["spec"] = {"nodeName": "b2", "source": "Device", "reason": "SeparateNPU", "faults": ["x"]}
    theirs = await world.kube.create_object(names.QUARANTINES, "", theirs)
    led = LedOperator(world)
    await led.wait_until_leading()
    for _ in range(10):
        await world.clock.advance(1)
    found = {
        raw["metadata"]["name"]: raw async for page in world.kube.list_pages(names.QUARANTINES) for raw in page.items
    }
    await led.end()
    assert found.keys() == {"a1", "b2"}
    assert found["b2"]["spec"] == theirs["spec"]


@pytest.mark.parametrize("text", ["pool", "=a", "pool=a,b"])
def test_a_selector_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(SystemExit, match="HAJOB_FAULT_NODE_SELECTOR"):
        Settings.from_environment({"HAJOB_FAULT_NODE_SELECTOR": text})


async def test_a_scrape_tells_of_the_jobs_as_they_are_now(world: OperatorWorld) -> None:
    for number in range(5):
        await world.chip_node(f"a-{number}")
    led = LedOperator(world)
    await led.wait_until_leading()
    channel = await world.train("job")
    channel.report(step=77)
    told = await led.asked("/metrics")
    labels = 'job="job",namespace="default"'
    assert f"hajob_job_step{{{labels}}} 77.0" in told, "long before the status is written again"
    assert f'hajob_job_state{{{labels},reason="",state="Running"}} 1.0' in told
    assert 'hajob_nodes{state="used"} 4.0' in told
    assert 'hajob_chips{resource="huawei.com/Ascend910",state="free"} 2.0' in told
    assert world.frontend.intake is not None
    world.frontend.intake.handle_deleted_job(
        (await world.kube.get_object(names.PLURAL, "default", "job"))["metadata"]["uid"]
    )
    assert 'job="job"' not in await led.asked("/metrics")
    await led.end()
