"""The newest status wins, nothing is written twice, and what must wait is acknowledged."""

from __future__ import annotations

import asyncio

import pytest

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.status import HATrainingJobStatus, Restarts
from hajob.runtime.kube import ApiError
from hajob.runtime.status_writer import (
    JobGoneError,
    LeadershipLostError,
    StatusRefusedError,
    StatusWriter,
    operations,
)
from tests.unit.runtime.runtime_fakes import FakeClock, FakeKube, settle, unreachable


def _check_fence(old: Json, new: Json) -> None:
    if new["status"].get("fence", 0) < (old.get("status") or {}).get("fence", 0):
        causes = {"causes": [{"field": "status.fence", "reason": "FieldValueInvalid"}]}
        raise ApiError(422, "Invalid", "status.fence may only grow", causes)


class World:
    """One job on a server, and its writer."""

    def __init__(self) -> None:
        self.kube, self.clock = FakeKube(), FakeClock()
        self.kube.on_status = _check_fence
        made = self.kube.put(names.PLURAL, "ns", {"metadata": {"name": "job"}})
        self.open = asyncio.Event()
        self.open.set()
        self.leadership_lost = 0
        self.writer = StatusWriter(
            self.kube,
            self.clock,
            namespace="ns",
            name="job",
            uid=made["metadata"]["uid"],
            known={},
            may_write=self._may_write,
            on_leadership_lost=self._lost,
        )
        self.task = asyncio.create_task(self.writer.run())

    async def _may_write(self) -> None:
        await self.open.wait()

    def _lost(self) -> None:
        self.leadership_lost += 1

    @property
    def patches(self) -> list[Json]:
        """What was written into the status, by field."""
        found = []
        for _, _, write in self.kube.writes:
            fields: Json = {}
            for operation in write["body"]:
                name = operation["path"].removeprefix("/status").strip("/")
                if operation["op"] != "test":
                    fields |= {name: operation.get("value")} if name else operation["value"]
            found.append(fields)
        return found


def status(incarnation: int, fence: int = 1) -> HATrainingJobStatus:
    return HATrainingJobStatus(incarnation=incarnation, fence=fence)


async def test_a_write_is_acknowledged_and_a_repetition_is_none() -> None:
    world = World()
    await world.writer.acknowledged(world.writer.write(status(1)))
    await world.writer.acknowledged(world.writer.write(status(1)))
    assert len(world.patches) == 1
    await world.writer.acknowledged(world.writer.write(status(2)))
    assert world.patches[1] == {"incarnation": 2, "fence": 1}


async def test_of_many_statuses_during_an_outage_only_the_newest_is_written() -> None:
    world = World()
    world.kube.fail(*[unreachable() for _ in range(8)])
    first = world.writer.write(status(1))
    waiting = asyncio.create_task(world.writer.acknowledged(first))
    for incarnation in range(2, 50):
        world.writer.write(status(incarnation))
        await world.clock.advance(0.1)
    await world.clock.advance(60)
    assert waiting.done()
    assert [patch["incarnation"] for patch in world.patches] == [49]


async def test_nothing_is_written_while_this_process_may_not() -> None:
    world = World()
    world.open.clear()
    world.writer.write(status(1))
    await world.clock.advance(60)
    assert world.patches == []
    world.writer.write(status(2))
    world.open.set()
    await settle()
    assert [patch["incarnation"] for patch in world.patches] == [2]


async def test_a_write_that_has_time_rides_with_an_urgent_one() -> None:
    world = World()
    world.writer.write(status(1), within=600)
    await world.clock.advance(599)
    assert world.patches == []
    world.writer.write(status(2))
    await settle()
    assert [patch["incarnation"] for patch in world.patches] == [2]
    world.writer.write(status(3), within=600)
    await world.clock.advance(601)
    assert [patch["incarnation"] for patch in world.patches] == [2, 3]


async def test_waiting_for_an_acknowledgement_makes_a_write_urgent() -> None:
    world = World()
    revision = world.writer.write(status(1), within=600)
    await world.writer.acknowledged(revision)
    assert len(world.patches) == 1


async def test_a_smaller_fence_ends_the_writer() -> None:
    world = World()
    await world.writer.acknowledged(world.writer.write(status(1, fence=3)))
    stored = world.kube.objects[names.PLURAL, "ns", "job"]
    stored["status"]["fence"] = 4
    with pytest.raises(LeadershipLostError):
        await world.writer.acknowledged(world.writer.write(status(2, fence=3)))
    assert world.leadership_lost == 1
    assert world.task.done()
    with pytest.raises(LeadershipLostError):
        await world.writer.acknowledged(world.writer.write(status(3, fence=3)))


async def test_a_job_of_the_same_name_is_another_job() -> None:
    world = World()
    world.kube.put(names.PLURAL, "ns", {"metadata": {"name": "job", "uid": "another"}})
    with pytest.raises(JobGoneError):
        await world.writer.acknowledged(world.writer.write(status(1)))
    assert world.patches == []


async def test_a_deleted_job_ends_the_writer() -> None:
    world = World()
    await world.kube.delete(names.PLURAL, "ns", "job")
    with pytest.raises(JobGoneError):
        await world.writer.acknowledged(world.writer.write(status(1)))


async def test_a_refused_status_is_told_and_the_next_one_is_tried() -> None:
    world = World()
    world.kube.fail(ApiError(422, "Invalid", "status.summary.state: Too long"))
    with pytest.raises(StatusRefusedError, match="Too long"):
        await world.writer.acknowledged(world.writer.write(status(1)))
    await world.writer.acknowledged(world.writer.write(status(2)))
    assert [patch["incarnation"] for patch in world.patches] == [2]


async def test_a_status_that_is_not_what_was_thought_is_read_again() -> None:
    world = World()
    stored = world.kube.objects[names.PLURAL, "ns", "job"]
    await world.writer.acknowledged(world.writer.write(status(1)))
    stored = world.kube.objects[names.PLURAL, "ns", "job"]
    del stored["status"]
    world.writer.write(status(2))
    await world.clock.advance(5)
    assert world.kube.objects[names.PLURAL, "ns", "job"]["status"]["incarnation"] == 2


def test_the_operations_remove_what_is_no_longer_there() -> None:
    test = {"op": "test", "path": "/metadata/uid", "value": "u"}
    fence = {"op": "add", "path": "/status/fence", "value": 1}
    known = HATrainingJobStatus(fence=1, restarts=Restarts(program=1)).to_json()
    wanted = HATrainingJobStatus(fence=1, restarts=Restarts(program=2)).to_json()
    changed = {"op": "add", "path": "/status/restarts", "value": {"infrastructure": 0, "program": 2}}
    assert operations(known, wanted, "u") == [test, fence, changed]
    removed = {"op": "remove", "path": "/status/progress"}
    assert operations({"progress": {"step": 1}, "fence": 1}, {"fence": 1}, "u") == [test, fence, removed]
    assert operations({}, wanted, "u") == [test, {"op": "add", "path": "/status", "value": wanted}]
    assert operations(HATrainingJobStatus().to_json(), wanted, "u") == operations({}, wanted, "u")
    assert operations(known, known, "u") == []
