"""The web server: static files, and each view as JSON that is sent again whenever it has changed.

It answers GET only. Who may ask is decided by the door (`local_door`).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Final

import orjson
from aiohttp import web

from hajob.api.base import Json
from hajob.cli.cluster import ClusterError
from hajob.clock import Clock
from hajob.domain.errors import HajobInputError
from hajob.web.jobs import list_of_jobs
from hajob.web.live import LiveCluster
from hajob.web.local_door import LocalDoor
from hajob.web.nodes import list_of_nodes
from hajob.web.one_job import copies_of_job, loss_of_node, whole_job

ALIVE_SECONDS: Final = 15.0
"""Between two signs of life on a stream: a browser that has gone is noticed, and so is a server that has."""
_TURN_SECONDS: Final = 0.25
"""Changes within this time are sent as one: a recovery changes a dozen objects at once."""
_TURN_OF_NODES_SECONDS: Final = 2.0
"""Every node renews its Lease every ten seconds; to read all of them takes a tenth of a second for a thousand."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
View = Callable[[], Json]

_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}


def build_application(door: LocalDoor, clock: Clock) -> web.Application:
    """Build the server's application."""
    page = _Pages(door, clock)
    application = web.Application(middlewares=[_guard], handler_args={"max_line_size": 16_384})
    router = application.router
    router.add_get("/", page.open_page)
    for name, content in read_static_files().items():
        if name != "index.html":
            router.add_get(f"/static/{name}", _StaticFile(name, content).answer)
    router.add_get("/api/jobs", page.stream_jobs)
    router.add_get("/api/jobs/{namespace}/{name}", page.stream_job)
    router.add_get("/api/jobs/{namespace}/{name}/copies", page.answer_copies)
    router.add_get("/api/jobs/{namespace}/{name}/losses/{node_rank:[0-9]+}", page.answer_loss)
    router.add_get("/api/nodes", page.stream_nodes)
    return application


class _Pages:
    """The views of whoever asks."""

    def __init__(self, door: LocalDoor, clock: Clock) -> None:
        self._door, self._clock = door, clock
        self._index = read_static_files()["index.html"]

    async def open_page(self, request: web.Request) -> web.Response:
        """Answer with the page itself."""
        return self._door.welcome(request, html_response(self._index))

    async def stream_jobs(self, request: web.Request) -> web.StreamResponse:
        """Send the list of jobs."""
        cluster = await self._door.cluster_of(request)
        namespace = cluster.scope.namespace
        return await self._stream_view(
            request, cluster, lambda: list_of_jobs(cluster.objects, namespace, self._clock.now_milliseconds())
        )

    async def stream_job(self, request: web.Request) -> web.StreamResponse:
        """Send one job."""
        cluster = await self._door.cluster_of(request)
        namespace, name = request.match_info["namespace"], request.match_info["name"]

        def view() -> Json:
            return whole_job(cluster.objects, cluster.steps, namespace, name, self._clock.now_milliseconds())

        return await self._stream_view(request, cluster, view)

    async def stream_nodes(self, request: web.Request) -> web.StreamResponse:
        """Send the list of nodes."""
        cluster = await self._door.cluster_of(request)
        await cluster.watch_nodes()
        scope = cluster.scope

        def view() -> Json:
            return list_of_nodes(cluster.objects, scope.resource, scope.namespaces, self._clock.now_milliseconds())

        return await self._stream_view(request, cluster, view, _TURN_OF_NODES_SECONDS)

    async def answer_copies(self, request: web.Request) -> web.Response:
        """Answer which ranks hold the same."""
        cluster = await self._door.cluster_of(request)
        await cluster.wait_for_answers()
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        return _json_response(lambda: copies_of_job(cluster.objects, namespace, name))

    async def answer_loss(self, request: web.Request) -> web.Response:
        """Answer what a node's loss would lead to."""
        cluster = await self._door.cluster_of(request)
        await cluster.watch_nodes()
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        node_rank, now_ms = int(request.match_info["node_rank"]), self._clock.now_milliseconds()
        return _json_response(
            lambda: loss_of_node(cluster.objects, cluster.scope.namespaces, (namespace, name), node_rank, now_ms)
        )

    async def _stream_view(
        self, request: web.Request, cluster: LiveCluster, view: View, turn_seconds: float = _TURN_SECONDS
    ) -> web.StreamResponse:
        """Send a view as server-sent events, again whenever it has changed."""
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        await cluster.wait_for_answers()
        sent = b""
        while True:
            version = cluster.version
            made = orjson.dumps(_with_reservations(cluster, view))
            # A comment is no event: the page only learns that the stream lives.
            await response.write(b": alive\n\n" if made == sent else b"data: " + made + b"\n\n")
            sent = made
            await self._clock.sleep(turn_seconds)
            await cluster.wait_for_change(version, ALIVE_SECONDS)


