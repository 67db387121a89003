"""Connections to the API server: what waits for one, and what must not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from hajob.kube import http as http_kube
from hajob.kube.credentials import ApiCredentials
from hajob.kube.http import CONNECTIONS, HttpKube


class SlowServer:
    """Answers no creation of a pod until it is told to, and everything else at once."""

    def __init__(self) -> None:
        self.creations = 0
        self.free = asyncio.Event()
        self.full = asyncio.Event()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            self.creations += 1
            if self.creations == CONNECTIONS:
                self.full.set()
            await self.free.wait()
        if "watch" in request.query:
            return web.Response(text='{"type": "ADDED", "object": {}}\n')
        return web.json_response({"metadata": {"name": "made"}})


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[SlowServer, HttpKube]]:
    monkeypatch.setattr(http_kube, "CONNECT_SECONDS", 90.0)  # a busy machine may not run this process for seconds
    made, app = SlowServer(), web.Application()
    app.router.add_route("*", "/{path:.*}", made.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    async with HttpKube(ApiCredentials(f"http://{host}:{port}")) as kube:
        yield made, kube
    made.free.set()
    await runner.cleanup()


async def test_leases_and_watches_wait_for_no_other_request(server: tuple[SlowServer, HttpKube]) -> None:
    slow, kube = server
    pods = [asyncio.create_task(kube.create_object("pods", "default", {})) for _ in range(2 * CONNECTIONS)]
    async with asyncio.timeout(90):
        await slow.full.wait()
        lease = await kube.get_object("leases", "default", "hajob-operator")
        await kube.replace_object("leases", "default", lease)
        assert [event.type async for event in kube.watch_objects("pods")] == ["ADDED"]
        assert (slow.creations, slow.free.is_set()) == (CONNECTIONS, False)
        slow.free.set()
        await asyncio.gather(*pods)
    assert slow.creations == 2 * CONNECTIONS
