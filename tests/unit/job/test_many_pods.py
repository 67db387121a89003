"""Jobs of many pods: how they are made and deleted, and what one pod's event costs."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.app.core import OperatorCore
from hajob.capacity.caches import Caches
from hajob.job.status.freshness import WATCHED_SECONDS
from hajob.kube.batches import AT_ONCE, growing_slices
from hajob.kube.client import ApiError
from hajob.plan import events
from hajob.plan.state import JobPhase
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.node import NodeView
from hajob.sources.pod import pod_view_of
from tests.rigs.job_controller import NAMESPACE, ControllerTown, death_of_rank, settle_town
from tests.rigs.told_events import tell

REQUEST_SECONDS = 0.01


class BusyServer:
    """An API server that takes its time, and notes what is asked at the same time."""

    def __init__(self, town: ControllerTown, monkeypatch: pytest.MonkeyPatch) -> None:
        self.under_way = self.most = 0
        self.created = 0
        self.deleted: list[str] = []
        self.room: int | None = None
        self._town = town
        create, delete = town.kube.create_object, town.kube.delete_object

        async def slow_create(resource: str, namespace: str, body: Any, *, dry_run: bool = False) -> Any:
            if resource != "pods" or dry_run:
                return await create(resource, namespace, body, dry_run=dry_run)
            self.created += 1
            full = self.room is not None and self.created > self.room
            await self._take_time()
            if full:
                raise ApiError(403, "Forbidden", "pods is forbidden: exceeded quota: q")
            return await create(resource, namespace, body)

        async def slow_delete(
            resource: str, namespace: str, name: str, *, uid: str = "", grace_seconds: int | None = None
        ) -> None:
            self.deleted.append(name)
            await self._take_time()
            await delete(resource, namespace, name, uid=uid, grace_seconds=grace_seconds)

        monkeypatch.setattr(town.kube, "create_object", slow_create)
        monkeypatch.setattr(town.kube, "delete_object", slow_delete)

    async def _take_time(self) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self._town.clock.sleep(REQUEST_SECONDS)
        self.under_way -= 1


async def a_job_of(num_nodes: int, monkeypatch: pytest.MonkeyPatch) -> tuple[ControllerTown, BusyServer]:
    town = ControllerTown()
    await town.controller.stop_managing()
    server = BusyServer(town, monkeypatch)
    town.stored()["spec"] |= {"numNodes": num_nodes}
    town.open()
    return town, server


@pytest.fixture
async def big(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ControllerTown, BusyServer]]:
    town, server = await a_job_of(1000, monkeypatch)
    yield town, server
    await town.controller.stop_managing()


def ranks(town: ControllerTown) -> int:
    return sum(pod.role == names.ROLE_RANK and not pod.deleting for pod in town.pods())


def test_rows_grow_and_lose_nothing() -> None:
    rows = list(growing_slices(range(200), first=1))
    assert [len(row) for row in rows] == [1, 2, 4, 8, 16, 32, AT_ONCE, AT_ONCE, 37]
    assert [item for row in rows for item in row] == list(range(200))


async def test_a_thousand_pods_are_made_fifty_at_a_time(big: tuple[ControllerTown, BusyServer]) -> None:
    town, server = big
    rounds = len(list(growing_slices(range(1000), first=1))) + 1  # one more for the coordinator
    await town.clock.advance(REQUEST_SECONDS * rounds + 0.1)
    assert ranks(town) == 1000
    assert server.most == AT_ONCE
    assert server.created == 1001


async def test_what_a_quota_refuses_is_not_asked_a_thousand_times(
    big: tuple[ControllerTown, BusyServer],
) -> None:
    town, server = big
    server.room = 20
    await town.clock.advance(0.4)
    assert ranks(town) == 20
    assert server.created < 40


async def see_them_gone(town: ControllerTown) -> None:
    """What the watch tells of pods that are deleted."""
    left = {pod.name for pod in town.pods()}
    for pod in town.controller.snapshots.pods.all_pods():
        if pod.name not in left:
            town.controller.apply_pod(pod, deleted=True)
    await town.clock.advance(2.0)


async def test_a_deleted_job_asks_once_for_each_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    town, server = await a_job_of(200, monkeypatch)
    await town.clock.advance(1.0)
    for pod in town.pods():
        town.controller.apply_pod(pod)
    await settle_town(town)
    server.most = 0
    task = asyncio.create_task(town.controller.release_job())
    await town.clock.advance(REQUEST_SECONDS * 6)
    await see_them_gone(town)
    await task
    assert sorted(server.deleted) == sorted(set(server.deleted))
    assert len(server.deleted) == 201
    assert server.most == AT_ONCE
    assert not [one for one in town.kube.objects if one[0] == "pods" and one[1] == NAMESPACE]


async def test_a_job_deleted_while_its_pods_are_made_gets_no_more(big: tuple[ControllerTown, BusyServer]) -> None:
    town, server = big
    await town.clock.advance(REQUEST_SECONDS * 4)
    task = asyncio.create_task(town.controller.release_job())
    await town.clock.advance(REQUEST_SECONDS * 2)
    made = server.created
    await town.clock.advance(10.0)
    await see_them_gone(town)
    await task
    assert server.created == made < 100


async def restarted(town: ControllerTown) -> None:
    """Every pod runs and is asked to go; the job starts anew."""
    for number, pod in enumerate(town.pods()):
        body = town.kube.objects["pods", NAMESPACE, pod.name]
        body["spec"]["nodeName"] = f"node-{number % 6}"
        town.controller.apply_pod(pod_view_of(body))
    await settle_town(town)
    tell(town, events.RestartRequested())
    await town.clock.advance(1.0)


async def test_old_pods_go_before_new_ones_ask_for_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    town, _ = await a_job_of(20, monkeypatch)
    await town.clock.advance(1.0)
    await restarted(town)
    base = town.controller.state.base
    assert {pod.incarnation for pod in town.pods() if pod.role == names.ROLE_RANK} == {1}
    first = next(pod for pod in town.pods() if pod.node_rank == 7)
    del town.kube.objects["pods", NAMESPACE, first.name]
    town.controller.apply_pod(first, deleted=True)
    await town.clock.advance(1.0)
    assert sum(pod.incarnation == base for pod in town.pods() if pod.role == names.ROLE_RANK) == 1
    await town.end_deleted_pods()
    await town.clock.advance(1.0)
    assert ranks(town) == 20
    await town.controller.stop_managing()


async def test_a_pod_that_never_goes_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    town, _ = await a_job_of(4, monkeypatch)
    await town.clock.advance(1.0)
    await restarted(town)
    await town.clock.advance(35.0)
    assert ranks(town) == 0
    await town.clock.advance(10.0)
    assert ranks(town) == 4
    await town.controller.stop_managing()


async def large_training(num_nodes: int, monkeypatch: pytest.MonkeyPatch) -> tuple[ControllerTown, BusyServer]:
    """Every pod runs on a node of its own, the training has begun, and some nodes are free."""
    town, server = await a_job_of(num_nodes, monkeypatch)
    chips = {names.DEFAULT_RESOURCE_NAME: 2}
    town.nodes = {f"node-{number}": NodeView(f"node-{number}", chips=chips) for number in range(num_nodes + 40)}
    await town.clock.advance(1.0)
    for number, pod in enumerate(town.pods()):
        body = town.kube.objects["pods", NAMESPACE, pod.name]
        body["spec"]["nodeName"] = f"node-{number}"
        body["status"] = {"phase": "Running", "podIP": f"127.0.{number // 250}.{number % 250 + 1}"}
        town.controller.apply_pod(pod_view_of(body))
    await settle_town(town)
    await town.report(milestones=[wire.Milestone(kind=wire.STARTED, incarnation=1)])
    await town.report(step=5)
    return town, server


async def test_many_lost_nodes_cost_two_writes_each_and_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    town, server = await large_training(96, monkeypatch)
    kept = {pod.uid for pod in town.pods() if pod.is_rank_pod and pod.node_rank >= 32}
    town.kube.writes.clear()
    server.deleted.clear()
    lost = [
        wire.Fact(id=f"silent-{node}", kind=wire.AGENT_SILENT, node_rank=node, ranks=[2 * node, 2 * node + 1])
        for node in range(32)
    ]
    for fact in lost:
        fact.incarnation = 1
    await town.report(*lost, step=5)
    await town.clock.advance(1.0)
    there = [pod for pod in town.pods() if pod.is_rank_pod and not pod.deleting]
    assert sorted(pod.node_rank for pod in there if pod.incarnation > 1) == list(range(32))
    assert {pod.uid for pod in there if pod.incarnation == 1} == kept
    assert len(town.kube.writes) + len(server.deleted) <= 12 + 2 * 32
    await town.controller.stop_managing()


def status_writes(town: ControllerTown) -> list[Any]:
    return [body for kind, resource, body in town.kube.writes if (kind, resource) == ("patch", names.PLURAL)]


async def taken_over(town: ControllerTown) -> None:
    """Another operator leads, and finds all as it was."""
    await town.controller.stop_managing()
    town.kube.writes.clear()
    town.fence += 1
    town.open()
    await settle_town(town)


async def test_a_new_leader_of_a_training_writes_nothing_that_is_known() -> None:
    town = ControllerTown()
    await town.train()
    await town.clock.advance(WATCHED_SECONDS)
    town.controller.status.publish_status()
    await town.clock.advance(10.0)
    await taken_over(town)
    await town.report(step=5)
    await town.clock.advance(10.0)
    assert town.kube.writes == []
    await town.report(death_of_rank(2), step=6)
    assert status_writes(town), "what is new is written, with the fence of the new leader"
    assert town.status()["fence"] == 2
    await town.controller.stop_managing()


async def test_a_new_leader_of_a_start_writes_nothing_that_is_known() -> None:
    town = ControllerTown()
    await settle_town(town)
    await town.run_pods()
    await town.clock.advance(20.0)
    await taken_over(town)
    await town.clock.advance(20.0)
    assert town.kube.writes == []
    await town.controller.stop_managing()


class Cost:
    """A core with jobs of many pods, and the Python calls that one event takes: the same on every machine."""

    def __init__(self, num_nodes: int, num_jobs: int = 1) -> None:
        self.town, self.caches = ControllerTown(), Caches()
        ports = self.town.ports(self.caches)
        self.core = OperatorCore(ports, self.caches)
        self.core.note_complete_pods(self.town.kube.version)
        self.num_nodes, self.num_jobs = num_nodes, num_jobs

    async def start(self) -> None:
        """Apply the jobs and show that their pods are made, each on a node of its own."""
        await self.town.controller.stop_managing()
        for number in range(self.num_jobs * (self.num_nodes + 1) + 4):
            self.core.handle_changed_node(
                NodeView(f"node-{number}", chips={names.DEFAULT_RESOURCE_NAME: 2}), deleted=False
            )
        raw = {key: value for key, value in self.town.raw.items() if key != "metadata"}
        raw["spec"] = raw["spec"] | {"numNodes": self.num_nodes}
        for number in range(self.num_jobs):
            metadata = {"name": f"job-{number}", "namespace": NAMESPACE, "generation": 1}
            self.core.handle_job(
                self.town.kube.put(names.PLURAL, NAMESPACE, {**copy.deepcopy(raw), "metadata": metadata})
            )
        await self.town.clock.advance(1.0)
        self.pods = self.town.pods()
        for number, pod in enumerate(self.pods):
            self.core.handle_changed_pod(pod, deleted=False)
            self.core.handle_changed_pod(dataclasses.replace(pod, node_name=f"node-{number}"), deleted=False)
        await self.town.clock.advance(5.0)

    def of(self, event: Callable[[], None]) -> int:
        """Calls of Python functions that one event makes."""
        count = 0

        def profile(_frame: object, what: str, _argument: object) -> None:
            nonlocal count
            count += what == "call"

        sys.setprofile(profile)
        try:
            event()
        finally:
            sys.setprofile(None)
        return count

    def of_pod(self) -> int:
        """A rank pod runs."""
        number, pod = next((n, pod) for n, pod in enumerate(self.pods) if pod.node_rank == 3)
        address = f"127.0.0.{self.num_nodes % 250}"
        runs = dataclasses.replace(pod, node_name=f"node-{number}", phase="Running", address=address)
        return self.of(lambda: self.core.handle_changed_pod(runs, deleted=False))

    def of_node(self) -> int:
        """The node of a rank pod gets a label."""
        number = next(n for n, pod in enumerate(self.pods) if pod.node_rank == 3)
        labelled = NodeView(f"node-{number}", chips={names.DEFAULT_RESOURCE_NAME: 2}, labels={"a": "b"})
        return self.of(lambda: self.core.handle_changed_node(labelled, deleted=False))

    async def of_loss(self) -> int:
        """The coordinator of a job that trains tells that one more node has fallen silent, and others are free."""
        for number, pod in enumerate(self.pods):
            runs = dataclasses.replace(pod, node_name=f"node-{number}", phase="Running", address=f"127.0.0.{number}")
            self.core.handle_changed_pod(runs, deleted=False)
        await self.town.clock.advance(5.0)
        controller = self.core.controllers[self.pods[0].job_uid]
        coordinator = controller.coordinator
        coordinator.note_connection_change(True, "")
        state = wire.CoordinatorState(controller_ready=True, attempt=controller.state.attempt, step=5)
        started = wire.Milestone(kind=wire.STARTED, incarnation=1)
        coordinator.apply_report(wire.Report(sequence=1, state=state, milestones=[started]))
        coordinator.apply_report(wire.Report(sequence=2, state=state))
        assert controller.state.phase is JobPhase.RUNNING
        silent = [
            wire.Fact(id=f"silent-{rank}", kind=wire.AGENT_SILENT, node_rank=rank, ranks=[2 * rank], incarnation=1)
            for rank in (3, 5)
        ]
        coordinator.apply_report(wire.Report(sequence=3, state=state, facts=silent[:1]))
        count = self.of(lambda: coordinator.apply_report(wire.Report(sequence=4, state=state, facts=silent[1:])))
        assert controller.state.incident is not None
        assert controller.state.incident.replaced_nodes == (3, 5)
        return count


async def costs(num_nodes: int, num_jobs: int = 1) -> tuple[int, int]:
    cost = Cost(num_nodes, num_jobs)
    await cost.start()
    found = cost.of_pod(), cost.of_node()
    await cost.core.close_controllers()
    return found


async def cost_of_a_loss(num_nodes: int) -> int:
    cost = Cost(num_nodes)
    await cost.start()
    found = await cost.of_loss()
    await cost.core.close_controllers()
    return found


async def test_an_event_costs_the_same_in_a_job_of_any_size() -> None:
    small, large = await costs(4), await costs(400)
    assert 0 < large[0] < small[0] + 10
    assert 0 < large[1] < small[1] + 10


async def test_an_event_costs_the_same_among_any_number_of_jobs() -> None:
    one, many = await costs(4), await costs(4, num_jobs=40)
    assert 0 < many[0] < one[0] + 10
    assert 0 < many[1] < one[1] + 10


async def test_a_lost_node_costs_the_same_in_a_job_of_any_size() -> None:
    small, large = await cost_of_a_loss(8), await cost_of_a_loss(400)
    assert 0 < large < small + 10
