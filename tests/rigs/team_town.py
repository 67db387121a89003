"""The page for a team on this machine: a cluster in memory that knows two people, one of whom may read nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
from aiohttp import web

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.server import MemoryServer
from hajob.kube.client import ApiError, Kube
from hajob.web.live import Scope
from hajob.web.server import build_application
from hajob.web.team_door import RemoteCluster, TeamDoor
from tests.rigs.page_town import PassingClock, put_object
from tests.rigs.told_job import NAMESPACE, told_job

ALICE, BOB = "alice-token", "bob-token"
OWNERS = {ALICE: "alice", BOB: "bob", "stranger-token": "system:anonymous"}


class OnesOwnKube(MemoryKube):
    """The API server as the owner of one token sees it: bob may not read jobs."""

    def __init__(self, server: MemoryServer, token: str) -> None:
        super().__init__(server, client=token)
        self._token = token
        self.transport = self  # type: ignore[assignment]

    async def send_request(self, method: str, path: str, **_: object) -> dict[str, object]:
        assert (method, path) == ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews")
        if self._token not in OWNERS:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return {"status": {"userInfo": {"username": OWNERS[self._token]}}}

    def watch_objects(self, resource: str, *rest: object, **more: object):  # type: ignore[no-untyped-def]  # noqa: ANN201
        if self._token == BOB:
            raise ApiError(403, "Forbidden", f"bob cannot list {resource}")
        return MemoryKube(self.server).watch_objects(resource, *rest, **more)  # type: ignore[arg-type]

    def list_pages(self, resource: str, *rest: object, **more: object):  # type: ignore[no-untyped-def]  # noqa: ANN201
        if self._token == BOB:
            raise ApiError(403, "Forbidden", f"bob cannot list {resource}")
        return MemoryKube(self.server).list_pages(resource, *rest, **more)  # type: ignore[arg-type]


class TeamTown(RemoteCluster):
    """A page for a team, before a cluster in memory."""

    def __init__(self) -> None:
        super().__init__("https://nowhere.example.org", "")
        self.clock = PassingClock()
        self.api = MemoryServer(self.clock)
        put_object(self.api, "hatrainingjobs", told_job(), NAMESPACE)
        self.door = TeamDoor(self, self.clock, Scope())
        self.ended: list[str] = []
        self.port = 0

    async def connect_as(self, token: str, resources: AsyncExitStack) -> Kube:
        resources.callback(self.ended.append, token)
        return OnesOwnKube(self.api, token)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@asynccontextmanager
async def open_team() -> AsyncIterator[tuple[TeamTown, aiohttp.ClientSession]]:
    """The page, and a browser without a window to look at it."""
    town = TeamTown()
    runner = web.AppRunner(build_application(town.door, town.clock), handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        town.port = runner.addresses[0][1]
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            yield town, browser
    finally:
        await runner.cleanup()
        await town.door.end_sessions()
