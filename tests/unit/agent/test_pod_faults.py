"""Bad days of a rank pod, with real processes: machines that freeze, coordinators that change, agents that die."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.certificates import Authority
from tests.rigs.rank_pod import (
    ADDRESS,
    JOB,
    PATIENCE,
    Controller,
    Coordinator,
    Pod,
    is_alive,
    rank_order,
    running_pod,
    until,
)

SCRIPT = 'torchrun "$HAJOB_DIR/rank.py"; echo "script saw $?"'


@asynccontextmanager
async def training(
    directory: Path, authority: Authority, **settings: Any
) -> AsyncIterator[tuple[Pod, Coordinator, Controller]]:
    """A pod whose two ranks are linked."""
    async with running_pod(directory, authority, SCRIPT, **settings) as pod:
        controller = Controller()
        await controller.start()
        coordinator = Coordinator(pod, authority)
        try:
            await coordinator.connect()
            await coordinator.order(rank_order(0), rank_order(1), controller=controller.address)
            for rank in (0, 1):
                await coordinator.phase(rank, pb.LINKED)
            yield pod, coordinator, controller
        finally:
            await coordinator.close()
            await controller.stop()


async def stalled(controller: Controller, lease_milliseconds: int) -> dict[int, int]:
    """Wait until the last lease has run out and the controller hears nothing more; what it has heard.

    Nothing more is ten looks without a byte: a machine that stands still for a moment makes that one look, not ten.
    """
    await asyncio.sleep(lease_milliseconds / 1000)
    heard: dict[int, int] = {}
    looks = 0
    async with asyncio.timeout(90):
        while looks < 10:
            looks = looks + 1 if heard == controller.heard else 0
            heard = dict(controller.heard)
            await asyncio.sleep(0.1)
    return heard


async def test_a_lost_lease_holds_and_a_new_one_lets_go_on(tmp_path: Path, authority: Authority) -> None:
    async with training(tmp_path, authority) as (_, coordinator, controller):
        coordinator.granting = False
        heard = await stalled(controller, coordinator.lease_milliseconds)
        coordinator.granting = True
        await until(
            lambda: all(controller.heard.get(rank, 0) > heard.get(rank, 0) for rank in (0, 1)), "bytes after the hold"
        )
        assert sorted(controller.links) == [0, 1], "no rank had to connect again"
        assert coordinator.facts == {}


async def test_a_grant_read_after_a_freeze_does_not_count(tmp_path: Path, authority: Authority) -> None:
    async with training(tmp_path, authority) as (pod, coordinator, controller):
        assert pod.agent is not None
        coordinator.granting = False
        await stalled(controller, coordinator.lease_milliseconds)
        coordinator.lease_milliseconds = 1000
        answered = len(coordinator.heartbeats)
        await until(lambda: len(coordinator.heartbeats) > answered, "a heartbeat nobody answered")
        pod.agent.send_signal(signal.SIGSTOP)
        heard = await stalled(controller, 0)  # the last lease is over
        await coordinator.grant(coordinator.heartbeats[-1])
        await asyncio.sleep(1.2)  # longer than the lease that is granted
        pod.agent.send_signal(signal.SIGCONT)
        newest = coordinator.heartbeats[-1]
        await until(lambda: coordinator.heartbeats[-1] > newest + 1, "the agent awake")
        assert controller.heard == heard


async def test_the_higher_fence_takes_over_and_the_lower_is_refused(tmp_path: Path, authority: Authority) -> None:
    async with training(tmp_path, authority) as (pod, first, controller):
        second = Coordinator(pod, authority)
        await second.connect(fence=2)
        await until(lambda: first.error is not None, "the end of the first stream")
        assert first.error is not None
        assert first.error.code() is grpc.StatusCode.ABORTED
        await second.phase(1, pb.LINKED)
        late = Coordinator(pod, authority)
        await late.connect(fence=1)
        await until(lambda: late.error is not None, "the refusal")
        assert late.error is not None
        assert "fence 1 is lower than 2" in (late.error.details() or "")
        await late.close()
        heard = controller.heard.get(0, 0)
        await until(lambda: controller.heard.get(0, 0) > heard, "traffic under the second lease")
        await second.close()


async def test_a_stranger_with_a_good_certificate_is_turned_away(tmp_path: Path, authority: Authority) -> None:
    async with training(tmp_path, authority) as (pod, _, _):
        for name in (f"operator.{JOB}", "coordinator.another-job", f"agent.{JOB}"):
            stranger = Coordinator(pod, authority, name=name)
            await stranger.connect()
            await until(lambda stranger=stranger: stranger.error is not None, "the refusal")  # type: ignore[misc]
            assert stranger.error is not None
            # INTERNAL is what the stranger's own gRPC says when the refusal overtakes its first message.
            assert stranger.error.code() in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INTERNAL}
            assert stranger.hello is None
            await stranger.close()


async def test_a_killed_agent_never_accepts_and_closes(tmp_path: Path, authority: Authority) -> None:
    async with training(tmp_path, authority) as (pod, _, _):
        links = [socket.create_connection((ADDRESS, pod.gate_port)) for _ in range(8)]
        assert pod.agent is not None

        def connect_when_a_link_breaks() -> OSError | None:
            select.select(links, [], [])
            try:
                socket.create_connection((ADDRESS, pod.gate_port)).close()
            except OSError as problem:
                return problem
            return None

        broken = asyncio.get_running_loop().run_in_executor(None, connect_when_a_link_breaks)
        await asyncio.sleep(0.2)  # the agent takes the links
        pod.agent.kill()
        assert isinstance(await broken, ConnectionRefusedError)
        for link in links:
            link.close()


async def test_an_agent_that_comes_back_finds_everything_again(tmp_path: Path, authority: Authority) -> None:
    async with training(tmp_path, authority) as (pod, coordinator, controller):
        survivor, victim = coordinator.state(0).pid, coordinator.state(1).pid
        assert pod.agent is not None
        pod.agent.kill()
        await pod.agent.wait()
        os.kill(victim, signal.SIGKILL)
        await until(lambda: not is_alive(victim), "the death while no agent was there")
        await pod.start_agent()
        again = Coordinator(pod, authority)
        await again.connect()
        await until(lambda: bool(again.facts), "the exit that nobody saw")
        assert [list(fact.ranks) for fact in again.facts.values()] == [[1]]
        await again.order(rank_order(0), rank_order(1), controller=controller.address)
        await until(lambda: again.state(0).pid == survivor, "the survivor")
        assert again.state(1).phase == pb.DEAD
        await again.close()


async def test_a_killed_launcher_leaves_no_rank(tmp_path: Path, authority: Authority) -> None:
    async with training(tmp_path, authority) as (pod, coordinator, _):
        pids = [coordinator.state(rank).pid for rank in (0, 1)]
        assert pod.launcher is not None
        pod.launcher.kill()
        await until(lambda: not any(is_alive(pid) for pid in pids), "the end of the ranks")
        told = [(pb.PROCESS_EXITED, "ContainerKilled")] * 2
        await until(lambda: [(fact.kind, fact.code) for fact in coordinator.facts.values()] == told, "the facts")


async def test_a_deleted_pod_ends_in_order(tmp_path: Path, authority: Authority) -> None:
    async with training(tmp_path, authority) as (pod, coordinator, _):
        pids = [coordinator.state(rank).pid for rank in (0, 1)]
        assert pod.launcher is not None
        pod.launcher.terminate()
        assert await asyncio.wait_for(pod.launcher.wait(), PATIENCE) == 128 + signal.SIGTERM
        assert not any(is_alive(pid) for pid in pids)
        codes = ["ContainerStopped"] * 2
        await until(lambda: [fact.code for fact in coordinator.facts.values()] == codes, "the facts")


async def test_over_ends_the_ranks_for_good(tmp_path: Path, authority: Authority) -> None:
    async with training(tmp_path, authority) as (_, coordinator, controller):
        await coordinator.order(rank_order(0), rank_order(1), controller=controller.address, over=True)
        for rank in (0, 1):
            await coordinator.phase(rank, pb.DEAD)
        reports = len(coordinator.reports)
        await coordinator.order(rank_order(0, 2), rank_order(1, 2), controller=controller.address)
        await until(lambda: len(coordinator.reports) > reports, "the next report")
        assert {coordinator.state(rank).phase for rank in (0, 1)} == {pb.DEAD}
        assert coordinator.facts == {}


async def test_an_order_to_end_asks_first_and_then_insists(tmp_path: Path, authority: Authority) -> None:
    async with training(tmp_path, authority) as (_, coordinator, controller):
        await coordinator.order(rank_order(0), rank_order(1, run=False), controller=controller.address)
        state = await coordinator.phase(1, pb.DEAD)  # it ignores SIGTERM
        assert not is_alive(state.pid)
        assert coordinator.state(0).phase == pb.LINKED
        assert coordinator.facts == {}


async def test_ranks_that_stand_still_without_a_coordinator_are_ended(tmp_path: Path, authority: Authority) -> None:
    async with training(tmp_path, authority, fence_after=6) as (_, coordinator, _):
        pids = [coordinator.state(rank).pid for rank in (0, 1)]
        await coordinator.close()
        await asyncio.sleep(7)  # longer than the fence, and that than a pause of the machine: steps go on
        assert all(is_alive(pid) for pid in pids), "a job whose steps go on is left alone"
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await until(lambda: not any(is_alive(pid) for pid in pids), "the end of the ranks")


async def test_a_rank_killed_again_before_its_name_is_started_again(tmp_path: Path, authority: Authority) -> None:
    async with training(tmp_path, authority) as (_, coordinator, controller):
        os.kill(coordinator.state(1).pid, signal.SIGKILL)
        await coordinator.phase(1, pb.DEAD)
        for start in (0, 1):
            order = rank_order(1, 2, start, admitted=False)
            await coordinator.order(rank_order(0), order, controller=controller.address)
            await until(lambda start=start: coordinator.state(1).start == start, "the start")  # type: ignore[misc]
            await coordinator.phase(1, pb.AT_GATE, incarnation=2)
            os.kill(coordinator.state(1).pid, signal.SIGKILL)
            await coordinator.phase(1, pb.DEAD, incarnation=2)
        starts = sorted((fact.incarnation, fact.start) for fact in coordinator.facts.values())
        assert starts == [(1, 0), (2, 0), (2, 1)]
        kept = [tmp_path / "output" / "1" / name for name in ("rank-1.1.log", "rank-1.2.log", "rank-1.2.1.log")]
        await until(lambda: all(path.exists() for path in kept), "a file of each process")


async def test_a_stream_that_begins_wrongly_is_turned_away(tmp_path: Path, authority: Authority) -> None:
    wrong = [
        pb.CoordinatorToAgent(hello=pb.Hello(version=2, job_uid=JOB)),
        pb.CoordinatorToAgent(hello=pb.Hello(version=1, job_uid="another")),
        pb.CoordinatorToAgent(node_order=pb.NodeOrder(over=True)),
    ]
    async with training(tmp_path, authority) as (pod, coordinator, _):
        for first in wrong:
            stranger = Coordinator(pod, authority)
            await stranger.connect(first=first)
            await until(lambda stranger=stranger: stranger.error is not None, "the refusal")  # type: ignore[misc]
            assert stranger.error is not None
            assert stranger.error.code() is grpc.StatusCode.FAILED_PRECONDITION
            await stranger.close()
        assert coordinator.error is None
        assert coordinator.facts == {}


async def test_a_long_path_is_no_obstacle(tmp_path: Path, authority: Authority) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    async with training(deep, authority) as (_, coordinator, _):
        assert coordinator.state(0).phase == pb.LINKED
