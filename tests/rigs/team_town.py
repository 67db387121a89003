"""The page for a team on this machine: a cluster in memory that knows two people, one of whom may read nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp

from e2e.memory_api.client import MemoryTransport
from e2e.memory_api.server import MemoryServer
from hajob.api.base import Json
from hajob.kube.client import ApiError, Kube, WatchEvent
from hajob.web.live import Scope
from hajob.web.team_door import RemoteCluster, TeamDoor
from tests.rigs.page_town import PassingClock, put_object, serve_door
from tests.rigs.told_job import NAMESPACE, told_job

ALICE, BOB = "alice-token", "bob-token"
OWNERS = {ALICE: "alice", BOB: "bob", "stranger-token": "system:anonymous"}
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class OnesOwnTransport(MemoryTransport):
    """The way of one token's owner to the API server: bob may read nothing there."""

    def __init__(self, server: MemoryServer, token: str) -> None:
        super().__init__(server, token)
        self._token = token

    async def send_request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: Json | Sequence[Json] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        if path == REVIEW:
            if self._token not in OWNERS:
                raise ApiError(401, "Unauthorized", "Unauthorized")
            return {"status": {"userInfo": {"username": OWNERS[self._token]}}}
        self._check_rights(path)
        return await super().send_request(method, path, query=query, body=body, content_type=content_type)

    def watch_path(self, path: str, query: Mapping[str, str]) -> AsyncIterator[WatchEvent]:
        self._check_rights(path)
        return super().watch_path(path, query)

    def _check_rights(self, path: str) -> None:
        if self._token == BOB:
            raise ApiError(403, "Forbidden", f"bob cannot read {path}")


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
        return Kube(OnesOwnTransport(self.api, token))

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@asynccontextmanager
async def open_team() -> AsyncIterator[tuple[TeamTown, aiohttp.ClientSession]]:
    """The page, and a browser without a window to look at it."""
    town = TeamTown()
    try:
        async with (
            serve_door(town.door, town.clock) as town.port,
            aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser,
        ):
            yield town, browser
    finally:
        await town.door.end_sessions()
