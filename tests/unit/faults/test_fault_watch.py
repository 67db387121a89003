"""From a ConfigMap in the cluster to the nodes whose jobs are told, on the API server in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.server import MemoryServer
from hajob.api.base import Json
from hajob.capacity.caches import Caches
from hajob.faults.watch import FaultListener, FaultWatch
from hajob.kube.client import ApiError
from hajob.sources.node import NodeView
from tests.rigs import hardware_objects as objects
from tests.rigs.capacity import caches_of
from tests.rigs.fake_clock import FakeClock, settle

NAMESPACE = "default"
NODES = {f"node-{number}" for number in range(10)}


def busy_caches(*, idle: tuple[str, str] = ("", "")) -> Caches:
    """Every chip is a pod's, but this one of this node."""
    made = caches_of(*NODES)
    made.is_idle_chip = lambda node, chip: (node, chip) == idle  # type: ignore[method-assign]
    return made


class Cluster(FaultListener):
    """A watch of faults, and what it tells."""

    def __init__(self, caches: Caches | None = None) -> None:
        self.clock, self.caches = FakeClock(), caches or busy_caches()
        self.kube = MemoryKube(MemoryServer(self.clock))
        self.told: list[frozenset[str]] = []
        self.held: list[str] = []
        self.watch = FaultWatch(self.kube, self.clock, self.caches, [NAMESPACE])
        self.watch.listeners.append(self)
        self.watch.follow_settings(NAMESPACE)

    def handle_changed_faults(self, nodes: frozenset[str]) -> None:
        self.told.append(nodes)

    def handle_breaker_change(self, held: str) -> None:
        self.held.append(held)

    async def started(self) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(informer.list_and_watch()) for informer in self.watch.informers]
        await settle()
        return tasks

    async def put(self, raw: Json) -> None:
        body = {**raw, "metadata": {**raw["metadata"], "namespace": NAMESPACE}}
        await self.kube.create_object("configmaps", NAMESPACE, body)
        await settle()

    async def delete(self, name: str) -> None:
        await self.kube.delete_object("configmaps", NAMESPACE, name)
        await settle()

    def codes(self, node: str = "node-1") -> list[str]:
        return [fact.code for fact, _ in self.watch.faults_on(node)]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    tasks = await made.started()
    yield made
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_chip_that_breaks_is_told(cluster: Cluster) -> None:
    await cluster.put(objects.device_info(objects.fault(level="RestartNPU", code="40F84E00")))
    assert cluster.told == [frozenset({"node-1"})]
    assert cluster.codes() == ["40F84E00"]
    assert cluster.watch.cluster.kept_out == {"node-1"}


async def test_an_object_that_is_gone_tells_no_more(cluster: Cluster) -> None:
    await cluster.put(objects.node_info(objects.hardware()))
    assert cluster.codes() == ["2C000031"]
    await cluster.delete("mindx-dl-nodeinfo-node-1")
    assert (cluster.codes(), len(cluster.told)) == ([], 2)


async def test_a_public_fault_ends_with_its_object(cluster: Cluster) -> None:
    """As after a start of the operator, which would not find it either; told again it stands again."""
    await cluster.put(objects.public(objects.public_fault()))
    assert cluster.codes() == ["220001001", "220001001"]
    await cluster.delete("any-name")
    assert cluster.codes() == []
    await cluster.put(objects.public(objects.public_fault()))
    assert cluster.codes() == ["220001001", "220001001"]


async def test_a_public_fault_ends_with_the_right_of_its_sender(cluster: Cluster) -> None:
    await cluster.put(objects.public(objects.public_fault()))
    await settings(cluster, senders="pingmesh")
    assert cluster.codes() == []
    await cluster.clock.advance(2)
    assert cluster.watch.state_report()["rejectedByReason"] == {"UnknownSender": 1}


