"""From a ConfigMap in the cluster to the nodes whose jobs are told, on the API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.server import MemoryServer
from hajob.api.base import Json
from hajob.runtime.fault_watch import FaultWatch
from tests.unit.runtime.runtime_fakes import FakeClock, settle
from tests.unit.sources import hardware_objects as objects

NAMESPACE = "default"
NODES = 10


class Cluster:
    """A watch of faults, and what it tells."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kube = MemoryKube(MemoryServer(self.clock))
        self.told: list[frozenset[str]] = []
        self.watch = FaultWatch(self.kube, self.clock, lambda: NODES, self.told.append, namespaces=[NAMESPACE])

    async def started(self) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(informer.run()) for informer in self.watch.informers]
        await settle()
        return tasks

    async def put(self, raw: Json) -> None:
        body = {**raw, "metadata": {**raw["metadata"], "namespace": NAMESPACE}}
        await self.kube.create("configmaps", NAMESPACE, body)
        await settle()

    async def delete(self, name: str) -> None:
        await self.kube.delete("configmaps", NAMESPACE, name)
        await settle()

    def codes(self, node: str = "node-1") -> list[str]:
        return [fact.code for fact, _ in self.watch.on_node(node)]


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
    assert cluster.watch.kept_out() == {"node-1"}


async def test_an_object_that_is_gone_tells_no_more(cluster: Cluster) -> None:
    await cluster.put(objects.node_info(objects.hardware()))
    assert cluster.codes() == ["2C000031"]
    await cluster.delete("mindx-dl-nodeinfo-node-1")
    assert (cluster.codes(), len(cluster.told)) == ([], 2)


async def test_a_public_fault_outlives_its_message(cluster: Cluster) -> None:
    await cluster.put(objects.public(objects.public_fault()))
    await cluster.delete("any-name")
    assert cluster.codes() == ["220001001", "220001001"]


async def test_a_memory_fault_is_told_ten_seconds_later(cluster: Cluster) -> None:
    await cluster.put(objects.device_info())
    assert cluster.codes() == []
    cluster.told.clear()
    await cluster.clock.advance(10.1)
    assert (cluster.told, cluster.codes()) == ([frozenset({"node-1"})], ["80E01801"])


async def test_a_flood_waits_for_its_end(cluster: Cluster) -> None:
    for number in range(4):
        await cluster.put(objects.device_info(objects.fault(level="SeparateNPU", code="x"), node=f"node-{number}"))
    assert cluster.told == [frozenset({f"node-{number}"}) for number in range(3)]  # so many are believed
    assert [cluster.codes(f"node-{number}") for number in range(4)] == [[]] * 4
    await cluster.clock.advance(61)
    assert cluster.told[3] == {"node-3"}
    assert cluster.codes("node-3") == ["x"]


async def test_an_edited_object_changes_nothing(cluster: Cluster) -> None:
    raw = objects.device_info(objects.fault(level="RestartNPU", code="40F84E00"))
    raw["data"]["DeviceInfoCfg"] = raw["data"]["DeviceInfoCfg"].replace("40F84E00", "40F84E01")
    await cluster.put(raw)
    assert cluster.codes() == []
