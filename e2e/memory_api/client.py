"""A client of the server in memory: the product's transport, with its time limits, through the faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from e2e.memory_api.faults import CloseWatch, Fault, Proceed
from e2e.memory_api.requests import Request
from e2e.memory_api.server import MemoryServer
from e2e.memory_api.streams import Line, Stream
from hajob.api.base import Json
from hajob.kube.client import (
    INACTIVITY_SECONDS,
    REQUEST_SECONDS,
    ApiError,
    Kube,
    WatchEvent,
    unreachable_error,
)

BOOKMARK_SECONDS: Final = 60.0
WATCH_SECONDS: Final = 1800.0
"""A server ends every watch after 30 to 60 minutes."""


class MemoryKube(Kube):
    """The operator's port over the server in memory.

    Attributes:
        server: whose objects it is about.
        transport: for requests that the port does not know.
    """

    def __init__(self, server: MemoryServer, client: str = "operator") -> None:
        self.server = server
        super().__init__(MemoryTransport(server, client))


class MemoryTransport:
    """The way of one client to the server."""

    def __init__(self, server: MemoryServer, client: str) -> None:
        self._server = server
        self._client = client
        self._under_way: set[asyncio.Future[Json]] = set()

    async def send_request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: Json | Sequence[Json] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """One request; without an answer within 10 s the client gives up, and what is under way goes on."""
        request = Request(method, path, dict(query), body, content_type, self._client)
        await asyncio.sleep(0)  # no answer of a network comes in the call that asks
        fault = self._server.faults.take(request)
        if fault is None:
            return self._server.handle(request)
        return await self._carried(fault, request, partial(self._server.handle, request), REQUEST_SECONDS)

    async def _carried(self, fault: Fault, request: Request, proceed: Proceed, seconds: float) -> Json:
        """Through a fault, for as long as the client waits; what is under way goes on without it."""
        task = asyncio.ensure_future(fault.carry(request, proceed))
        self._under_way.add(task)
        task.add_done_callback(self._arrived)
        timer = asyncio.ensure_future(self._server.clock.sleep(seconds))
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if not task.done():
            raise unreachable_error(request.method, request.path, "TimeoutError")
        return task.result()

    def _arrived(self, task: asyncio.Future[Json]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # the client may have given up

    async def watch_path(self, path: str, query: Mapping[str, str]) -> AsyncIterator[WatchEvent]:
        """The events of a watch: bookmarks every minute, an end after half an hour, an error after 70 s of silence."""
        request = Request("GET", path, dict(query), client=self._client)
        await asyncio.sleep(0)
        fault = self._server.faults.take(request)
        if fault is not None:
            await self._carried(fault, request, dict, INACTIVITY_SECONDS)
        if isinstance(fault, CloseWatch):
            return
        stream = self._server.watch(request)
        reader = _Reader(self._server, stream, float(query.get("timeoutSeconds") or WATCH_SECONDS))
        try:
            while (line := await reader.next()) is not None:
                if isinstance(line, ApiError):
                    raise line
                yield line
        finally:
            reader.close()
            self._server.closed(stream)


class _Reader:
    """Lines of a stream as a client's socket brings them."""

    def __init__(self, server: MemoryServer, stream: Stream, seconds: float) -> None:
        self._clock = server.clock
        self._stream = stream
        self._ends = self._clock.monotonic() + seconds
        self._heard = self._clock.monotonic()
        self._timer: asyncio.Future[None] | None = None

    async def next(self) -> Line:
        """The next line; None at the end."""
        while True:
            if not self._stream.lines.empty():
                self._heard = self._clock.monotonic()
                return self._stream.lines.get_nowait()
            getting = asyncio.ensure_future(self._stream.lines.get())
            waits: set[asyncio.Future[Any]] = {getting, self._armed()}
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not getting.done():
                    getting.cancel()
            if getting.done() and not getting.cancelled():
                self._heard = self._clock.monotonic()
                return getting.result()
            if (ended := self._timed_out()) is not None:
                return ended[0]

    def _armed(self) -> asyncio.Future[None]:
        """A timer that fires when something may be due; one at a time."""
        if self._timer is None or self._timer.done():
            now = self._clock.monotonic()
            due = min(self._heard + (INACTIVITY_SECONDS if self._stream.silent else BOOKMARK_SECONDS), self._ends)
            self._timer = asyncio.ensure_future(self._clock.sleep(max(due - now, 0.001)))
        return self._timer

    def _timed_out(self) -> tuple[Line] | None:
        """What time alone brings: a bookmark, the server's end, or an error after silence."""
        now = self._clock.monotonic()
        if self._stream.silent:
            if now - self._heard >= INACTIVITY_SECONDS:
                return (unreachable_error("GET", "watch", "SocketTimeoutError"),)
        elif now >= self._ends:
            return (None,)
        elif now - self._heard >= BOOKMARK_SECONDS:
            self._stream.bookmark()
        return None

    def close(self) -> None:
        """The client hangs up."""
        if self._timer is not None:
            self._timer.cancel()
