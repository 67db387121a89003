"""A node's connection to the API server.

Written on aiohttp and orjson instead of a Kubernetes client: dozens of nodes share one process, each with a
certificate and connections of its own, and a pod must run a few milliseconds after it was bound. Every request and
every watch event passes a gate; a closed gate is a node that is switched off or cut off: it hears and says nothing,
and no connection is closed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import orjson

from e2e.nodes.config import JsonObject

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=30)
_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10)
_WATCH_SECONDS = 3000
CONNECTIONS = 5
"""Of a node, its watch included: a further one costs both sides a handshake just when a pod is to start."""


class NodeApiError(Exception):
    """The API server refused a request; ``status`` is the HTTP code (0: the server was not reached)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ApiGate:
    """Open, or closed: while it is closed whoever passes waits. ``closures`` counts how often it was closed."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.closures = 0

    @property
    def is_open(self) -> bool:
        """Whether one passes at once."""
        return self._open.is_set()

    def close(self) -> None:
        """Hold whoever comes from now on."""
        if self.is_open:
            self.closures += 1
        self._open.clear()

    def open(self) -> None:
        """Let everybody pass."""
        self._open.set()

    async def passed(self) -> None:
        """Wait until the gate is open."""
        await self._open.wait()


class NodeApiClient:
    """Requests and watches under one identity.

    Args:
        server: URL of the API server.
        context: trusts the cluster's authority and, for a node, holds its client certificate.
        gates: all must be open for anything to pass.
        token: a bearer token, for identities without a certificate.
    """

    def __init__(self, server: str, context: ssl.SSLContext, gates: tuple[ApiGate, ...], token: str = "") -> None:
        self._server = server.rstrip("/")
        self._context = context
        self._gates = gates
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,  # noqa: ANN401 - any JSON
        *,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """Make one request and return the decoded answer.

        Raises:
            NodeApiError: the server refused, or was not reached.
        """
        await self._passed()
        headers = {"Content-Type": content_type, **self._headers}
        data = None if body is None else orjson.dumps(body)
        try:
            async with self._connected().request(
                method, self._server + path, data=data, headers=headers, params=params, timeout=_REQUEST_TIMEOUT
            ) as answer:
                raw = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NodeApiError(0, f"{method} {path}: {error or type(error).__name__}") from error
        await self._passed()
        if answer.status >= 400:
            raise NodeApiError(answer.status, f"{method} {path}: {_message(raw)}")
        decoded: JsonObject = orjson.loads(raw)
        return decoded

    async def watch(self, path: str, params: Mapping[str, str], version: str) -> AsyncIterator[JsonObject]:
        """Yield events after resource version ``version`` until the server ends the watch.

        Raises:
            NodeApiError: the watch could not be started, broke or has expired (410).
        """
        await self._passed()
        query = {**params, "watch": "1", "resourceVersion": version, "timeoutSeconds": str(_WATCH_SECONDS)}
        try:
            async with self._connected().get(
                self._server + path, params=query, headers=self._headers, timeout=_WATCH_TIMEOUT
            ) as answer:
                if answer.status >= 400:
                    raise NodeApiError(answer.status, f"watch {path}: {_message(await answer.read())}")
                async for line in _lines(answer.content):
                    event: JsonObject = orjson.loads(line)
                    await self._passed()
                    if event["type"] == "ERROR":
                        raise NodeApiError(event["object"].get("code", 500), event["object"].get("message", ""))
                    yield event
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NodeApiError(0, f"watch {path}: {error or type(error).__name__}") from error

    async def close(self) -> None:
        """Drop every connection; the next request makes new ones."""
        session, self._session = self._session, None
        if session:
            await session.close()

    async def _passed(self) -> None:
        for gate in self._gates:
            await gate.passed()

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._context, keepalive_timeout=300, limit=CONNECTIONS)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False)
        return self._session


async def follow(client: NodeApiClient, path: str, params: Mapping[str, str]) -> AsyncIterator[JsonObject]:
    """List, then watch, for ever: an event ``{"type": "SYNC", "items": […]}`` for each list, then the server's events.

    Failures are waited out; after each one comes a new list.
    """
    pause = 0.05
    while True:
        try:
            listed = await client.request("GET", path, params=params)
            yield {"type": "SYNC", "items": listed.get("items") or []}
            pause = 0.05
            version = listed["metadata"]["resourceVersion"]
            while True:
                async for event in client.watch(path, {**params, "allowWatchBookmarks": "true"}, version):
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        yield event
        except NodeApiError:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length (the reader's own limit is smaller than a pod can be)."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def _message(raw: bytes) -> str:
    try:
        return str(orjson.loads(raw).get("message", ""))
    except (orjson.JSONDecodeError, AttributeError):
        return raw[:200].decode(errors="replace")