def _with_reservations(cluster: LiveCluster, view: View) -> Json:
    """Return a view, and what is to be known of it: what could not be read, and whether the server still answers."""
    try:
        made = view()
    except ClusterError as problem:
        made = {"problem": str(problem)}
    heard: Json = {"scope": cluster.scope.namespace, "silentSeconds": cluster.seconds_without_answer()}
    return {**made, **heard, "unheard": sorted(set(cluster.unheard()))}


def _json_response(view: View) -> web.Response:
    try:
        return web.Response(body=orjson.dumps(view()), headers=HEADERS, content_type="application/json")
    except (ClusterError, HajobInputError) as problem:
        told = orjson.dumps({"problem": str(problem)})
        return web.Response(status=404, body=told, headers=HEADERS, content_type="application/json")


# ------------------------------------------------------------------------------------------------- what is sent

_IMPORT_MAP: Final = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)


def read_static_files() -> dict[str, bytes]:
    """Return the bundle: what is below `static`, by path."""
    found: dict[str, bytes] = {}
    todo = [("", files("hajob.web").joinpath("static"))]
    while todo:
        path, at = todo.pop()
        for one in at.iterdir():
            if one.is_dir():
                todo.append((f"{path}{one.name}/", one))
            else:
                found[path + one.name] = one.read_bytes()
    return found


def content_policy(index: bytes) -> str:
    """Return the page's Content-Security-Policy: own files only, and the one script that stands in the page itself.

    That script is the import map, which no browser loads from a file; it is allowed by its hash.
    """
    hashes = [base64.b64encode(hashlib.sha256(one).digest()).decode() for one in _IMPORT_MAP.findall(index)]
    scripts = " ".join(["'self'", *(f"'sha256-{one}'" for one in hashes)])
    parts = ["default-src 'none'", f"script-src {scripts}", "style-src 'self'", "connect-src 'self'", "img-src 'self'"]
    return "; ".join([*parts, "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'"])


HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every answer: what it holds is for the one who asked."""


def html_response(content: bytes, status: int = 200) -> web.Response:
    """Return a page under its policy."""
    headers = {**HEADERS, "Content-Security-Policy": content_policy(content)}
    return web.Response(body=content, status=status, headers=headers, content_type="text/html", charset="utf-8")


class _StaticFile:
    """One file of the bundle; it holds nothing of a cluster, so anybody may have it."""

    def __init__(self, name: str, content: bytes) -> None:
        self._content = content
        self._type = _TYPES.get(f".{name.rpartition('.')[2]}", "text/plain")
        # A file changes only with the version of the plugin.
        self._tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'

    async def answer(self, request: web.Request) -> web.Response:
        """Answer with the file, or that the browser's own is still good."""
        headers = {**HEADERS, "Cache-Control": "no-cache", "ETag": self._tag}
        if request.headers.get("If-None-Match") == self._tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=self._content, headers=headers, content_type=self._type, charset="utf-8")


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what another page's script asks, and give refusals the same headers as everything else."""
    site = request.headers.get("Sec-Fetch-Site", "none")
    # A link in a mail may open the page; a foreign page may neither read it nor post to it.
    navigates = request.headers.get("Sec-Fetch-Mode") == "navigate" and request.method == "GET" and request.path == "/"
    if site not in {"none", "same-origin"} and not navigates:
        return web.Response(status=403, text="asked by another page\n", headers=HEADERS)
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        refusal.headers.update(HEADERS)
        raise
