"""The newest status wins, nothing is written twice, and what must wait is acknowledged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.requests import Request
from e2e.memory_api.server import MemoryServer
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import Metadata
from hajob.api.status import HATrainingJobStatus, Restarts, Summary
from hajob.job.status_writer import JobGoneError, StatusRefusedError, StatusWriter, patch_of_status
from hajob.kube.client import ApiError, PatchKind
from hajob.leader.leadership import Leadership
from hajob.leader.lease import FENCE_LIMIT
from tests.rigs.fake_clock import FakeClock, settle
from tests.rigs.fake_kube import unreachable

JOB: Json = yaml.safe_load((Path(__file__).parents[3] / "examples/quickstart.yaml").read_text())


class World(Leadership):
    """One job on a server, and its writer."""

    writer: StatusWriter
    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = MemoryServer(self.clock)
        self.kube = MemoryKube(self.server)
        super().__init__(fence=0)
        self.claimed: list[int] = []
        self.open = asyncio.Event()
        self.open.set()

    @classmethod
    async def made(cls) -> World:
        world = cls()
        world.writer = StatusWriter(
            world.kube,
            world.clock,
            Metadata.model_validate((await world.apply())["metadata"]),
            {},
            world,
        )
        world.task = asyncio.create_task(world.writer.write_for_ever())
        return world

    async def apply(self) -> Json:
        """The job, as a user makes it."""
        return await self.kube.create_object(names.PLURAL, "default", {**JOB, "metadata": {"name": "job"}})

    async def wait_until_writable(self) -> None:
        await self.open.wait()

    def note_claimed_fence(self, fence: int) -> None:
        self.claimed.append(fence)

    async def stored(self) -> Json:
        """The status that the server has."""
        found: Json = (await self.kube.get_object(names.PLURAL, "default", "job")).get("status") or {}
        return found

    async def forge(self, *operations: Json) -> None:
        """Somebody else writes into the status."""
        patch, kind = list(operations), PatchKind.JSON
        await self.kube.patch_object(names.PLURAL, "default", "job", patch, kind=kind, subresource="status")
        self.server.log.pop()

    @property
    def patches(self) -> list[Json]:
        """What was written into the status, by field."""
        return [fields(request) for request in self.server.log if request.method == "PATCH"]


async def test_what_the_server_fills_in_is_no_difference() -> None:
    """Its CRD has defaults, empty ones in older versions, for what the operator leaves out."""
    world = await World.made()
    for percent in ("50%", "50%", "51%", "51%"):
        await world.writer.wait_until_written(
            world.writer.hand_over_status(HATrainingJobStatus(fence=1, summary=Summary(goodput=percent)))
        )
    await world.forge({"op": "add", "path": "/status/summary/reason", "value": ""})
    world.writer.hand_over_status(HATrainingJobStatus(fence=1, summary=Summary(goodput="51%")))
    await settle()
    assert len(world.patches) == 2
    world.task.cancel()


def fields(request: Request) -> Json:
    found: Json = {}
    for operation in request.body or ():
        assert isinstance(operation, dict)
        name = operation["path"].removeprefix("/status").strip("/")
        if operation["op"] != "test":
            found |= {name: operation.get("value")} if name else operation["value"]
    return found


def status(incarnation: int, fence: int = 1) -> HATrainingJobStatus:
    return HATrainingJobStatus(incarnation=incarnation, fence=fence)


async def test_a_write_is_acknowledged_and_a_repetition_is_none() -> None:
    world = await World.made()
    await world.writer.wait_until_written(world.writer.hand_over_status(status(1)))
    await world.writer.wait_until_written(world.writer.hand_over_status(status(1)))
    assert len(world.patches) == 1
    await world.writer.wait_until_written(world.writer.hand_over_status(status(2)))
    assert world.patches[1] == {"incarnation": 2, "fence": 1}


async def test_after_an_outage_only_the_newest_status_is_written() -> None:
    world = await World.made()
    world.server.faults.refuse(unreachable(), times=8)
    first = world.writer.hand_over_status(status(1))
    waiting = asyncio.create_task(world.writer.wait_until_written(first))
    for incarnation in range(2, 50):
        world.writer.hand_over_status(status(incarnation))
        await world.clock.advance(0.1)
    await world.clock.advance(60)
    assert waiting.done()
    assert [patch["incarnation"] for patch in world.patches] == [49]


async def test_nothing_is_written_while_this_process_may_not() -> None:
    world = await World.made()
    world.open.clear()
    world.writer.hand_over_status(status(1))
    await world.clock.advance(60)
    assert world.patches == []
    world.writer.hand_over_status(status(2))
    world.open.set()
    await settle()
    assert [patch["incarnation"] for patch in world.patches] == [2]


async def test_a_write_that_has_time_rides_with_an_urgent_one() -> None:
    world = await World.made()
    world.writer.hand_over_status(status(1), within=600)
    await world.clock.advance(599)
    assert world.patches == []
    world.writer.hand_over_status(status(2))
    await settle()
    assert [patch["incarnation"] for patch in world.patches] == [2]
    world.writer.hand_over_status(status(3), within=600)
    await world.clock.advance(601)
    assert [patch["incarnation"] for patch in world.patches] == [2, 3]


async def test_waiting_for_an_acknowledgement_makes_a_write_urgent() -> None:
    world = await World.made()
    revision = world.writer.hand_over_status(status(1), within=600)
    await world.writer.wait_until_written(revision)
    assert len(world.patches) == 1


async def test_a_claimed_fence_is_reported_and_then_outdone() -> None:
    """The Lease decides who leads: a status may have been written by anybody who has the right."""
    world = await World.made()
    world.fence = 3
    await world.writer.wait_until_written(world.writer.hand_over_status(status(1, fence=3)))
    await world.forge({"op": "add", "path": "/status/fence", "value": 900})
    waiting = asyncio.create_task(world.writer.wait_until_written(world.writer.hand_over_status(status(2, fence=3))))
    await world.clock.advance(20)
    assert (waiting.done(), set(world.claimed), world.task.done()) == (False, {900}, False)
    world.fence = 901
    await world.clock.advance(20)
    assert waiting.done()
    assert ((await world.stored())["fence"], (await world.stored())["incarnation"]) == (901, 2)


async def test_a_fence_that_no_operator_reaches_costs_this_job_alone() -> None:
    world = await World.made()
    await world.writer.wait_until_written(world.writer.hand_over_status(status(1)))
    await world.forge({"op": "add", "path": "/status/fence", "value": FENCE_LIMIT})
    with pytest.raises(StatusRefusedError, match="which no operator has written"):
        await world.writer.wait_until_written(world.writer.hand_over_status(status(2)))
    assert (world.claimed, world.task.done()) == ([], False)


async def test_a_job_of_the_same_name_is_another_job() -> None:
    world = await World.made()
    await world.kube.delete_object(names.PLURAL, "default", "job")
    await world.apply()
    with pytest.raises(JobGoneError):
        await world.writer.wait_until_written(world.writer.hand_over_status(status(1)))
    assert await world.stored() == {}


async def test_a_deleted_job_ends_the_writer() -> None:
    world = await World.made()
    await world.kube.delete_object(names.PLURAL, "default", "job")
    waiting = asyncio.create_task(world.writer.wait_until_written(world.writer.hand_over_status(status(1))))
    await world.clock.advance(1)
    with pytest.raises(JobGoneError):
        await waiting
    await world.task


@pytest.mark.parametrize(
    "answer",
    [
        ApiError(404, "Not Found", ""),
        ApiError(404, "NotFound", "the server could not find the requested resource", {}),
        ApiError(404, "NotFound", '"job" not found', {"name": "job", "kind": names.PLURAL}),
    ],
    ids=["a proxy", "no CRD", "by name"],
)
async def test_a_single_404_does_not_end_the_writer(answer: ApiError) -> None:
    world = await World.made()
    world.server.faults.refuse(answer)
    waiting = asyncio.create_task(world.writer.wait_until_written(world.writer.hand_over_status(status(1))))
    await world.clock.advance(5)
    assert waiting.done()
    assert (await world.stored())["incarnation"] == 1


async def test_a_crd_that_is_away_for_minutes_does_not_end_the_writer() -> None:
    world = await World.made()
    away = ApiError(404, "NotFound", "the server could not find the requested resource")
    fault = world.server.faults.refuse(away, times=None)
    waiting = asyncio.create_task(world.writer.wait_until_written(world.writer.hand_over_status(status(1))))
    await world.clock.advance(300)
    assert not waiting.done()
    fault.end()
    await world.clock.advance(20)
    assert waiting.done()


async def test_a_refused_status_is_told_and_the_next_one_is_tried() -> None:
    world = await World.made()
    too_long = HATrainingJobStatus.model_construct(fence=1, journal="x" * 300_000)
    with pytest.raises(StatusRefusedError, match="Too long"):
        await world.writer.wait_until_written(world.writer.hand_over_status(too_long))
    await world.writer.wait_until_written(world.writer.hand_over_status(status(2)))
    assert (await world.stored())["incarnation"] == 2


async def test_a_status_that_is_not_what_was_thought_is_read_again() -> None:
    world = await World.made()
    await world.writer.wait_until_written(world.writer.hand_over_status(status(1)))
    await world.forge({"op": "remove", "path": "/status"})
    world.writer.hand_over_status(status(2))
    await world.clock.advance(5)
    assert (await world.stored())["incarnation"] == 2


def test_the_operations_remove_what_is_no_longer_there() -> None:
    test = {"op": "test", "path": "/metadata/uid", "value": "u"}
    fence = {"op": "add", "path": "/status/fence", "value": 1}
    known = HATrainingJobStatus(fence=1, restarts=Restarts(program=1)).to_json()
    wanted = HATrainingJobStatus(fence=1, restarts=Restarts(program=2)).to_json()
    changed = {"op": "add", "path": "/status/restarts", "value": {"infrastructure": 0, "program": 2}}
    assert patch_of_status(known, wanted, "u") == [test, fence, changed]
    removed = {"op": "remove", "path": "/status/progress"}
    assert patch_of_status({"progress": {"step": 1}, "fence": 1}, {"fence": 1}, "u") == [test, fence, removed]
    assert patch_of_status({}, wanted, "u") == [test, {"op": "add", "path": "/status", "value": wanted}]
    assert patch_of_status(HATrainingJobStatus().to_json(), wanted, "u") == patch_of_status({}, wanted, "u")
    assert patch_of_status(known, known, "u") == []
