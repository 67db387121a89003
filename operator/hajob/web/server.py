"""The web server: static files, and each view as JSON that is sent again whenever it has changed.

It answers GET only, and POST of a login where people log in. Who may ask is decided by a `Door`: the local page has one
person, whose browser holds a key; the page of a team has as many as log in, each with a cluster of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import orjson
from aiohttp import web

from hajob.api.base import Json
from hajob.cli.cluster import ClusterError
from hajob.clock import Clock
from hajob.domain.errors import HajobInputError
from hajob.web.jobs import list_of_jobs
from hajob.web.language import in_language_of_page
from hajob.web.live import LiveCluster
from hajob.web.nodes import list_of_nodes
from hajob.web.one_job import copies_of_job, loss_of_node, whole_job
from hajob.web.responses import HEADERS, html_response, read_static_files

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


class Door(Protocol):
    """Who may come in, and as whom."""

    async def cluster_of(self, request: web.Request) -> LiveCluster:
        """Return the cluster of whoever asks; `web.HTTPException`: nobody who may."""

    def add_routes_of_door(self, router: web.UrlDispatcher) -> None:
        """Add pages of its own."""

    def answer_first_visit(self, request: web.Request, page: web.Response) -> web.Response:
        """Return what somebody gets who opens the page; `web.HTTPException`: nothing."""


def build_application(door: Door, clock: Clock) -> web.Application:
    """Build the server's application."""
    files = read_static_files()
    page = _Pages(door, clock, files.pop("index.html"))
    application = web.Application(middlewares=[_refuse_foreign_pages], handler_args={"max_line_size": 16_384})
    router = application.router
    router.add_get("/", page.open_page)
    for name, content in files.items():
        router.add_get(f"/static/{name}", _StaticFile(name, content).answer_request)
    router.add_get("/api/jobs", page.stream_jobs)
    router.add_get("/api/jobs/{namespace}/{name}", page.stream_job)
    router.add_get("/api/jobs/{namespace}/{name}/copies", page.answer_copies)
    router.add_get("/api/jobs/{namespace}/{name}/losses/{node_rank:[0-9]+}", page.answer_loss)
    router.add_get("/api/nodes", page.stream_nodes)
    door.add_routes_of_door(router)
    return application


class _Pages:
    """The views of whoever asks."""

    def __init__(self, door: Door, clock: Clock, index: bytes) -> None:
        self._door, self._clock, self._index = door, clock, index

    async def open_page(self, request: web.Request) -> web.Response:
        """Answer with the page itself."""
        return self._door.answer_first_visit(request, html_response(self._index))

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
        return _json_response(lambda: copies_of_job(cluster.objects, namespace, name), request)

    async def answer_loss(self, request: web.Request) -> web.Response:
        """Answer what a node's loss would lead to."""
        cluster = await self._door.cluster_of(request)
        await cluster.watch_nodes()
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        node_rank, now_ms = int(request.match_info["node_rank"]), self._clock.now_milliseconds()
        return _json_response(
            lambda: loss_of_node(cluster.objects, cluster.scope.namespaces, (namespace, name), node_rank, now_ms),
            request,
        )

    async def _stream_view(
        self, request: web.Request, cluster: LiveCluster, view: View, turn_seconds: float = _TURN_SECONDS
    ) -> web.StreamResponse:
        """Send a view as server-sent events, again whenever it has changed."""
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        await cluster.wait_for_answers()
        language, sent = request.query.get("language", ""), b""
        cluster.streams += 1
        try:
            while not cluster.is_over:
                version = cluster.version
                made = orjson.dumps(in_language_of_page(_with_reservations(cluster, view), language))
                # A comment is no event: the page only learns that the stream lives.
                await response.write(b": alive\n\n" if made == sent else b"data: " + made + b"\n\n")
                sent = made
                await self._clock.sleep(turn_seconds)
                await cluster.wait_for_change(version, ALIVE_SECONDS)
        finally:
            cluster.streams -= 1
        return response


def _with_reservations(cluster: LiveCluster, view: View) -> Json:
    """Return a view, and what is to be known of it: what could not be read, and whether the server still answers."""
    try:
        made = view()
    except ClusterError as problem:
        made = {"problem": str(problem)}
    heard: Json = {"scope": cluster.scope.namespace, "silentSeconds": cluster.seconds_without_answer()}
    return {**made, **heard, "unheard": sorted(set(cluster.resources_not_heard()))}


def _json_response(view: View, request: web.Request) -> web.Response:
    try:
        made, status = view(), 200
    except (ClusterError, HajobInputError) as problem:
        made, status = {"problem": str(problem)}, 404
    told = orjson.dumps(in_language_of_page(made, request.query.get("language", "")))
    return web.Response(status=status, body=told, headers=HEADERS, content_type="application/json")


class _StaticFile:
    """One file of the bundle; it holds nothing of a cluster, so anybody may have it."""

    def __init__(self, name: str, content: bytes) -> None:
        self._content = content
        self._type = _TYPES.get(f".{name.rpartition('.')[2]}", "text/plain")
        # A file changes only with the version of the plugin.
        self._tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'

    async def answer_request(self, request: web.Request) -> web.Response:
        """Answer with the file, or that the browser's own is still good."""
        headers = {**HEADERS, "Cache-Control": "no-cache", "ETag": self._tag}
        if request.headers.get("If-None-Match") == self._tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=self._content, headers=headers, content_type=self._type, charset="utf-8")


@web.middleware
async def _refuse_foreign_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what another page's script asks, and give refusals the same headers as everything else."""
    origin = request.headers.get("Origin", "")
    # Browsers from before Sec-Fetch-Site name the page that asks, where it matters.
    if origin and origin.partition("://")[2] != request.headers.get("Host"):
        return web.Response(status=403, text="asked by another page\n", headers=HEADERS)
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