async def test_what_was_refused_of_a_message_goes_with_it(cluster: Cluster) -> None:
    await cluster.put(objects.public(objects.public_fault(), resource="nobody"))
    assert cluster.watch.state_report()["rejectedByReason"] == {"UnknownSender": 1}
    await cluster.delete("any-name")
    assert cluster.watch.state_report()["rejectedByReason"] == {}


async def test_a_fault_that_happened_once_is_over_by_itself(cluster: Cluster) -> None:
    now = cluster.clock.now_milliseconds()
    await cluster.put(objects.public(objects.public_fault(assertion="once", faultTime=now), timestamp=now))
    assert cluster.codes() == ["220001001", "220001001"]
    await cluster.clock.advance(6)
    assert (cluster.codes(), len(cluster.told)) == ([], 2)


async def test_a_memory_fault_is_told_ten_seconds_later(cluster: Cluster) -> None:
    await cluster.put(objects.device_info())
    assert cluster.codes() == []
    cluster.told.clear()
    await cluster.clock.advance(10.1)
    assert (cluster.told, cluster.codes()) == ([frozenset({"node-1"})], ["80E01801"])


def fresh(cluster: Cluster, fault: Json, node: str = "node-1") -> Json:
    """A report that is being written now."""
    return objects.device_info(fault, node=node, updated=cluster.clock.now_milliseconds() // 1000)


async def flood(cluster: Cluster) -> None:
    for number in range(4):
        await cluster.put(fresh(cluster, objects.fault(level="SeparateNPU", code="x"), f"node-{number}"))


async def test_a_flood_is_not_believed_however_long_it_lasts(cluster: Cluster) -> None:
    await flood(cluster)
    assert cluster.told == [frozenset({f"node-{number}"}) for number in range(3)]  # so many are believed
    await cluster.clock.advance(3600)
    assert [cluster.codes(f"node-{number}") for number in range(4)] == [[]] * 4
    assert "since then: 4 of 10" in cluster.held[-1]


async def test_a_flood_that_is_over_lets_the_rest_be_told(cluster: Cluster) -> None:
    await flood(cluster)
    await cluster.delete("mindx-dl-deviceinfo-node-0")
    assert (cluster.held[-1], cluster.codes("node-3")) == ("", ["x"])
    assert "node-3" in cluster.told[-1]


async def settings(cluster: Cluster, believe: str = "", **data: str) -> None:
    annotations = {"training.hajob.io/believe-faults": believe}
    labels = {"training.hajob.io/settings": "faults"}
    body = {"metadata": {"name": "hajob-faults", "annotations": annotations, "labels": labels}, "data": data}
    try:
        await cluster.kube.create_object("configmaps", NAMESPACE, {"apiVersion": "v1", "kind": "ConfigMap", **body})
    except ApiError:
        await cluster.kube.patch_object("configmaps", NAMESPACE, "hajob-faults", body)
    await settle()


async def test_an_admin_says_that_a_flood_is_true(cluster: Cluster) -> None:
    await settings(cluster, "once")
    await flood(cluster)
    await settings(cluster, "it is true")
    assert (cluster.held[-1], cluster.codes("node-3")) == ("", ["x"])


async def test_an_admin_raises_the_breaker(cluster: Cluster) -> None:
    await settings(cluster, breaker="{sharePercent: 50}")
    await flood(cluster)
    assert (cluster.held, cluster.codes("node-3")) == ([], ["x"])


async def test_a_code_gets_another_level_at_once(cluster: Cluster) -> None:
    await cluster.put(objects.device_info(objects.fault(level="SeparateNPU", code="40F84E00")))
    await settings(cluster, codes='"40F84E00": NotHandleFault')
    await cluster.clock.advance(10)
    assert [fact.level for fact, _ in cluster.watch.faults_on("node-1")] == ["NotHandleFault"]
    await settings(cluster, codes="{}")
    await cluster.clock.advance(10)
    assert [fact.level for fact, _ in cluster.watch.faults_on("node-1")] == ["SeparateNPU"]


async def test_wrong_settings_are_counted_and_the_rest_counts(cluster: Cluster) -> None:
    await settings(cluster, codes='{"a": Nonsense, "b": RestartNPU}', breaker="{sharePercent: 900}", typo="x")
    assert cluster.watch.settings.codes == {"b": "RestartNPU"}
    assert cluster.watch.settings.breaker.share == 20
    reasons = cluster.watch.state_report()["rejectedByReason"]
    assert reasons == {"UnknownLevel": 1, "Malformed": 1, "UnknownObject": 1}


async def test_a_condition_that_an_admin_named_is_a_fault(cluster: Cluster) -> None:
    await settings(cluster, conditions="NPULost: SeparateNPU")
    node = objects.node(NPULost="True")
    cluster.watch.apply_node(node["metadata"]["name"], cluster.watch.read_node_faults(node))
    assert cluster.codes(node["metadata"]["name"]) == ["NPULost"]


async def test_a_clock_that_jumps_holds_everything_for_a_minute(cluster: Cluster) -> None:
    await cluster.put(objects.device_info(objects.fault(level="SeparateNPU", code="x")))
    cluster.clock.step_wall(3600)
    await cluster.clock.advance(6)
    assert (cluster.codes(), cluster.held[-1]) == ([], "the operator's clock jumped by +3600 s")
    await cluster.clock.advance(61)
    assert (cluster.codes(), cluster.held[-1]) == (["x"], "")


async def test_writers_that_fall_silent_are_believed_no_more(cluster: Cluster) -> None:
    for number in range(5):
        await cluster.put(fresh(cluster, objects.fault(level="NotHandleFault"), f"node-{number}"))
    await cluster.clock.advance(910)
    assert cluster.held == ["silent device plugins: 5 of 5; the limit is 3"]
    for number in range(2):
        await cluster.delete(f"mindx-dl-deviceinfo-node-{number}")
    await cluster.clock.advance(6)
    assert cluster.held[-1] == ""


async def test_what_is_left_of_nodes_that_are_gone_is_no_silence(cluster: Cluster) -> None:
    for number in range(5):
        await cluster.put(fresh(cluster, objects.fault(level="NotHandleFault"), f"removed-{number}"))
    await cluster.clock.advance(2000)
    assert (cluster.held, cluster.watch.state_report()["silent"]) == ([], [])


async def test_what_a_dead_writer_left_behind_harms_nobody(cluster: Cluster) -> None:
    old = cluster.clock.now_milliseconds() // 1000 - 1000
    broken = objects.fault(level="SeparateNPU", code="x")
    await cluster.put(objects.device_info(broken, updated=old))
    assert [fact.harms for fact, _ in cluster.watch.faults_on("node-1")] == [False]
    await cluster.delete("mindx-dl-deviceinfo-node-1")
    await cluster.put(objects.device_info(broken, updated=old + 999))
    assert [fact.harms for fact, _ in cluster.watch.faults_on("node-1")] == [True]


async def test_what_a_writer_told_is_doubted_once_it_is_dead(cluster: Cluster) -> None:
    """ClusterD repeats its words; new pods are kept away as before."""
    broken = objects.fault(level="SeparateNPU", code="x")
    await cluster.put(fresh(cluster, broken))
    info = json.loads(fresh(cluster, broken)["data"]["DeviceInfoCfg"])["DeviceInfo"]
    repeated = {"cluster-info-device-0": objects.compact({"mindx-dl-deviceinfo-node-1": info})}
    await cluster.put(objects.config_map("cluster-info-device-0", repeated, "mx-consumer-volcano"))
    assert [fact.harms for fact, _ in cluster.watch.faults_on("node-1")] == [True]
    cluster.told.clear()
    await cluster.clock.advance(906)
    (fact,) = [fact for fact, _ in cluster.watch.faults_on("node-1")]
    assert (fact.harms, fact.isolates, cluster.told) == (False, True, [frozenset({"node-1"})])
    assert "silent for too long" in fact.message
    await cluster.delete("mindx-dl-deviceinfo-node-1")
    await cluster.put(fresh(cluster, broken))
    assert [fact.harms for fact, _ in cluster.watch.faults_on("node-1")] == [True]


async def test_a_dead_noded_is_doubted_after_three_half_hours(cluster: Cluster) -> None:
    raw = objects.node_info(objects.hardware())
    raw["data"]["updateTime"] = datetime.fromtimestamp(cluster.clock.now_milliseconds() / 1000, UTC).isoformat()
    await cluster.put(raw)
    await cluster.clock.advance(5395)
    assert [fact.harms for fact, _ in cluster.watch.faults_on("node-1")] == [True]
    await cluster.clock.advance(12)
    assert [fact.harms for fact, _ in cluster.watch.faults_on("node-1")] == [False]


def harms(cluster: Cluster) -> list[bool]:
    return [fact.harms for fact, _ in cluster.watch.faults_on("node-1")]


def boots(cluster: Cluster, boot: str, condition_at: str) -> None:
    """The node is as it is now: of this boot, with a condition of this time."""
    raw = objects.node(KernelDeadlock="True")
    raw["status"]["nodeInfo"] = {"bootID": boot}
    raw["status"]["conditions"][-1]["lastHeartbeatTime"] = condition_at
    cluster.watch.apply_node("node-1", cluster.watch.read_node_faults(raw))


async def test_a_condition_from_before_the_boot_is_doubted(cluster: Cluster) -> None:
    await settings(cluster, conditions="KernelDeadlock: SeparateNPU")
    boots(cluster, "a", "2026-01-01T00:00:00Z")
    boots(cluster, "a", "2026-01-01T00:05:00Z")
    assert harms(cluster) == [True]
    boots(cluster, "b", "2026-01-01T00:05:00Z")
    assert harms(cluster) == [False]
    boots(cluster, "b", "2026-01-01T00:10:00Z")
    assert harms(cluster) == [True]


async def test_what_noded_told_before_the_boot_is_doubted(cluster: Cluster) -> None:
    raw = objects.node_info(objects.hardware())
    raw["data"]["updateTime"] = datetime.fromtimestamp(cluster.clock.now_milliseconds() / 1000, UTC).isoformat()
    await cluster.put(raw)
    for boot in "ab":
        boots(cluster, boot, "2026-01-01T00:00:00Z")
    assert [fact.harms for fact, _ in cluster.watch.faults_on("node-1") if fact.device] == [False]
    later = datetime.fromtimestamp(cluster.clock.now_milliseconds() / 1000 + 60, UTC).isoformat()
    await cluster.kube.patch_object("configmaps", NAMESPACE, raw["metadata"]["name"], {"data": {"updateTime": later}})
    await settle()
    assert [fact.harms for fact, _ in cluster.watch.faults_on("node-1") if fact.device] == [True]


async def test_a_pardoned_fault_harms_nobody_and_counts_from_0() -> None:
    pardons: dict[str, list[str]] = {}
    cluster = Cluster()
    cluster.watch.cluster.pardoned = lambda node: pardons.get(node, ())
    tasks = await cluster.started()
    for _ in range(3):
        await cluster.put(fresh(cluster, objects.fault(level="RestartBusiness", code="x")))
        last = cluster.watch.faults_on("node-1")
        await cluster.delete("mindx-dl-deviceinfo-node-1")
    assert [fact.frequent for fact, _ in last] == [True]
    await cluster.put(fresh(cluster, objects.fault(level="SeparateNPU", code="x")))
    pardons["node-1"] = ["Ascend910-3/x"]
    cluster.watch.pardon("node-1")
    assert (cluster.codes(), cluster.watch.standing_faults("node-1")) == ([], [])
    assert (cluster.watch.cluster.kept_out, cluster.watch.of_quarantine("node-1")[0].code) == (set(), "x")
    pardons.clear()
    await cluster.delete("mindx-dl-deviceinfo-node-1")
    await cluster.put(fresh(cluster, objects.fault(level="RestartBusiness", code="x")))
    assert [fact.frequent for fact, _ in cluster.watch.faults_on("node-1")] == [False]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(("data", "counted"), [({}, False), ({"quarantine": "idleChips: true"}, True)])
async def test_an_idle_chips_fault_counts_by_the_admins_word(data: dict[str, str], counted: bool) -> None:
    cluster = Cluster(busy_caches(idle=("node-1", "3")))
    tasks = await cluster.started()
    await settings(cluster, **data)
    for node in ("node-1", "node-2"):
        for _ in range(3):
            await cluster.clock.advance(40)  # the same code elsewhere at the same time is no chip's doing
            await cluster.put(fresh(cluster, objects.fault(level="RestartBusiness", code="x"), node))
            facts = cluster.watch.of_quarantine(node)
            await cluster.delete(f"mindx-dl-deviceinfo-{node}")
        assert [(fact.frequent, cluster.watch.cluster.counts(fact)) for fact in facts] == [
            (counted or node == "node-2",) * 2
        ]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_edited_object_is_counted_and_changes_nothing(cluster: Cluster) -> None:
    raw = objects.device_info(objects.fault(level="RestartNPU", code="40F84E00"))
    raw["data"]["DeviceInfoCfg"] = raw["data"]["DeviceInfoCfg"].replace("40F84E00", "40F84E01")
    await cluster.put(raw)
    assert cluster.codes() == []
    report = cluster.watch.state_report()
    assert report["rejectedByReason"] == {"CheckCodeMismatch": 1}
    assert report["rejected"][0]["object"] == "default/mindx-dl-deviceinfo-node-1"
    await cluster.delete("mindx-dl-deviceinfo-node-1")
    assert cluster.watch.state_report()["rejected"] == []


async def test_faults_of_nodes_that_are_not_there_count_later(cluster: Cluster) -> None:
    for number in range(4):
        await cluster.put(fresh(cluster, objects.fault(level="SeparateNPU", code="x"), f"gone-{number}"))
    assert (cluster.held, len(cluster.told)) == ([], 4)
    for number in range(4):
        cluster.caches.store_node(NodeView(f"gone-{number}"))
    for number in range(4):
        cluster.watch.apply_node(f"gone-{number}", None)
    assert cluster.held


def one_of_many(number: int) -> Json:
    raw = objects.public(objects.public_fault(faultId=f"fault-{number:05}"), id=f"message-{number:05}")
    return {**raw, "metadata": {**raw["metadata"], "name": f"message-{number}"}}


async def test_a_sender_of_too_many_messages_waits_for_its_turn(cluster: Cluster) -> None:
    for number in range(102):
        await cluster.put(one_of_many(number))
    assert (len(cluster.codes()), cluster.watch.state_report()["rejectedByReason"]) == (200, {"RateLimited": 2})
    await cluster.delete("message-101")  # it ends with its object
    await cluster.clock.advance(1.1)
    assert (len(cluster.codes()), cluster.watch.state_report()["rejectedByReason"]) == (202, {})
    await cluster.clock.advance(1.1)
    assert len(cluster.codes()) == 202


async def test_messages_that_were_there_at_the_start_are_all_read() -> None:
    cluster = Cluster()
    for number in range(150):
        await cluster.put(one_of_many(number))
    tasks = await cluster.started()
    assert len(cluster.codes()) == 300
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_node_may_be_named_by_its_serial_number(cluster: Cluster) -> None:
    place = {"nodeSN": "2102314ABC", "deviceIds": [0]}
    await cluster.put(objects.public(objects.public_fault(influence=[place])))
    assert (cluster.codes(), cluster.watch.state_report()["rejectedByReason"]) == ([], {"UnknownNode": 1})
    node = objects.node()
    node["metadata"]["annotations"] = {"product-serial-number": "2102314ABC"}
    cluster.watch.apply_node("node-1", cluster.watch.read_node_faults(node))
    await cluster.clock.advance(1)
    assert (cluster.codes(), cluster.watch.state_report()["rejectedByReason"]) == (["220001001"], {})
