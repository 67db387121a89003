"""No write of a leader outlives its Lease; what a proxy delivers later changes nothing that the next one decided."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.requests import writes
from e2e.memory_api.server import MemoryServer
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import Metadata
from hajob.api.status import HATrainingJobStatus
from hajob.job.status_writer import StatusWriter
from hajob.kube.client import ApiError
from hajob.leader.leader_kube import LATE_SECONDS, NOT_LEADING, WRITES_AT_ONCE, LeaderKube
from hajob.leader.lease import Candidate, LeaseHolder, LeaseSettings
from tests.rigs.fake_clock import FakeClock, settle

NAMESPACE = "default"
POD: Json = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"}}
JOB: Json = yaml.safe_load((Path(__file__).parents[3] / "examples/quickstart.yaml").read_text())


class Leader:
    """An operator's Lease, and its writes."""

    def __init__(self, server: MemoryServer, clock: FakeClock, name: str) -> None:
        self.kube, self.clock = MemoryKube(server, name), clock
        self.lease = LeaseHolder(
            MemoryKube(server, f"{name}-lease"), clock, LeaseSettings("hajob-system"), name, Candidate()
        )
        self.writes = LeaderKube(self.kube, clock, self.lease)
        self.task = asyncio.create_task(self.lease.hold_for_ever())

    def status_writer(self, job: Json) -> StatusWriter:
        return StatusWriter(
            self.writes,
            self.clock,
            Metadata.model_validate(job["metadata"]),
            job.get("status") or {},
            self.lease,
        )


class World:
    """A server, a leader and its standby."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = MemoryServer(self.clock)
        self.one = Leader(self.server, self.clock, "one")

    async def started(self) -> World:
        await self.clock.advance(0.5)
        self.two = Leader(self.server, self.clock, "two")
        await self.clock.advance(1.4)
        assert (self.one.lease.is_leader, self.two.lease.is_leader) == (True, False)
        return self

    def cut_off(self) -> None:
        """The leader's Lease is renewed no more."""
        self.server.faults.unreachable(matching=lambda request: request.client == "one-lease")

    async def time_of_change(self) -> float:
        while not self.two.lease.is_leader:
            await self.clock.advance(0.05)
        return self.clock.monotonic()


@pytest.mark.parametrize("verb", ["create", "replace", "patch", "delete"])
async def test_a_write_is_given_up_before_another_may_lead(verb: str) -> None:
    world = await World().started()
    made = await world.one.kube.create_object("pods", NAMESPACE, POD)
    world.cut_off()
    await world.clock.advance(1.5)
    world.server.faults.hold(matching=writes)
    one = world.one.writes
    task = asyncio.ensure_future(
        {
            "create": lambda: one.create_object("pods", NAMESPACE, {**POD, "metadata": {"name": "q"}}),
            "replace": lambda: one.replace_object("pods", NAMESPACE, made),
            "patch": lambda: one.patch_object("pods", NAMESPACE, "p", {"metadata": {"labels": {"a": "b"}}}),
            "delete": lambda: one.delete_object("pods", NAMESPACE, "p"),
        }[verb]()  # type: ignore[no-untyped-call]
    )
    ended: list[float] = []
    task.add_done_callback(lambda _: ended.append(world.clock.monotonic()))
    changed = await world.time_of_change()
    assert ended
    assert ended[0] < changed
    with pytest.raises(ApiError, match=NOT_LEADING) as error:
        await task
    assert error.value.may_pass


async def test_no_write_begins_once_the_lease_is_not_sure() -> None:
    world = await World().started()
    world.cut_off()
    await world.clock.advance(3.5)
    before = len(world.server.log)
    tasks = [
        asyncio.create_task(world.one.writes.create_object("pods", NAMESPACE, POD)),
        asyncio.create_task(world.one.writes.delete_object("pods", NAMESPACE, "p")),
    ]
    await world.clock.advance(LATE_SECONDS + 0.1)
    for task in tasks:
        with pytest.raises(ApiError, match=NOT_LEADING):
            await task
    assert [request for request in world.server.log[before:] if writes(request)] == []
    await world.one.writes.create_object("pods", NAMESPACE, POD, dry_run=True)
    with pytest.raises(ApiError, match="not found"):
        await world.one.writes.get_object("pods", NAMESPACE, "p")


