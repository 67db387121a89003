"""A proxy holds a leader's write past a change of leaders, and delivers it after its client has gone."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from hajob.api import constants as names
from hajob.api.status import HATrainingJobStatus
from hajob.clock import SystemClock
from hajob.job.status_writer import patch_of_status
from hajob.kube.client import ApiError, Kube, PatchKind
from hajob.kube.credentials import ApiCredentials
from hajob.kube.http import HttpKube
from hajob.leader.leader_kube import NOT_LEADING, LeaderKube
from hajob.leader.lease import Candidate, LeaseHolder, LeaseSettings

Job = dict[str, Any]
CLOCK = SystemClock()


class Proxy:
    """Hands bytes on, and on command keeps what clients send until it is released: also of clients that have gone."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self.open = asyncio.Event()
        self.open.set()
        self.holds = asyncio.Event()
        self.delivered = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str) -> int:
        self._server = await asyncio.start_server(self._serve, host, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        above, to_above = await asyncio.open_connection(*self._upstream)
        for pump in (self._ask(reader, to_above), self._answer(above, writer)):
            task = asyncio.create_task(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            held = not self.open.is_set()
            if held:
                self.holds.set()
                await self.open.wait()
            writer.write(data)
            await writer.drain()
            if held:
                self.delivered.set()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:  # the client has gone: nobody wants the answer
            return


@pytest.fixture
async def proxy(credentials: ApiCredentials) -> AsyncIterator[tuple[Proxy, ApiCredentials]]:
    split = urlsplit(credentials.server)
    host = split.hostname or ""
    made = Proxy(host, split.port or 443)
    port = await made.start(host)
    yield made, dataclasses.replace(credentials, server=f"https://{host}:{port}")
    await made.stop()


def holder(kube: Kube, namespace: str, name: str) -> LeaseHolder:
    settings = LeaseSettings(namespace, lease_seconds=4.0, renew_seconds=3.0, retry_seconds=0.3)
    return LeaseHolder(kube, CLOCK, settings, name, Candidate())


async def leads(lease: LeaseHolder) -> None:
    while not lease.is_leader:  # noqa: ASYNC110  # another task's doing
        await asyncio.sleep(0.02)


async def test_a_write_held_past_a_change_of_leaders_changes_nothing(
    kube: HttpKube, proxy: tuple[Proxy, ApiCredentials], namespace: str, crd: Job, job: Job, where: str
) -> None:
    held, credentials = proxy
    made = await kube.create_object(names.PLURAL, where, job)
    name, uid = made["metadata"]["name"], made["metadata"]["uid"]

    async def write(port: Kube, known: Job, fence: int, incarnation: int) -> Job:
        status = HATrainingJobStatus(fence=fence, incarnation=incarnation).to_json()
        patch = patch_of_status(known, status, uid)
        return await port.patch_object(names.PLURAL, where, name, patch, kind=PatchKind.JSON, subresource="status")

    first, second = holder(kube, namespace, "one"), holder(kube, namespace, "two")
    async with asyncio.timeout(60), HttpKube(credentials) as late:
        tasks = [asyncio.create_task(first.hold_for_ever())]
        await leads(first)
        tasks.append(asyncio.create_task(second.hold_for_ever()))
        leader = LeaderKube(late, CLOCK, first)
        known = (await write(leader, {}, 1, 1))["status"]
        held.open.clear()
        tasks[0].cancel()
        with pytest.raises(ApiError, match=NOT_LEADING):
            await write(leader, known, 1, 7)
        assert (held.holds.is_set(), second.is_leader) == (True, False)
        await leads(second)
        await write(LeaderKube(kube, CLOCK, second), known, 2, 2)
        held.open.set()
        await held.delivered.wait()
        await asyncio.sleep(1.0)
        status = (await kube.get_object(names.PLURAL, where, name))["status"]
        tasks[1].cancel()
    assert (status["fence"], status["incarnation"]) == (2, 2)
