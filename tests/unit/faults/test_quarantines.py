"""NodeQuarantines are written, followed and ended, on the API server in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.server import MemoryServer
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.capacity.caches import Caches
from hajob.domain.facts import Source
from hajob.domain.hardware import ClusterFact, Level, harms_job, kind_of_level
from hajob.faults.quarantines import Quarantines
from hajob.faults.rules.cluster_faults import ClusterFaults
from hajob.faults.rules.settings import FaultSettings
from hajob.faults.watch import FaultWatch
from hajob.kube.client import ApiError
from hajob.leader.leadership import Leadership
from hajob.sources.node import NodeView
from tests.rigs.fake_clock import FakeClock, settle

NODES = [f"n{number}" for number in range(20)]
MINE = {"operator": "mine"}


def fact(node: str, code: str = "40F84E00") -> ClusterFact:
    kind = kind_of_level(Level.SEPARATE)
    name = f"node/{node}/chip/Ascend910-0/{code}"
    level = Level.SEPARATE
    return ClusterFact(
        name, Source.DEVICE, kind, node, "Ascend910-0", code, level, harms=harms_job(level), message=code
    )


async def calm() -> None:
    """Let writers and watch come to rest: a write comes back by the watch."""
    for _ in range(5):
        await settle()


class Faults:
    """What stands, as a test says it."""

    def __init__(self) -> None:
        self.stand: dict[str, list[ClusterFact]] = {}
        self.held = ""
        self.complete = True
        self.looked: list[str] = []
        self.told: list[frozenset[str]] = []
        self.settings = FaultSettings()
        self.cluster = ClusterFaults(())
        self.cluster.nodes_with_faults = lambda: frozenset(self.stand)  # type: ignore[method-assign]

    def why_held(self) -> str:
        return self.held

    def of_quarantine(self, node: str) -> list[ClusterFact]:
        return self.stand.get(node, [])

    def pardon(self, _node: str) -> None:
        """Nothing is counted here."""

    def look_at(self, node: str) -> None:
        self.looked.append(node)

    def note_turned_places(self, nodes: frozenset[str]) -> None:
        self.looked.extend(nodes)
        self.told.append(nodes)


class Cluster:
    """Quarantines at work."""

    def __init__(self) -> None:
        self.clock, self.faults = FakeClock(), Faults()
        self.server = MemoryServer(self.clock)
        self.kube = MemoryKube(self.server)
        self.leadership, self.caches = Leadership(), Caches(MINE)
        for node in NODES:
            self.caches.store_node(NodeView(node, labels=MINE))
        self.tasks: list[asyncio.Task[None]] = []
        self.begin()

    def begin(self) -> None:
        """A process begins."""
        self.quarantines = Quarantines(
            self.kube,
            self.clock,
            cast("FaultWatch", self.faults),
            self.caches,
            self.leadership,
        )
        self.tasks = [
            asyncio.create_task(self.quarantines.informer.list_and_watch()),
            asyncio.create_task(self.quarantines.write_for_ever()),
        ]

    def give_away(self, *nodes: str) -> None:
        """Another operator is responsible for these nodes."""
        for node in nodes:
            self.caches.store_node(NodeView(node))

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def stand(self, *nodes: str) -> None:
        """A fault stands on these nodes, and on no others."""
        before = set(self.faults.stand)
        self.faults.stand = {node: [fact(node)] for node in nodes}
        self.quarantines.handle_changed_faults(before | set(nodes))
        await calm()

    async def written(self) -> dict[str, Json]:
        return {
            raw["metadata"]["name"]: raw async for page in self.kube.list_pages(names.QUARANTINES) for raw in page.items
        }


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    await calm()
    yield made
    await made.end()


async def test_a_node_with_an_isolated_chip_is_quarantined(cluster: Cluster) -> None:
    await cluster.stand("n1")
    (made,) = (await cluster.written()).values()
    assert (made["spec"]["source"], made["spec"]["reason"], made["status"]["state"]) == (
        "Device",
        "SeparateNPU",
        "Active",
    )
    assert cluster.quarantines.kept_out == {"n1"}
    assert cluster.faults.told == [frozenset({"n1"})]


async def test_it_goes_with_its_node(cluster: Cluster) -> None:
    node = await cluster.kube.create_object(
        "nodes", "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n9"}}
    )
    cluster.caches.store_node(NodeView("n9", uid=node["metadata"]["uid"], labels=MINE))
    await cluster.stand("n9")
    assert set(await cluster.written()) == {"n9"}
    await cluster.stand()
    await cluster.kube.delete_object("nodes", "", "n9")
    await calm()
    assert (await cluster.written(), cluster.quarantines.kept_out) == ({}, set())


async def test_it_keeps_out_before_it_is_written(cluster: Cluster) -> None:
    cluster.server.faults.refuse(ApiError(0, "Unreachable", "away"), times=1)
    cluster.faults.stand = {"n1": [fact("n1")]}
    cluster.quarantines.handle_changed_faults({"n1"})
    assert cluster.quarantines.kept_out == {"n1"}
    await calm()
    assert await cluster.written() == {}
    await cluster.clock.advance(3)
    assert set(await cluster.written()) == {"n1"}


async def test_it_ends_by_itself_after_its_time(cluster: Cluster) -> None:
    await cluster.stand("n1")
    await cluster.clock.advance(60)
    await cluster.stand()
    await cluster.clock.advance(590)
    assert cluster.quarantines.kept_out == {"n1"}
    await cluster.clock.advance(20)
    assert cluster.quarantines.kept_out == set()
    assert (await cluster.written())["n1"]["status"]["state"] == "Over"
    await cluster.clock.advance(86_400)
    assert await cluster.written() == {}


async def release(cluster: Cluster, node: str) -> None:
    await cluster.kube.patch_object(names.QUARANTINES, "", node, {"spec": {"releaseTime": "2026-01-01T00:00:00Z"}})
    await calm()


async def test_a_release_lets_the_node_in_though_it_is_broken(cluster: Cluster) -> None:
    await cluster.stand("n1")
    await release(cluster, "n1")
    assert cluster.quarantines.kept_out == set()
    assert (await cluster.written())["n1"]["status"]["state"] == "Released"
    cluster.quarantines.update_all()
    assert cluster.quarantines.kept_out == set()


async def test_a_deleted_quarantine_comes_back_while_it_is_broken(cluster: Cluster) -> None:
    await cluster.stand("n1")
    await cluster.kube.delete_object(names.QUARANTINES, "", "n1")
    await calm()
    assert set(await cluster.written()) == {"n1"}


async def test_an_admins_quarantine_is_followed(cluster: Cluster) -> None:
    spec = {"nodeName": "n5", "reason": "Maintenance"}
    body = {"apiVersion": names.API_VERSION, "kind": names.QUARANTINE_KIND, "spec": spec}
    await cluster.kube.create_object(names.QUARANTINES, "", {**body, "metadata": {"name": "n5"}})
    await calm()
    assert cluster.quarantines.kept_out == {"n5"}
    await release(cluster, "n5")
    assert (cluster.quarantines.kept_out, await cluster.written()) == (set(), {})


async def test_no_more_than_the_cap_are_kept_out(cluster: Cluster) -> None:
    await cluster.stand(*(f"n{number}" for number in range(8)))
    assert len(await cluster.written()) == 4  # 20 % of 20
    out = sorted(cluster.quarantines.kept_out)
    await cluster.kube.patch_object(names.QUARANTINES, "", out[0], {"spec": {"releaseTime": "2026-01-01T00:00:00Z"}})
    await calm()
    await cluster.clock.advance(6)
    assert len(cluster.quarantines.kept_out) == 4
    assert out[0] not in cluster.quarantines.kept_out


async def test_nothing_changes_while_faults_are_not_believed(cluster: Cluster) -> None:
    await cluster.stand("n1")
    cluster.faults.held = "a flood"
    await cluster.stand("n2")
    assert set(await cluster.written()) == cluster.quarantines.kept_out == {"n1"}
    cluster.faults.held = ""
    cluster.quarantines.update_all()
    await calm()
    assert cluster.quarantines.kept_out == {"n1", "n2"}


async def test_what_is_not_read_yet_ends_no_quarantine(cluster: Cluster) -> None:
    await cluster.stand("n1")
    await cluster.end()
    cluster.faults.stand, cluster.faults.complete = {}, False
    cluster.begin()
    await calm()
    await cluster.clock.advance(3600)
    assert cluster.quarantines.kept_out == {"n1"}
    assert "n1" in cluster.faults.cluster.known_bad
    cluster.faults.complete = True
    cluster.quarantines.update_all()
    await cluster.clock.advance(700)
    assert cluster.quarantines.kept_out == set()
    assert "n1" not in cluster.faults.cluster.known_bad


async def test_what_stood_before_all_was_read_is_not_forgotten(cluster: Cluster) -> None:
    await cluster.clock.advance(6)
    cluster.faults.complete = False
    await cluster.stand("n1")
    await cluster.clock.advance(6)
    assert await cluster.written() == {}
    cluster.faults.complete = True
    await cluster.clock.advance(6)
    await calm()
    assert set(await cluster.written()) == {"n1"}


async def test_a_standby_follows_and_writes_nothing(cluster: Cluster) -> None:
    cluster.leadership.fence = 0
    await cluster.stand("n1")
    assert await cluster.written() == {}
    cluster.leadership.fence = 1
    cluster.quarantines.update_all()
    await calm()
    assert set(await cluster.written()) == {"n1"}


async def test_a_fault_of_a_node_that_is_gone_makes_none(cluster: Cluster) -> None:
    await cluster.stand("elsewhere")
    assert await cluster.written() == {}


async def test_nodes_of_another_operator_are_only_avoided(cluster: Cluster) -> None:
    cluster.give_away("n1", "n2")
    body = {"apiVersion": names.API_VERSION, "kind": names.QUARANTINE_KIND}
    for node in ("n2", "gone"):
        spec = {"nodeName": node, "source": "Device", "reason": "SeparateNPU", "faults": ["x"]}
        await cluster.kube.create_object(names.QUARANTINES, "", {**body, "metadata": {"name": node}, "spec": spec})
    before = await cluster.written()
    await cluster.stand("n1")
    await cluster.clock.advance(100_000)
    assert await cluster.written() == before
    assert cluster.quarantines.kept_out == {"n2", "gone"}


async def test_nodes_of_another_operator_take_no_share_of_the_cap(cluster: Cluster) -> None:
    foreign = {"n18", "n19"}
    cluster.give_away(*foreign)
    for node in sorted(foreign):
        spec = {"nodeName": node, "source": "Device", "reason": "SeparateNPU"}
        body = {"apiVersion": names.API_VERSION, "kind": names.QUARANTINE_KIND, "metadata": {"name": node}}
        await cluster.kube.create_object(names.QUARANTINES, "", {**body, "spec": spec})
    await cluster.stand("n18", "n19", *(f"n{number}" for number in range(8)))
    kept_out = cluster.quarantines.kept_out
    assert (len(kept_out - foreign), kept_out >= foreign) == (3, True)  # 20 % of 18