async def test_a_status_that_a_proxy_held_is_refused_after_a_change() -> None:
    world = await World().started()
    job = await world.one.kube.create_object(names.PLURAL, NAMESPACE, {**JOB, "metadata": {"name": "job"}})
    first, second = world.one.status_writer(job), world.two.status_writer(job)
    tasks = [asyncio.create_task(writer.write_for_ever()) for writer in (first, second)]
    await first.wait_until_written(first.hand_over_status(HATrainingJobStatus(fence=1, incarnation=1)))
    held = world.server.faults.hold(matching=writes)
    first.hand_over_status(HATrainingJobStatus(fence=1, incarnation=7))
    await settle()
    assert held.held == 1
    world.cut_off()
    await world.time_of_change()
    second.hand_over_status(HATrainingJobStatus(fence=2, incarnation=2))
    await world.clock.advance(1)
    held.release()
    await world.clock.advance(5)
    status = (await world.two.kube.get_object(names.PLURAL, NAMESPACE, "job"))["status"]
    assert (status["fence"], status["incarnation"]) == (2, 2)
    for task in tasks:
        task.cancel()


async def test_a_delete_that_a_proxy_held_hits_no_namesake() -> None:
    world = await World().started()
    old = await world.one.kube.create_object("pods", NAMESPACE, POD)
    held = world.server.faults.hold(matching=writes)
    delete = asyncio.create_task(world.one.writes.delete_object("pods", NAMESPACE, "p", uid=old["metadata"]["uid"]))
    await settle()
    world.cut_off()
    await world.time_of_change()
    with pytest.raises(ApiError):
        await delete
    await world.two.writes.delete_object("pods", NAMESPACE, "p", uid=old["metadata"]["uid"], grace_seconds=0)
    anew = await world.two.writes.create_object("pods", NAMESPACE, POD)
    held.release()
    await settle()
    assert (await world.two.kube.get_object("pods", NAMESPACE, "p"))["metadata"]["uid"] == anew["metadata"]["uid"]


async def test_writes_wait_for_their_turn_however_long_it_takes() -> None:
    world = await World().started()
    world.server.faults.delay(after=3.0, matching=writes)  # nearly as long as the Lease lasts
    pods = [{**POD, "metadata": {"name": f"p{number}"}} for number in range(3 * WRITES_AT_ONCE)]
    tasks = [asyncio.create_task(world.one.writes.create_object("pods", NAMESPACE, pod)) for pod in pods]
    while not all(task.done() for task in tasks):
        answered = sum(task.done() for task in tasks)
        assert sum(writes(one) and one.client == "one" for one in world.server.log) - answered <= WRITES_AT_ONCE
        await world.clock.advance(0.5)
    assert len([task.result() for task in tasks]) == len(pods)
    assert world.clock.monotonic() > 30.0


async def test_a_write_whose_turn_comes_after_the_lease_is_not_begun() -> None:
    world = await World().started()
    held = world.server.faults.hold(matching=writes, times=None)
    pods = [{**POD, "metadata": {"name": f"p{number}"}} for number in range(WRITES_AT_ONCE + 5)]
    tasks = [asyncio.create_task(world.one.writes.create_object("pods", NAMESPACE, pod)) for pod in pods]
    await settle()
    world.cut_off()
    await world.time_of_change()
    for _ in range(10):  # few at a time: the server was slow
        await world.clock.advance(LATE_SECONDS + 0.1)
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(answer, ApiError) for answer in answers)
    assert 0 < held.held < len(pods)


async def test_a_write_waits_for_a_renewal_that_is_late() -> None:
    world = await World().started()
    outage = world.server.faults.unreachable(matching=lambda request: request.client == "one-lease")
    while world.one.lease.may_write:
        await world.clock.advance(0.05)
    task = asyncio.create_task(world.one.writes.create_object("pods", NAMESPACE, POD))
    await settle()
    assert not task.done()
    outage.end()
    await world.clock.advance(1.0)  # the next look at the Lease comes before a standby may take it
    assert task.result()["metadata"]["name"] == "p"
