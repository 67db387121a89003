"""A page for a team: each sees what their own token may see, and nobody sees anything without one."""

from __future__ import annotations

import aiohttp

from hajob.web.team_door import IDLE_SECONDS, LONGEST_SECONDS
from tests.rigs.team_town import ALICE, BOB, TeamTown, open_team


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
    async with open_team() as (town, browser):
        async with browser.get(town.url("/")) as answer:
            page = await answer.text()
        assert 'name="token"' in page
        assert "app.mjs" not in page
        assert await first_of(town, browser) == "401 log in first\n"


async def test_each_sees_what_the_own_token_may_see() -> None:
    async with open_team() as (town, browser):
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
    async with open_team() as (town, browser):
        for token in ("wrong", "", "stranger-token", "two\nlines", "ä" * 9):
            assert await log_in(town, browser, token) == 401
        assert "wrong" in town.ended, "nothing of it is kept"


async def test_a_proxy_may_bring_the_token_with_each_request() -> None:
    async with open_team() as (town, browser):
        assert "quickstart" in await first_of(town, browser, Authorization=f"Bearer {ALICE}")
        assert (await first_of(town, browser, Authorization="Bearer wrong")).startswith("401 ")
        assert await first_of(town, browser) == "401 log in first\n", "it is nobody's session"


async def test_the_cookie_is_kept_from_scripts_and_other_pages() -> None:
    async with open_team() as (town, browser):
        async with browser.post(
            town.url("/login"), data={"token": ALICE}, headers={"X-Forwarded-Proto": "https"}, allow_redirects=False
        ) as answer:
            cookies = answer.headers.getall("Set-Cookie")
        session = next(one for one in cookies if one.startswith("hajob-session"))
        assert all(word in session for word in ("HttpOnly", "SameSite=Strict", "Secure"))
        assert ALICE not in "".join(cookies)


async def test_another_page_cannot_log_anybody_in_or_out() -> None:
    async with open_team() as (town, browser):
        assert await log_in(town, browser, ALICE, **{"Sec-Fetch-Site": "cross-site"}) == 403
        assert await log_in(town, browser, ALICE, Origin="https://evil.example.org") == 403
        assert await log_in(town, browser, ALICE, Origin=f"http://127.0.0.1:{town.port}") == 303
        async with browser.post(town.url("/logout"), headers={"Origin": "null"}) as answer:
            assert answer.status == 403


async def test_who_leaves_is_forgotten() -> None:
    async with open_team() as (town, browser):
        await log_in(town, browser, ALICE)
        async with browser.post(town.url("/logout"), allow_redirects=False) as answer:
            assert answer.status == 303
        assert town.ended == [ALICE]
        assert (await first_of(town, browser)).startswith("401")


async def test_a_session_ends_when_nobody_looks_and_after_a_day() -> None:
    async with open_team() as (town, browser):
        await log_in(town, browser, ALICE)
        async with browser.get(town.url("/api/jobs")) as stream:
            await stream.content.readany()
            town.clock.pass_seconds(IDLE_SECONDS + 1)
            assert (await first_of(town, browser)).startswith("200"), "a page is open"
            town.clock.pass_seconds(LONGEST_SECONDS)
            assert (await first_of(town, browser)).startswith("401")
        assert town.ended == [ALICE]
