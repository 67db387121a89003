"""The Kubernetes API as a port, and its implementation as requests over a transport.

`Kube` is everything that the operator uses of a cluster. Resources are named by their plural, as in RBAC rules. `Kube`
turns each call into HTTP requests; a `Transport` carries these: `hajob.kube.http` to a real server, an
in-memory server in tests. Every failure is an `ApiError`, network failures too, because callers treat "no answer" as
one more answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.metrics import WRITES

API_PATHS: Final[Mapping[str, str]] = {
    "configmaps": "/api/v1",
    "customresourcedefinitions": "/apis/apiextensions.k8s.io/v1",
    "events": "/api/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "namespaces": "/api/v1",
    "nodes": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "pods": "/api/v1",
    "resourceflavors": f"/apis/{names.KUEUE_API_VERSION}",
    "resourcequotas": "/api/v1",
    "secrets": "/api/v1",
    "tokenreviews": "/apis/authentication.k8s.io/v1",
    "workloadpriorityclasses": f"/apis/{names.KUEUE_API_VERSION}",
    "workloads": f"/apis/{names.KUEUE_API_VERSION}",
    names.PLURAL: f"/apis/{names.API_VERSION}",
    names.QUARANTINES: f"/apis/{names.API_VERSION}",
    names.POD_GROUPS: f"/apis/{names.VOLCANO_API_VERSION}",
    names.VOLCANO_QUEUES: f"/apis/{names.VOLCANO_API_VERSION}",
}

UNREACHABLE: Final = "Unreachable"
SILENT: Final = "Silent"
"""The reason of an `ApiError` of a watch that was open and on which nothing was heard."""
REQUEST_SECONDS: Final = 10.0
"""A request without an answer for so long has failed."""
INACTIVITY_SECONDS: Final = 70.0
"""A watch on which nothing is heard for so long has failed; the server sends a bookmark every minute."""
NO_STREAMS: Final = frozenset({400, 422})
"""Answers of a server that cannot stream lists: by itself Kubernetes 1.32, and 1.34 and later can."""
ALREADY_EXISTS: Final = "AlreadyExists"
"""The reason with which a server refuses to create what is there: an earlier try, or somebody else, was quicker."""
END_OF_LIST: Final = "k8s.io/initial-events-end"
PAGE_SIZE: Final = 100
"""Objects of a list that are in memory at a time: a hundred pods, decoded, take 10 MB."""


class ApiError(Exception):
    """A refusal by the API server, or no answer.

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
    def may_pass(self) -> bool:
        """Whether the same request may succeed later: no answer, too many requests, a server error."""
        return self.status in {0, 401, 408, 429} or self.status >= 500


class PatchKind(StrEnum):
    """The format of a patch, by its content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list, and the version from which a watch can continue after the last part."""

    items: Sequence[Json]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and the object."""

    type: str
    object: Json


class Transport(Protocol):
    """The carrier of requests to an API server."""

    async def send_request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: Json | Sequence[Json] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send one request and return its answer; `ApiError` for a refusal, and for no answer within 10 s."""

    def watch_path(self, path: str, query: Mapping[str, str]) -> AsyncIterator[WatchEvent]:
        """Yield the events of a watch; `ApiError` when nothing arrives for 70 s."""


