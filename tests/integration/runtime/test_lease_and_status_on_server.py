"""Lease and status writer against a real server: its conflicts, its CEL rules, its answers to no-op patches."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.api.status import HATrainingJobStatus
from hajob.runtime.clock import SystemClock
from hajob.runtime.http_kube import HttpKube
from hajob.runtime.lease import LeaseHolder, LeaseSettings
from hajob.runtime.status_writer import JobGoneError, LeadershipLostError, StatusRefusedError, StatusWriter

Job = dict[str, Any]


async def test_one_leads_and_the_next_one_gets_a_higher_fence(kube: HttpKube, namespace: str) -> None:
    settings = LeaseSettings(namespace, lease_seconds=1.0, renew_seconds=0.7, retry_seconds=0.1)
    gained: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    keepers: dict[str, LeaseHolder] = {}
    tasks: dict[str, asyncio.Task[None]] = {}

    def start(name: str) -> None:
        def on_gained(fence: int) -> None:
            gained.put_nowait((name, fence))

        keepers[name] = LeaseHolder(kube, SystemClock(), settings, name, on_gained=on_gained)
        tasks[name] = asyncio.create_task(keepers[name].run())

    for name in ("one", "two"):
        start(name)
    async with asyncio.timeout(30):
        first, fence = await gained.get()
        assert fence == 1
        tasks[first].cancel()
        second, fence = await gained.get()
        assert (second != first, fence) == (True, 2)
        start("three")
        tasks[second].cancel()
        await asyncio.gather(tasks[second], return_exceptions=True)
        await keepers[second].release()
        assert await gained.get() == ("three", 3)
    for task in tasks.values():
        task.cancel()
    lease = await kube.get("leases", namespace, settings.name)
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("three", 3)


async def _always() -> None:
    """Leading all the time."""


def _writer(kube: HttpKube, made: Job) -> StatusWriter:
    return StatusWriter(
        kube,
        SystemClock(),
        namespace="default",
        name=made["metadata"]["name"],
        uid=made["metadata"]["uid"],
        known=made.get("status") or {},
        may_write=_always,
    )


async def test_statuses_arrive_and_a_late_leader_is_stopped(kube: HttpKube, crd: Job, job: Job) -> None:
    made = await kube.create(names.PLURAL, "default", job)
    read = partial(kube.get, names.PLURAL, "default", made["metadata"]["name"])
    old, new = _writer(kube, made), _writer(kube, made)
    tasks = [asyncio.create_task(writer.run()) for writer in (old, new)]
    async with asyncio.timeout(30):
        await old.acknowledged(old.write(HATrainingJobStatus(fence=4, incarnation=1)))
        version = (await read())["metadata"]["resourceVersion"]
        await old.acknowledged(old.write(HATrainingJobStatus(fence=4, incarnation=1)))
        assert (await read())["metadata"]["resourceVersion"] == version
        await new.acknowledged(new.write(HATrainingJobStatus(fence=5, incarnation=2)))
        with pytest.raises(LeadershipLostError):
            await old.acknowledged(old.write(HATrainingJobStatus(fence=4, incarnation=9)))
        assert (await read())["status"]["incarnation"] == 2
        with pytest.raises(StatusRefusedError, match="journal"):
            await new.acknowledged(new.write(HATrainingJobStatus.model_construct(fence=5, journal="x" * 300_000)))
        await new.acknowledged(new.write(HATrainingJobStatus(fence=5, incarnation=3)))
        await kube.delete(names.PLURAL, "default", made["metadata"]["name"])
        with pytest.raises(JobGoneError):
            await new.acknowledged(new.write(HATrainingJobStatus(fence=5, incarnation=4)))
    await asyncio.gather(*tasks)


async def test_a_job_that_was_applied_again_is_not_touched(kube: HttpKube, crd: Job, job: Job) -> None:
    made = await kube.create(names.PLURAL, "default", job)
    writer = _writer(kube, made)
    task = asyncio.create_task(writer.run())
    await kube.delete(names.PLURAL, "default", made["metadata"]["name"])
    again = await kube.create(names.PLURAL, "default", job)
    async with asyncio.timeout(30):
        with pytest.raises(JobGoneError):
            await writer.acknowledged(writer.write(HATrainingJobStatus(fence=1)))
        await task
    assert "status" not in await kube.get(names.PLURAL, "default", again["metadata"]["name"])
