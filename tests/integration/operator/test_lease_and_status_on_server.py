"""Lease and status writer against a real server: its conflicts, its CEL rules, its answers to no-op patches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.api.job import Metadata
from hajob.api.status import HATrainingJobStatus
from hajob.clock import SystemClock
from hajob.job.status_writer import JobGoneError, StatusRefusedError, StatusWriter
from hajob.kube.client import ApiError
from hajob.kube.http import HttpKube
from hajob.leader.leadership import Leadership
from hajob.leader.lease import FENCE_LIMIT, Candidate, LeaseHolder, LeaseSettings

Job = dict[str, Any]
PAUSE_SECONDS = 3.0
"""For so long a loaded machine may stand still without the Lease changing hands in a test."""


class Told(Candidate):
    """A process that tells when it leads."""

    def __init__(self, name: str, gained: asyncio.Queue[tuple[str, int]]) -> None:
        self._name, self._gained = name, gained

    def leadership_gained(self, fence: int) -> None:
        self._gained.put_nowait((self._name, fence))


async def test_one_leads_and_the_next_one_gets_a_higher_fence(kube: HttpKube, namespace: str) -> None:
    settings = LeaseSettings(namespace, lease_seconds=PAUSE_SECONDS, renew_seconds=2.5, retry_seconds=0.1)
    gained: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    holders: dict[str, LeaseHolder] = {}
    tasks: dict[str, asyncio.Task[None]] = {}

    def start(name: str) -> None:
        holders[name] = LeaseHolder(kube, SystemClock(), settings, name, Told(name, gained))
        tasks[name] = asyncio.create_task(holders[name].hold_for_ever())

    for name in ("one", "two"):
        start(name)
    async with asyncio.timeout(90):
        first, fence = await gained.get()
        assert fence == 1
        tasks[first].cancel()
        second, fence = await gained.get()
        assert (second != first, fence) == (True, 2)
        start("three")
        tasks[second].cancel()
        await asyncio.gather(tasks[second], return_exceptions=True)
        await holders[second].release_lease()
        assert await gained.get() == ("three", 3)
    for task in tasks.values():
        task.cancel()
    lease = await kube.get_object("leases", namespace, settings.name)
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("three", 3)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another task does."""
    while not condition():  # noqa: ASYNC110  # what is waited for has no event
        await asyncio.sleep(0.05)


class Claiming(Leadership):
    """Leads all the time, and notes which fences were claimed."""

    def __init__(self) -> None:
        super().__init__(fence=0)
        self.claimed: list[int] = []

    def note_claimed_fence(self, fence: int) -> None:
        self.claimed.append(fence)


def _writer(kube: HttpKube, made: Job, leadership: Leadership | None = None) -> StatusWriter:
    return StatusWriter(
        kube,
        SystemClock(),
        Metadata.model_validate(made["metadata"]),
        made.get("status") or {},
        leadership or Leadership(fence=0),
    )


async def test_statuses_arrive_and_a_late_leader_is_stopped(kube: HttpKube, crd: Job, job: Job, where: str) -> None:
    made = await kube.create_object(names.PLURAL, where, job)
    read = partial(kube.get_object, names.PLURAL, where, made["metadata"]["name"])
    leads = Claiming()
    old, new = _writer(kube, made, leads), _writer(kube, made)
    tasks = [asyncio.create_task(writer.write_for_ever()) for writer in (old, new)]
    async with asyncio.timeout(90):
        await old.wait_until_written(old.hand_over_status(HATrainingJobStatus(fence=4, incarnation=1)))
        version = (await read())["metadata"]["resourceVersion"]
        await old.wait_until_written(old.hand_over_status(HATrainingJobStatus(fence=4, incarnation=1)))
        assert (await read())["metadata"]["resourceVersion"] == version
        await new.wait_until_written(new.hand_over_status(HATrainingJobStatus(fence=5, incarnation=2)))
        late = asyncio.create_task(
            old.wait_until_written(old.hand_over_status(HATrainingJobStatus(fence=4, incarnation=9)))
        )
        await until(lambda: bool(leads.claimed))
        assert (leads.claimed[0], late.done(), (await read())["status"]["incarnation"]) == (5, False, 2)
        late.cancel()
        tasks[0].cancel()
        with pytest.raises(StatusRefusedError, match="journal"):
            await new.wait_until_written(
                new.hand_over_status(HATrainingJobStatus.model_construct(fence=5, journal="x" * 300_000))
            )
        await new.wait_until_written(new.hand_over_status(HATrainingJobStatus(fence=5, incarnation=3)))
        await kube.delete_object(names.PLURAL, where, made["metadata"]["name"])
        with pytest.raises(JobGoneError):
            await new.wait_until_written(new.hand_over_status(HATrainingJobStatus(fence=5, incarnation=4)))
        await tasks[1]


async def test_a_job_that_was_applied_again_is_not_touched(kube: HttpKube, crd: Job, job: Job, where: str) -> None:
    made = await kube.create_object(names.PLURAL, where, job)
    writer = _writer(kube, made)
    task = asyncio.create_task(writer.write_for_ever())
    await kube.delete_object(names.PLURAL, where, made["metadata"]["name"])
    again = await kube.create_object(names.PLURAL, where, job)
    async with asyncio.timeout(90):
        with pytest.raises(JobGoneError):
            await writer.wait_until_written(writer.hand_over_status(HATrainingJobStatus(fence=1)))
        await task
    assert "status" not in await kube.get_object(names.PLURAL, where, again["metadata"]["name"])


async def test_a_forged_fence_stops_no_operator(kube: HttpKube, crd: Job, job: Job, where: str) -> None:
    """The CRD refuses what no Lease can count to; below that only this job's status suffers, and is told so."""
    made = await kube.create_object(names.PLURAL, where, job)
    name, writer = made["metadata"]["name"], _writer(kube, made)
    task = asyncio.create_task(writer.write_for_ever())

    async def forge(fence: int) -> None:
        await kube.patch_object(names.PLURAL, where, name, {"status": {"fence": fence}}, subresource="status")

    async with asyncio.timeout(90):
        await writer.wait_until_written(writer.hand_over_status(HATrainingJobStatus(fence=1)))
        with pytest.raises(ApiError, match="less than or equal to 2000000000"):
            await forge(2**31)
        await forge(FENCE_LIMIT)
        with pytest.raises(StatusRefusedError, match="which no operator has written"):
            await writer.wait_until_written(writer.hand_over_status(HATrainingJobStatus(fence=1, incarnation=2)))
    assert not task.done()
    task.cancel()


async def test_a_lease_deleted_under_a_leader_is_made_again(kube: HttpKube, namespace: str) -> None:
    settings = LeaseSettings(namespace, lease_seconds=PAUSE_SECONDS, renew_seconds=2.5, retry_seconds=0.1)
    gained: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    holder = LeaseHolder(kube, SystemClock(), settings, "one", Told("one", gained))
    task = asyncio.create_task(holder.hold_for_ever())
    async with asyncio.timeout(90):
        await until(lambda: holder.fence == 1)
        await kube.delete_object("leases", namespace, settings.name)
        await until(lambda: holder.fence == 2)
    assert gained.get_nowait() == ("one", 1)
    assert gained.empty()
    task.cancel()
