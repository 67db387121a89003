"""Faults and time between a client and the server in memory; what it answers is asked beside a real one."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.nodes import Nodes
from e2e.memory_api.requests import requests
from e2e.memory_api.server import MemoryServer
from hajob.api.base import Json
from hajob.kube.client import ApiError, WatchEvent
from tests.rigs.fake_clock import FakeClock, settle


class World:
    """A server, two clients, and a clock."""

    def __init__(self, **settings: Any) -> None:
        self.clock = FakeClock()
        self.server = MemoryServer(self.clock, **settings)
        self.kube = MemoryKube(self.server, "one")
        self.other = MemoryKube(self.server, "two")

    async def make(self, name: str) -> Json:
        return await self.kube.create_object("configmaps", "default", {"metadata": {"name": name}})

    async def fails(self, status: int) -> ApiError:
        with pytest.raises(ApiError) as error:
            await self.kube.get_object("configmaps", "default", "m")
        assert error.value.status == status
        return error.value


class Watching:
    """A watch of ConfigMaps, and what it brought."""

    def __init__(self, kube: MemoryKube, version: str = "") -> None:
        self.events: list[WatchEvent] = []
        self.task = asyncio.create_task(self._run(kube, version))

    async def _run(self, kube: MemoryKube, version: str) -> None:
        async with aclosing(kube.watch_objects("configmaps", "default", resource_version=version)) as stream:  # type: ignore[type-var]
            async for event in stream:
                self.events.append(event)

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]


async def test_two_runs_answer_the_same_to_the_letter() -> None:
    async def run() -> list[Json]:
        world = World()
        made = [await world.make("a"), await world.make("b")]
        return [*made, *[each async for page in world.kube.list_pages("configmaps") for each in page.items]]

    assert await run() == await run()


async def test_a_fault_takes_as_many_requests_as_it_is_told() -> None:
    world = World()
    await world.make("m")
    world.server.faults.refuse(ApiError(500, "InternalError", "etcd"), matching=requests("configmaps"), times=2)
    await world.fails(500)
    await world.kube.get_object("namespaces", "", "default")
    await world.fails(500)
    await world.kube.get_object("configmaps", "default", "m")


async def test_one_client_is_cut_off_and_the_other_is_not() -> None:
    world = World()
    await world.make("m")
    fault = world.server.faults.unreachable(matching=requests(client="one"))
    assert (await world.fails(0)).may_pass
    await world.other.get_object("configmaps", "default", "m")
    fault.end()
    await world.kube.get_object("configmaps", "default", "m")


async def test_what_was_done_may_be_answered_by_nobody() -> None:
    world = World()
    world.server.faults.lose_answer()
    with pytest.raises(ApiError) as lost:
        await world.make("m")
    assert lost.value.status == 0
    await world.kube.get_object("configmaps", "default", "m")


async def test_a_held_request_acts_after_its_client_gave_up() -> None:
    world = World()
    held = world.server.faults.hold()
    task = asyncio.create_task(world.make("m"))
    await world.clock.advance(9.9)
    assert (held.held, task.done()) == (1, False)
    await world.clock.advance(0.2)
    with pytest.raises(ApiError, match="TimeoutError"):
        await task
    await world.fails(404)
    held.release()
    await settle()
    await world.kube.get_object("configmaps", "default", "m")


async def test_an_answer_takes_its_time() -> None:
    world = World()
    world.server.faults.delay(before=2.0, after=3.0)
    task = asyncio.create_task(world.make("m"))
    await world.clock.advance(1.9)
    assert world.server.history.all("configmaps") == []
    await world.clock.advance(0.2)
    assert (len(world.server.history.all("configmaps")), task.done()) == (1, False)
    await world.clock.advance(3.0)
    assert task.done()


async def test_a_watch_hears_bookmarks_and_ends_after_half_an_hour() -> None:
    world = World()
    watch = Watching(world.kube)
    await world.clock.advance(1799)
    assert (set(watch.types), len(watch.types), watch.task.done()) == ({"BOOKMARK"}, 29, False)
    await world.clock.advance(2)
    assert (watch.task.done(), world.server.streams) == (True, [])


async def test_a_silent_watch_fails_after_70_seconds() -> None:
    world = World()
    watch = Watching(world.kube)
    await settle()
    for stream in world.server.open_streams("configmaps"):
        stream.silent = True
    await world.make("m")
    await world.clock.advance(69)
    assert (watch.types, watch.task.done()) == ([], False)
    await world.clock.advance(2)
    with pytest.raises(ApiError, match="SocketTimeoutError"):
        await watch.task


async def test_a_watch_is_cut_or_ended() -> None:
    world = World()
    first, second = Watching(world.kube), Watching(world.other)
    await settle()
    for stream in world.server.open_streams(client="one"):
        stream.end(ApiError(0, "Unreachable", "reset"))
    await world.make("m")
    await settle()
    with pytest.raises(ApiError, match="reset"):
        await first.task
    assert second.types == ["ADDED"]


async def test_a_version_that_is_forgotten_is_too_old() -> None:
    world = World(page_limit=1)
    await world.make("a")
    pages = world.kube.list_pages("configmaps")
    first = await anext(pages)
    await world.make("b")
    world.server.history.forget()
    watch = Watching(world.kube, first.resource_version)
    await settle()
    assert watch.types == ["ERROR"]
    assert (watch.events[0].object["code"], watch.events[0].object["reason"]) == (410, "Expired")
    page = await world.kube.transport.send_request("GET", "/api/v1/configmaps", query={})
    world.server.history.forget()
    await world.make("c")
    world.server.history.forget()
    with pytest.raises(ApiError) as expired:
        await world.kube.transport.send_request(
            "GET", "/api/v1/configmaps", query={"continue": page["metadata"]["continue"]}
        )
    assert (expired.value.status, expired.value.reason) == (410, "Expired")


async def test_pages_are_as_small_as_the_server_likes() -> None:
    world = World(page_limit=2)
    for number in range(5):
        await world.make(f"m{number}")
    pages = [page async for page in world.kube.list_pages("configmaps", "default")]
    assert [len(page.items) for page in pages] == [2, 2, 1]


async def test_controllers_take_their_time() -> None:
    world = World(controller_seconds=2.0)
    owner = await world.make("owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    await world.kube.create_object(
        "configmaps", "default", {"metadata": {"name": "child", "ownerReferences": [reference]}}
    )
    await world.clock.advance(5)
    await world.kube.delete_object("configmaps", "default", "owner")
    await world.clock.advance(1.9)
    await world.kube.get_object("configmaps", "default", "child")
    await world.clock.advance(0.2)
    with pytest.raises(ApiError):
        await world.kube.get_object("configmaps", "default", "child")


async def test_a_pod_lives_as_the_nodes_say() -> None:
    world = World()
    nodes = Nodes(world.server)
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await world.kube.create_object("pods", "default", body)
    nodes.bind("default", "p", "node-1")
    running = nodes.run("default", "p", "10.0.0.1")
    assert (running["status"]["phase"], running["status"]["podIP"]) == ("Running", "10.0.0.1")
    await world.kube.delete_object("pods", "default", "p")
    assert (await world.kube.get_object("pods", "default", "p"))["metadata"]["deletionGracePeriodSeconds"] == 30
    nodes.remove("default", "p")
    with pytest.raises(ApiError):
        await world.kube.get_object("pods", "default", "p")
    await world.kube.create_object("pods", "default", body)
    ended = nodes.end("default", "p", exit_code=3)
    assert ended["status"]["phase"] == "Failed"
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
