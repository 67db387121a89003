"""The same questions for two servers: the one in memory, and a real one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.memory_api.client import MemoryKube
from e2e.memory_api.server import MemoryServer
from hajob.api.base import Json
from hajob.kube.client import ApiError, Kube, Transport, WatchEvent
from hajob.kube.credentials import from_kubeconfig
from hajob.kube.http import HttpKube
from tests.rigs.fake_clock import FakeClock

PATIENCE_SECONDS = 120.0
"""For the namespace controller, which looks again after eight seconds and is slowed by all namespaces that end."""

NO_SCHEDULER: dict[str, Any] = {"schedulerName": "nobody"}
"""Other tests on the same server have nodes, and its scheduler would bind pods of these to them."""


class Api:
    """One of the two.

    Attributes:
        kube: the product's port to it.
        namespace: for this test alone.
    """

    def __init__(self, kube: Kube, transport: Transport, namespace: str, clock: FakeClock | None = None) -> None:
        self.kube = kube
        self.namespace = namespace
        self._transport = transport
        self._clock = clock

    @property
    def core(self) -> str:
        """Path of the core group's objects in the namespace."""
        return f"/api/v1/namespaces/{self.namespace}"

    async def ask(
        self,
        method: str,
        path: str,
        body: Json | Sequence[Json] | None = None,
        *,
        content_type: str = "application/json",
        **query: str,
    ) -> Json:
        """A request, as it is."""
        return await self._transport.send_request(method, path, query=query, body=body, content_type=content_type)

    async def refusal(self, method: str, path: str, body: Any = None, **more: Any) -> ApiError:
        """A request that must be refused."""
        with pytest.raises(ApiError) as refused:
            await self.ask(method, path, body, **more)
        return refused.value

    async def until(self, what: Callable[[], Any]) -> Any:
        """Wait for what controllers do; refusals count as "not yet"."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                if found := await what():
                    return found
            except ApiError:
                pass
            assert time.monotonic() < end, "waited in vain"
            await (self._clock.advance(0.1) if self._clock else asyncio.sleep(0.1))

    async def during(self, what: Coroutine[Any, Any, Any], seconds: float) -> Any:
        """The result of something that takes so long."""
        task = asyncio.ensure_future(what)
        await (self._clock.advance(seconds) if self._clock else asyncio.wait({task}, timeout=PATIENCE_SECONDS))
        return await task

    async def gone(self, path: str) -> None:
        """Wait until an object is not there any more."""

        async def look() -> bool:
            try:
                await self.ask("GET", path)
            except ApiError as error:
                return error.status == 404
            return False

        await self.until(look)

    async def events(self, path: str, count: int, **query: str) -> list[WatchEvent]:
        """The first events of a watch, bookmarks left out."""
        found: list[WatchEvent] = []
        stream = self._transport.watch_path(path, {"watch": "1", **query})
        async with asyncio.timeout(PATIENCE_SECONDS), aclosing(stream) as events:  # type: ignore[type-var]
            async for event in events:
                found += [event] if event.type != "BOOKMARK" else []
                if len(found) == count:
                    break
        return found


@pytest.fixture(params=["stand-in", "real"])
async def api(request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    if request.param == "stand-in":
        clock = FakeClock()
        kube = MemoryKube(MemoryServer(clock, namespaces=("default", "tested")))
        for name in ("default", "tested"):
            account = f"/api/v1/namespaces/{name}/serviceaccounts"
            await kube.transport.send_request("POST", account, query={}, body={"metadata": {"name": "default"}})
        yield Api(kube, kube.transport, "tested", clock)
        return
    control_plane: ControlPlane = request.getfixturevalue("control_plane")
    namespace: str = request.getfixturevalue("namespace")
    request.getfixturevalue("crd")
    async with HttpKube(await from_kubeconfig(str(control_plane.kubeconfig))) as real:
        yield Api(real, real.transport, namespace)