def object_path(resource: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the path of a collection, an object, or a subresource.

    Raises:
        KeyError: the resource is not in `API_PATHS`.
    """
    parts = [API_PATHS[resource]]
    if namespace:
        parts += ["namespaces", namespace]
    parts.append(resource)
    return "/".join([*parts, *filter(None, (name, subresource))])


class Kube:
    """The operator's client of a cluster, over a transport. Every method raises `ApiError`."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def get_object(self, resource: str, namespace: str, name: str) -> Json:
        """Return one object."""
        return await self.transport.send_request("GET", object_path(resource, namespace, name), query={})

    async def find_object(self, resource: str, namespace: str, name: str) -> Json | None:
        """Return an object; None where there is none."""
        try:
            return await self.get_object(resource, namespace, name)
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    async def list_pages(
        self, resource: str, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Page]:
        """Yield a list in parts; an empty namespace means all of them."""
        query = {"limit": str(PAGE_SIZE), **_selector_query(label_selector)}
        if field_selector:
            query["fieldSelector"] = field_selector
        while True:
            answer = await self.transport.send_request("GET", object_path(resource, namespace), query=query)
            metadata = answer.get("metadata") or {}
            yield Page(answer.get("items") or [], str(metadata.get("resourceVersion", "")))
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

    def watch_objects(
        self,
        resource: str,
        namespace: str = "",
        label_selector: str = "",
        resource_version: str = "",
        *,
        with_list: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        """Yield the changes after a version, until the server ends the watch; `ApiError` when nothing arrives for 70 s.

        Args:
            resource: its plural.
            namespace: empty for all.
            label_selector: empty for all.
            resource_version: to go on from.
            with_list: begin with all existing objects, ended by a bookmark that `is_end_of_list` recognizes
                (Kubernetes calls it a streaming list). A server that cannot do that answers with one of `NO_STREAMS`.
        """
        query = {"watch": "1", "allowWatchBookmarks": "true", **_selector_query(label_selector)}
        if with_list:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        elif resource_version:
            query["resourceVersion"] = resource_version
        return self.transport.watch_path(object_path(resource, namespace), query)

    async def create_object(self, resource: str, namespace: str, body: Json, *, dry_run: bool = False) -> Json:
        """Create an object; a dry run only asks whether it would be accepted, with every field that is written."""
        path = object_path(resource, namespace)
        if dry_run:
            query = {"dryRun": "All", "fieldValidation": "Strict"}
            return await self.transport.send_request("POST", path, query=query, body=body)
        return await self.send_write("POST", resource, path, body)

    async def replace_object(self, resource: str, namespace: str, body: Json) -> Json:
        """Replace an object; fails with 409 if its resourceVersion is no longer the newest."""
        path = object_path(resource, namespace, body["metadata"]["name"])
        return await self.send_write("PUT", resource, path, body)

    async def patch_object(
        self,
        resource: str,
        namespace: str,
        name: str,
        body: Json | Sequence[Json],
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
    ) -> Json:
        """Patch an object; `JSON` is a list of operations."""
        path = object_path(resource, namespace, name, subresource)
        return await self.send_write(
            "PATCH", resource, path, body, query={"fieldManager": names.OPERATOR_NAME}, content_type=kind
        )

    async def delete_object(
        self, resource: str, namespace: str, name: str, *, uid: str = "", grace_seconds: int | None = None
    ) -> None:
        """Delete an object; 409 if the object of that name has another UID."""
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        await self.send_write("DELETE", resource, object_path(resource, namespace, name), options)

    async def pod_of_token(self, token: str, audience: str) -> str | None:
        """Return the UID of the pod that owns the token; None if it is not valid for that audience, or no pod's."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        }
        answer = await self.transport.send_request("POST", object_path("tokenreviews"), query={}, body=body)
        status = answer.get("status") or {}
        if not status.get("authenticated") or audience not in (status.get("audiences") or []):
            return None
        found = ((status.get("user") or {}).get("extra") or {}).get("authentication.kubernetes.io/pod-uid")
        return str(found[0]) if isinstance(found, list) and found else None

    async def send_write(
        self,
        method: str,
        resource: str,
        path: str,
        body: Json | Sequence[Json],
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send a counted, changing request. Wrappers between operator and API override this."""
        WRITES.labels(method, resource).inc()
        return await self.transport.send_request(method, path, query=query or {}, body=body, content_type=content_type)


def is_end_of_list(event: WatchEvent) -> bool:
    """Return whether a watch with a list has sent all objects that existed when it began."""
    if event.type != "BOOKMARK":
        return False
    return (event.object["metadata"].get("annotations") or {}).get(END_OF_LIST) == "true"


def error_of_refusal(code: int, status: object, reason: str = "") -> ApiError:
    """Build the error for a refusal; `status` is its body, `reason` the fallback."""
    known: Json = status if isinstance(status, dict) else {}
    details = known.get("details")
    return ApiError(
        code,
        str(known.get("reason") or reason),
        str(known.get("message") or ""),
        details if isinstance(details, dict) else None,
    )


def unreachable_error(method: str, path: str, problem: str) -> ApiError:
    """Build the error for no answer."""
    return ApiError(0, UNREACHABLE, f"{method} {path}: {problem}")


def silent_watch_error(path: str) -> ApiError:
    """Build the error for a watch on which nothing was heard."""
    return ApiError(0, SILENT, f"GET {path}: neither an event nor a bookmark for {INACTIVITY_SECONDS:.0f} s")


def _selector_query(label_selector: str) -> dict[str, str]:
    return {"labelSelector": label_selector} if label_selector else {}
