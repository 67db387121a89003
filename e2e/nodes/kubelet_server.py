"""The HTTPS endpoint of a node, which the API server asks for logs and hands ``kubectl exec`` through to.

It lets in who shows a certificate of the cluster's authority, as a kubelet set up with the API server's client
certificate does. ``kubectl attach`` and ``port-forward`` are not served.
"""

from __future__ import annotations

import errno
import logging
import ssl
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from e2e.nodes.api import ApiGate
from e2e.nodes.exec_server import serve_exec
from e2e.nodes.logs import read_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2e.nodes.config import JsonObject
    from e2e.nodes.container import LiveContainer

log = logging.getLogger(__name__)


class ServedPod(Protocol):
    """A pod as this endpoint sees it."""

    @property
    def pod(self) -> JsonObject:
        """The object."""

    @property
    def containers(self) -> Sequence[LiveContainer]:
        """Its containers."""


class ServedNode(Protocol):
    """The node whose endpoint this is."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def pods(self) -> Mapping[str, ServedPod]:
        """Its pods."""

    def find_pod(self, namespace: str, name: str) -> ServedPod | None:
        """One of them."""


class KubeletServer:
    """Serves one node's ``/containerLogs`` at its own address."""

    def __init__(self, address: str, port: int, context: ssl.SSLContext, power: ApiGate) -> None:
        self._address = address
        self.port = port
        self._context = context
        self._power = power
        self._node: ServedNode | None = None
        self._runner: web.AppRunner | None = None

    async def start(self, node: ServedNode) -> None:
        """Listen; on any port when the usual one is taken (the node's status says which)."""
        self._node = node
        app = web.Application(middlewares=[self._when_powered])
        app.router.add_get("/healthz", _healthz)
        app.router.add_get("/pods", self._pods)
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        app.router.add_get("/exec/{namespace}/{pod}/{container}", self._exec)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            await self._listen(self.port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not self.port:
                raise
            log.warning("%s: port %d is taken, logs are served at another one", node.name, self.port)
            await self._listen(0)

    async def _listen(self, port: int) -> None:
        assert self._runner is not None
        site = web.TCPSite(self._runner, self._address, port, ssl_context=self._context, shutdown_timeout=0.1)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening."""
        if self._runner:
            await self._runner.cleanup()

    @web.middleware
    async def _when_powered(self, request: web.Request, handler: web.Handler) -> web.StreamResponse:  # type: ignore[name-defined]
        await self._power.passed()
        response: web.StreamResponse = await handler(request)
        return response

    async def _pods(self, _: web.Request) -> web.Response:
        assert self._node is not None
        pods = [worker.pod for worker in self._node.pods.values()]
        return web.json_response({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods})

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        container = self._find(request)
        if container is None:
            return web.Response(status=404, text="no such container on this node\n")
        return await serve_exec(request, container)

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        container = self._find(request)
        if container is None:
            return web.Response(status=404, text="no such container on this node\n")
        previous = request.query.get("previous") == "true"
        number = container.record.restart_count - (1 if previous else 0)
        path = container.log.with_name(f"{number}.log")
        if not path.exists():
            name = container.record.name
            what = f"previous terminated container {name!r}" if previous else f"container {name!r}"
            return web.Response(status=400, text=f"{what} has no log: it has not started\n")
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        following = request.query.get("follow") == "true" and not previous
        pieces = read_log(
            path,
            tail=_number(request, "tailLines"),
            limit=_number(request, "limitBytes"),
            more=(lambda: container.alive) if following else None,
        )
        async for piece in pieces:
            await self._power.passed()
            await response.write(piece)
        await response.write_eof()
        return response

    def _find(self, request: web.Request) -> LiveContainer | None:
        assert self._node is not None
        where = request.match_info
        worker = self._node.find_pod(where["namespace"], where["pod"])
        containers = worker.containers if worker else []
        return next((one for one in containers if one.record.name == where["container"]), None)


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def _number(request: web.Request, name: str) -> int | None:
    text = request.query.get(name)
    return int(text) if text and text.isdigit() else None
