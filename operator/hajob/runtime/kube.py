"""The Kubernetes API as a port, and its implementation over raw JSON.

`Kube` is all that the operator asks of a cluster, so that tests and the simulated world can stand behind it. Resources
are named by their plural, as in RBAC rules. The implementation takes the `kubernetes` package's credentials but not
its models: decoding a pod into them costs 1.2 ms, reading it with orjson 0.04 ms. Every failure is an `ApiError`, that
of the network too, because callers treat "no answer" as one more answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Final, Protocol, Self

import aiohttp
import orjson

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.runtime.credentials import Credentials
from hajob.runtime.metrics import WRITES

API_PATHS: Final[Mapping[str, str]] = {
    "configmaps": "/api/v1",
    "events": "/apis/events.k8s.io/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "namespaces": "/api/v1",
    "nodes": "/api/v1",
    "pods": "/api/v1",
    "secrets": "/api/v1",
    "tokenreviews": "/apis/authentication.k8s.io/v1",
    names.PLURAL: f"/apis/{names.API_VERSION}",
}

UNREACHABLE: Final = "Unreachable"
REQUEST_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 3.0
CONNECTIONS: Final = 64
PAGE_SIZE: Final = 500
INACTIVITY_SECONDS: Final = 70.0


class ApiError(Exception):
    """The API server refused, or could not be reached.

    Attributes:
        status: HTTP status; 0 where there was no answer.
        reason: the API's word, such as `AlreadyExists`; `Unreachable` where there was no answer.
        message: the server's sentence.
        details: the server's `details`, with the causes of a refusal.
    """

    def __init__(self, status: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}" if status else f"{reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or {}

    @property
    def passes(self) -> bool:
        """Whether the same request may succeed later: no answer, too many requests, the server's own trouble."""
        return self.status in {0, 401, 408, 429} or self.status >= 500


class PatchKind(StrEnum):
    """How a patch is written, by its content type."""

    MERGE = "application/merge-patch+json"
    APPLY = "application/apply-patch+yaml"
    JSON = "application/json-patch+json"


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list, and the version from which a watch can go on after the last part."""

    items: Sequence[Json]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and the object."""

    type: str
    object: Json


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """Who a token belongs to, as the API server says."""

    user: str
    pod_name: str
    pod_uid: str


