"""Who may ask the local page: whoever has its key, by its own name, and no page of anybody else."""

from __future__ import annotations

import aiohttp
import pytest

from tests.rigs.page_town import PageTown, open_town
from tests.rigs.told_job import told_job


async def ask(town: PageTown, path: str = "/api/jobs", method: str = "GET", **headers: str) -> tuple[int, str]:
    """Status and first bytes of an answer."""
    async with (
        aiohttp.ClientSession() as client,
        client.request(method, f"http://127.0.0.1:{town.door.port}{path}", headers=headers) as answer,
    ):
        return answer.status, (await answer.content.readany()).decode()


def with_key(town: PageTown) -> dict[str, str]:
    """The header of a browser that was let in."""
    return {"Cookie": f"hajob-ui-{town.door.port}={town.door.key}"}


async def test_the_key_is_needed() -> None:
    async with open_town(("hatrainingjobs", told_job())) as town:
        assert (await ask(town))[0] == 403
        assert (await ask(town, Cookie=f"hajob-ui-{town.door.port}=wrong"))[0] == 403
        assert (await ask(town, "/"))[0] == 403
        assert (await ask(town, "/?key=wrong"))[0] == 403
        status, told = await ask(town, **with_key(town))
        assert (status, "quickstart" in told) == (200, True)


async def test_the_key_in_the_address_opens_the_page() -> None:
    async with (
        open_town() as town,
        aiohttp.ClientSession() as client,
        client.get(town.address) as answer,
    ):
        cookie = answer.headers["Set-Cookie"]
        assert answer.status == 200
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


async def test_a_foreign_name_for_this_machine_is_refused() -> None:
    async with open_town() as town:
        status, told = await ask(town, Host=f"evil.example.org:{town.door.port}", **with_key(town))
        assert (status, told) == (403, f"ask for 127.0.0.1:{town.door.port}\n")
        assert (await ask(town, Host=f"localhost:{town.door.port}", **with_key(town)))[0] == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_foreign_page_is_refused(site: str) -> None:
    async with open_town() as town:
        assert (await ask(town, **{"Sec-Fetch-Site": site}, **with_key(town)))[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_can_be_written(method: str) -> None:
    async with open_town() as town:
        for path in ("/api/jobs", "/api/jobs/team-a/quickstart", "/api/nodes", "/"):
            assert (await ask(town, path, method, **with_key(town)))[0] == 405


async def test_what_is_not_there_is_said() -> None:
    async with open_town() as town:
        status, told = await ask(town, "/api/jobs/team-a/other/losses/0", **with_key(town))
        assert (status, "there is no HATrainingJob other in namespace team-a" in told) == (404, True)
        assert "there is no HATrainingJob other" in (await ask(town, "/api/jobs/team-a/other", **with_key(town)))[1]
        assert (await ask(town, "/static/../command.py", **with_key(town)))[0] == 404
