"""A page for a team: each sees what their own token may see, and nobody sees anything without one."""

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
from hajob.web.team_door import IDLE_SECONDS, LONGEST_SECONDS, RemoteCluster, TeamDoor
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
async def team() -> AsyncIterator[tuple[TeamTown, aiohttp.ClientSession]]:
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


async def log_in(town: TeamTown, browser: aiohttp.ClientSession, token: str, **headers: str) -> int:
    async with browser.post(
        town.url("/login"), data={"token": token}, headers=headers, allow_redirects=False
    ) as answer:
        return answer.status


async def first_of(town: TeamTown, browser: aiohttp.ClientSession, **headers: str) -> str:
    """The first that a stream of jobs tells, or the refusal."""
    async with browser.get(town.url("/api/jobs"), headers=headers) as answer:
        return f"{answer.status} {(await answer.content.readany()).decode()}"


async def test_nobody_is_shown_anything_before_they_log_in() -> None:
    async with team() as (town, browser):
        async with browser.get(town.url("/")) as answer:
            page = await answer.text()
        assert 'name="token"' in page
        assert "app.mjs" not in page
        assert await first_of(town, browser) == "401 log in first\n"


async def test_each_sees_what_the_own_token_may_see() -> None:
    async with team() as (town, browser):
        assert await log_in(town, browser, ALICE) == 303
        assert "quickstart" in await first_of(town, browser)
        async with browser.get(town.url("/")) as answer:
            assert "app.mjs" in await answer.text()
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as other:
            assert await log_in(town, other, BOB) == 303
            told = await first_of(town, other)
            assert "quickstart" not in told
            assert "forbidden" in told


async def test_a_token_that_the_cluster_refuses_lets_nobody_in() -> None:
    async with team() as (town, browser):
        for token in ("wrong", "", "stranger-token", "two\nlines", "ä" * 9):
            assert await log_in(town, browser, token) == 401
        assert "wrong" in town.ended, "nothing of it is kept"


async def test_a_proxy_may_bring_the_token_with_each_request() -> None:
    async with team() as (town, browser):
        assert "quickstart" in await first_of(town, browser, Authorization=f"Bearer {ALICE}")
        assert (await first_of(town, browser, Authorization="Bearer wrong")).startswith("401 ")
        assert await first_of(town, browser) == "401 log in first\n", "it is nobody's session"


async def test_the_cookie_is_kept_from_scripts_and_other_pages() -> None:
    async with team() as (town, browser):
        async with browser.post(
            town.url("/login"), data={"token": ALICE}, headers={"X-Forwarded-Proto": "https"}, allow_redirects=False
        ) as answer:
            cookies = answer.headers.getall("Set-Cookie")
        session = next(one for one in cookies if one.startswith("hajob-session"))
        assert all(word in session for word in ("HttpOnly", "SameSite=Strict", "Secure"))
        assert ALICE not in "".join(cookies)


async def test_another_page_cannot_log_anybody_in_or_out() -> None:
    async with team() as (town, browser):
        assert await log_in(town, browser, ALICE, **{"Sec-Fetch-Site": "cross-site"}) == 403
        assert await log_in(town, browser, ALICE, Origin="https://evil.example.org") == 403
        assert await log_in(town, browser, ALICE, Origin=f"http://127.0.0.1:{town.port}") == 303
        async with browser.post(town.url("/logout"), headers={"Origin": "null"}) as answer:
            assert answer.status == 403


async def test_who_leaves_is_forgotten() -> None:
    async with team() as (town, browser):
        await log_in(town, browser, ALICE)
        async with browser.post(town.url("/logout"), allow_redirects=False) as answer:
            assert answer.status == 303
        assert town.ended == [ALICE]
        assert (await first_of(town, browser)).startswith("401")


async def test_a_session_ends_when_nobody_looks_and_after_a_day() -> None:
    async with team() as (town, browser):
        await log_in(town, browser, ALICE)
        async with browser.get(town.url("/api/jobs")) as stream:
            await stream.content.readany()
            town.clock.pass_seconds(IDLE_SECONDS + 1)
            assert (await first_of(town, browser)).startswith("200"), "a page is open"
            town.clock.pass_seconds(LONGEST_SECONDS)
            assert (await first_of(town, browser)).startswith("401")
        assert town.ended == [ALICE]