class Kube(Protocol):
    """What the operator asks of a cluster. Every method raises `ApiError`."""

    async def get(self, resource: str, namespace: str, name: str) -> Json:
        """One object."""

    def pages(self, resource: str, namespace: str = "", label_selector: str = "") -> AsyncIterator[Page]:
        """A list in parts; an empty namespace means all of them."""

    def watch(
        self, resource: str, namespace: str = "", label_selector: str = "", resource_version: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """What changes after a version, until the server ends it; `ApiError` when nothing is heard for 70 s."""

    async def create(self, resource: str, namespace: str, body: Json, *, dry_run: bool = False) -> Json:
        """Create an object; a dry run only asks whether it would be accepted."""

    async def replace(self, resource: str, namespace: str, body: Json) -> Json:
        """Put an object; its resourceVersion makes it fail with 409 where somebody else was faster."""

    async def patch(
        self,
        resource: str,
        namespace: str,
        name: str,
        body: Json | Sequence[Json],
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
    ) -> Json:
        """Change an object; `APPLY` takes over fields of other managers, `JSON` is a list of operations."""

    async def delete(
        self, resource: str, namespace: str, name: str, *, uid: str = "", grace_seconds: int | None = None
    ) -> None:
        """Delete an object; 409 where the object of that name has another UID."""

    async def token_review(self, token: str, audience: str) -> TokenIdentity | None:
        """Whose token it is; None where it is not valid for that audience."""


def user_agent() -> str:
    """`hajob-operator/<version>`; the audit log of a cluster is read by it."""
    try:
        return f"hajob-operator/{version('hajob')}"
    except PackageNotFoundError:
        return "hajob-operator/unknown"


def object_path(resource: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Path of a collection, an object, or a part of it.

    Raises:
        KeyError: the resource is none of `API_PATHS`.
    """
    parts = [API_PATHS[resource]]
    if namespace:
        parts += ["namespaces", namespace]
    parts.append(resource)
    return "/".join([*parts, *filter(None, (name, subresource))])


class HttpKube:
    """`Kube` over one pool of connections; use it as an async context manager."""

    def __init__(self, credentials: Credentials, *, agent: str = "") -> None:
        self._credentials = credentials
        self._agent = agent or user_agent()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._credentials.tls(), limit=CONNECTIONS)
        headers = {"User-Agent": self._agent, "Accept": "application/json"}
        # Proxies of the environment are not for the cluster's own API server: trust_env stays off.
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, read_bufsize=2**20)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, resource: str, namespace: str, name: str) -> Json:
        """One object."""
        return await self._request("GET", object_path(resource, namespace, name))

    async def pages(self, resource: str, namespace: str = "", label_selector: str = "") -> AsyncIterator[Page]:
        """A list in parts."""
        query = {"limit": str(PAGE_SIZE), **_selected(label_selector)}
        while True:
            answer = await self._request("GET", object_path(resource, namespace), query=query)
            metadata = answer.get("metadata") or {}
            yield Page(answer.get("items") or [], str(metadata.get("resourceVersion", "")))
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

    async def watch(
        self, resource: str, namespace: str = "", label_selector: str = "", resource_version: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """What changes after a version."""
        query = {"watch": "1", "allowWatchBookmarks": "true", **_selected(label_selector)}
        if resource_version:
            query["resourceVersion"] = resource_version
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=INACTIVITY_SECONDS)
        async with self._response("GET", object_path(resource, namespace), query, timeout=timeout) as response:
            rest = b""
            async for chunk in _chunks(response):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        event = orjson.loads(line)
                        yield WatchEvent(event["type"], event["object"])

    async def create(self, resource: str, namespace: str, body: Json, *, dry_run: bool = False) -> Json:
        """Create an object."""
        query = {"dryRun": "All"} if dry_run else {}
        return await self._request("POST", object_path(resource, namespace), body, query=query, resource=resource)

    async def replace(self, resource: str, namespace: str, body: Json) -> Json:
        """Put an object."""
        path = object_path(resource, namespace, body["metadata"]["name"])
        return await self._request("PUT", path, body, resource=resource)

    async def patch(
        self,
        resource: str,
        namespace: str,
        name: str,
        body: Json | Sequence[Json],
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
    ) -> Json:
        """Change an object."""
        applied = kind is PatchKind.APPLY
        query = {"fieldManager": names.OPERATOR_NAME, **({"force": "true"} if applied else {})}
        path = object_path(resource, namespace, name, subresource)
        return await self._request("PATCH", path, body, query=query, resource=resource, content_type=kind)

    async def delete(
        self, resource: str, namespace: str, name: str, *, uid: str = "", grace_seconds: int | None = None
    ) -> None:
        """Delete an object."""
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        await self._request("DELETE", object_path(resource, namespace, name), options, resource=resource)

    async def token_review(self, token: str, audience: str) -> TokenIdentity | None:
        """Whose token it is."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        }
        status = (await self._request("POST", object_path("tokenreviews"), body)).get("status") or {}
        if not status.get("authenticated") or audience not in (status.get("audiences") or []):
            return None
        user = status.get("user") or {}
        extra = user.get("extra") or {}
        return TokenIdentity(
            str(user.get("username", "")),
            _first(extra.get("authentication.kubernetes.io/pod-name")),
            _first(extra.get("authentication.kubernetes.io/pod-uid")),
        )

    async def _request(
        self,
        method: str,
        path: str,
        body: Json | Sequence[Json] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        resource: str = "",
        content_type: str = "application/json",
    ) -> Json:
        """One request and its answer; a write names its resource, so that it is counted."""
        if resource and "dryRun" not in (query or {}):
            WRITES.labels(method, resource).inc()
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
        async with self._response(method, path, query or {}, body, content_type, timeout=timeout) as response:
            try:
                answer: Json = orjson.loads(await response.read())
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                raise _unreachable(method, path, error) from error
            return answer

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | Sequence[Json] | None = None,
        content_type: str = "application/json",
        *,
        timeout: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response with a good status; anything else is an `ApiError`."""
        if self._session is None:
            raise RuntimeError("HttpKube is used outside its context: write `async with HttpKube(…) as kube`")
        headers = {**self._credentials.authorization(), "Content-Type": content_type}
        data = None if body is None else orjson.dumps(body)
        url = self._credentials.server + path
        try:
            response = await self._session.request(
                method, url, params=query, data=data, headers=headers, timeout=timeout
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(method, path, error) from error
        async with response:
            if response.status == 401:
                self._credentials.reload()
            if response.status >= 400:
                raise await _refusal(response)
            yield response


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The body as it comes; silence and breaks are `ApiError`s."""
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise _unreachable("GET", response.url.path, error) from error


async def _refusal(response: aiohttp.ClientResponse) -> ApiError:
    try:
        status = orjson.loads(await response.read())
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        status = {}
    if not isinstance(status, dict):
        status = {}
    return ApiError(
        response.status,
        str(status.get("reason") or response.reason or ""),
        str(status.get("message") or ""),
        status.get("details"),
    )


def _unreachable(method: str, path: str, error: BaseException) -> ApiError:
    if isinstance(error, asyncio.CancelledError):
        raise error
    return ApiError(0, UNREACHABLE, f"{method} {path}: {type(error).__name__} {error}".rstrip())


def _selected(label_selector: str) -> dict[str, str]:
    return {"labelSelector": label_selector} if label_selector else {}


def _first(values: object) -> str:
    return str(values[0]) if isinstance(values, list) and values else ""
