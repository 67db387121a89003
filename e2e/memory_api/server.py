"""The server: what each verb does. It answers at once; waiting and faults are its clients' (e2e.memory_api.client)."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import orjson

from e2e.memory_api import errors, metadata
from e2e.memory_api.controllers import Controllers
from e2e.memory_api.eviction import evict
from e2e.memory_api.faults import Faults
from e2e.memory_api.history import History
from e2e.memory_api.kinds import (
    broken_rules,
    completed,
    forbidden_changes,
    problems,
    readable,
    unknown_fields,
)
from e2e.memory_api.patches import merged, operated
from e2e.memory_api.pods import grace_seconds
from e2e.memory_api.quota import admit
from e2e.memory_api.requests import Request
from e2e.memory_api.resources import NAMESPACES, PODS, QUOTAS, Resource, Target, target
from e2e.memory_api.selectors import selects
from e2e.memory_api.streams import Stream
from e2e.memory_api.tokens import Tokens
from hajob.api.base import Json
from hajob.clock import Clock
from hajob.kube.client import ApiError, PatchKind

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
_SUCCESS: Final[Json] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
_CONTINUE_TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class MemoryServer:
    """A Kubernetes API server without a network.

    Args:
        clock: of timestamps, controllers and clients.
        namespaces: that exist from the beginning.
        controller_seconds: how long controllers (garbage collection, quota, budgets, namespaces) take to see a change.
        page_limit: a list's page never holds more than so many objects, whatever is asked for.

    Attributes:
        streams_lists: its feature gate WatchList is on, as it is in Kubernetes 1.32, and from 1.34 on.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        namespaces: Sequence[str] = ("default", "hajob-system"),
        controller_seconds: float = 0.0,
        page_limit: int | None = None,
    ) -> None:
        self.clock = clock
        self.history = History()
        self.faults = Faults(clock)
        self.streams: list[Stream] = []
        self.log: list[Request] = []
        self.tokens = Tokens()
        self.streams_lists = True
        self._page_limit = page_limit
        self._made = 0
        self._controllers = Controllers(self, controller_seconds)
        for name in namespaces:
            self.handle(Request("POST", "/api/v1/namespaces", body={"metadata": {"name": name}}))

    @property
    def now(self) -> str:
        """The time as objects hold it, in seconds."""
        return metadata.seconds(self.clock.now_milliseconds())

    def handle(self, request: Request) -> Json:
        """Answer a request that is no watch.

        Raises:
            ApiError: it is refused.
        """
        self.log.append(request)
        where = target(request.path)
        body = orjson.loads(orjson.dumps(request.body)) if request.body is not None else {}
        if request.strict and (unknown := unknown_fields(where.resource, body)):
            raise errors.unknown_fields(where.resource.kind, where.resource.version, unknown)
        answer = self._answer(request, where, body)
        return cast("Json", orjson.loads(orjson.dumps(answer)))

    def _answer(self, request: Request, where: Target, body: Any) -> Json:  # noqa: ANN401 - any JSON
        match request.method:
            case "GET" if where.name:
                return self.find(where)
            case "GET":
                return self._list(request, where)
            case "POST":
                return self._post(request, where, body)
            case "PUT":
                return self._update(where, body, dry_run=request.dry_run)
            case "PATCH":
                return self._update(where, self._patched(where, body, request), dry_run=request.dry_run)
            case "DELETE":
                return self._delete(request, where, {**body, **request.query})
            case method:
                raise ApiError(405, "MethodNotAllowed", f"{method} is not supported")

    def watch(self, request: Request) -> Stream:
        """Open a watch.

        Raises:
            ApiError: it is refused.
        """
        self.log.append(request)
        where = target(request.path)
        query = request.query
        matches = selects(where.resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        with_list = query.get("sendInitialEvents") == "true"
        if with_list and not self.streams_lists:
            raise errors.no_streaming_lists()
        stream = Stream(self.history, where, matches, request.client)
        stream.open(query.get("resourceVersion", ""), with_list=with_list)
        self.streams = [*(each for each in self.streams if each is not stream), stream]
        return stream

    def find(self, where: Target) -> Json:
        """An object.

        Raises:
            ApiError: 404.
        """
        found = self.history.find(where.resource.plural, (where.namespace, where.name))
        if found is None:
            raise errors.not_found(where.resource.qualified, where.name)
        return found

    def _list(self, request: Request, where: Target) -> Json:
        query = request.query
        matches = selects(where.resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        version, after = self._continued(query.get("continue", ""))
        try:
            state = self.history.state(where.resource.plural, version)
        except ApiError as error:
            raise errors.expired(_CONTINUE_TOO_OLD) from error
        found = [
            body
            for body in state
            if (not where.namespace or body["metadata"]["namespace"] == where.namespace)
            and matches(body)
            and [body["metadata"].get("namespace", ""), body["metadata"]["name"]] > after
        ]
        limit = int(query.get("limit") or 0) or len(found)
        limit = min(limit, self._page_limit or limit)
        told: Json = {"resourceVersion": str(version)}
        if len(found) > limit:
            last = found[limit - 1]["metadata"]
            told["continue"] = _token(version, last.get("namespace", ""), last["name"])
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                told["remainingItemCount"] = len(found) - limit
        kind = f"{where.resource.kind}List"
        return {"kind": kind, "apiVersion": where.resource.api_version, "metadata": told, "items": found[:limit]}

    def _continued(self, token: str) -> tuple[int, list[str]]:
        """The version of a list and the last object that was shown of it."""
        if not token:
            return self.history.version, []
        try:
            known = orjson.loads(base64.urlsafe_b64decode(token + "=="))
            return int(known["rv"]), [known["namespace"], known["name"]]
        except (ValueError, KeyError, TypeError):
            raise errors.bad_request(f"invalid continue token: {token}") from None

    def _post(self, request: Request, where: Target, body: Json) -> Json:
        if where.resource.plural == "tokenreviews":
            return {**body, **self.tokens.review(body["spec"], self._is_alive)}
        if not where.name:
            return self._create(where, body, dry_run=request.dry_run)
        if where.subresource == "token":
            return self.tokens.issue(where, body["spec"])
        pod = self.find(where)
        if where.subresource == "eviction":
            marked = evict(self.history, pod, self.now, dry_run=request.dry_run)
            if not request.dry_run:
                self.delete(PODS, marked, (body.get("deleteOptions") or {}).get("gracePeriodSeconds"))
        elif where.subresource == "binding":
            self._bind(pod, body["target"]["name"])
        else:
            raise errors.no_such_path()
        return {**_SUCCESS, "code": 201}

    def _is_alive(self, namespace: str, pod_name: str, uid: str) -> bool:
        pod = self.history.find(PODS.plural, (namespace, pod_name))
        return pod is not None and pod["metadata"]["uid"] == uid

    def _create(self, where: Target, body: Json, *, dry_run: bool) -> Json:
        resource = where.resource
        new = readable(resource, body)
        self._made += 1
        meta = metadata.created(new.get("metadata") or {}, where.namespace, self.now, self._made)
        if resource.generation:
            meta["generation"] = 1
        new = completed(resource, {**new, "metadata": meta}, self.now)
        self._check_namespace(where, str(meta.get("name", "")))
        self._validate(resource, new, None)
        counted = self._charge(resource, new)
        if self.history.find(resource.plural, (where.namespace, meta["name"])) is not None:
            raise errors.already_exists(resource.qualified, meta["name"])
        if dry_run:
            return new
        for quota in counted:
            self.history.put(QUOTAS.plural, quota)
        stored = self.history.put(resource.plural, new)
        self._controllers.wake()
        return stored

    def _check_namespace(self, where: Target, name: str) -> None:
        if not where.resource.namespaced:
            return
        found = self.history.find(NAMESPACES.plural, ("", where.namespace))
        if found is None:
            raise errors.not_found(NAMESPACES.plural, where.namespace)
        if found["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {where.namespace} because it is being terminated"
            told = f"namespace {where.namespace} is being terminated"
            cause = errors.Cause("metadata.namespace", "NamespaceTerminating", told)
            raise errors.forbidden(where.resource.qualified, name, why, [cause])

    def _validate(self, resource: Resource, new: Json, old: Json | None) -> None:
        meta = new["metadata"]
        found = [*metadata.problems(meta, (old or {}).get("metadata")), *problems(resource, new)]
        if old is not None:
            found += forbidden_changes(resource, old, new)
        if found := found or broken_rules(resource, new, old):
            raise errors.invalid(resource.qualified_kind, str(meta.get("name", "")), found)

    def _charge(self, resource: Resource, body: Json) -> list[Json]:
        """The quotas with this object counted."""
        namespace = body["metadata"].get("namespace", "")
        quotas = [each for each in self.history.all(QUOTAS.plural) if each["metadata"]["namespace"] == namespace]
        return [counted for quota in quotas if (counted := admit(quota, resource, body)) is not None]

    def _patched(self, where: Target, body: Any, request: Request) -> Json:  # noqa: ANN401 - any JSON
        old = self.find(where)
        if request.content_type == PatchKind.JSON:
            new = operated(old, body)
            return {**new, "metadata": {**new["metadata"], "resourceVersion": ""}}
        if request.content_type == PatchKind.MERGE:
            new = cast("Json", merged(old, body))
            asked = body.get("metadata", {}).get("resourceVersion", "")
            return {**new, "metadata": {**new["metadata"], "resourceVersion": asked}}
        raise ApiError(415, "UnsupportedMediaType", f"patches of type {request.content_type} are not served here")

    def _update(self, where: Target, body: Json, *, dry_run: bool = False) -> Json:
        resource, old = where.resource, self.find(where)
        asked = body["metadata"].get("resourceVersion")
        if asked and asked != old["metadata"]["resourceVersion"]:
            raise errors.modified(resource.qualified, where.name)
        new = self._merged_parts(where, old, readable(resource, body))
        self._validate(resource, new, old)
        if _without_version(new) == _without_version(old):
            return old
        if resource.generation and _counted(new) != _counted(old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        return old if dry_run else self.store(resource, old, new)

    def _merged_parts(self, where: Target, old: Json, new: Json) -> Json:
        """Of an update only the part that its path is about."""
        resource = where.resource
        if where.subresource == "status":
            meta = old["metadata"] if resource.custom else metadata.updated(old["metadata"], new["metadata"])
            return {**old, "metadata": dict(meta), "status": new.get("status") or {}}
        if where.subresource:
            raise errors.no_such_path()
        meta = metadata.updated(old["metadata"], new["metadata"])
        kept = {key: old[key] for key in ("status",) if resource.status and key in old}
        dropped = {key for key in ("status",) if resource.status}
        return {**{key: value for key, value in new.items() if key not in dropped}, **kept, "metadata": meta}

    def store(self, resource: Resource, old: Json, new: Json) -> Json:
        """Store a changed object; one that is being deleted goes with its last finalizer."""
        self._controllers.wake()
        meta = new["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds"):
            if resource is NAMESPACES and new["spec"].get("finalizers"):
                return self.history.put(resource.plural, new)
            self.history.remove(resource.plural, old)
            return new
        return self.history.put(resource.plural, new)

    def _bind(self, pod: Json, node: str) -> None:
        name = pod["metadata"]["name"]
        if pod["spec"].get("schedulingGates"):
            raise errors.conflict("pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
        if taken := pod["spec"].get("nodeName"):
            raise errors.conflict("pods/binding", name, f'pod {name} is already assigned to node "{taken}"')
        self.history.put(PODS.plural, {**pod, "spec": {**pod["spec"], "nodeName": node}})

    def _delete(self, request: Request, where: Target, options: Json) -> Json:
        old = self.find(where)
        self._check_preconditions(where.resource, old, options.get("preconditions") or {})
        grace = options.get("gracePeriodSeconds")
        if request.dry_run:
            return old
        return self.delete(
            where.resource, old, None if grace is None else int(grace), str(options.get("propagationPolicy", ""))
        )

    def _check_preconditions(self, resource: Resource, old: Json, wanted: Json) -> None:
        meta = old["metadata"]
        uid, version = wanted.get("uid"), wanted.get("resourceVersion")
        kind = resource.kind
        if uid and uid != meta["uid"]:
            why = (
                f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']}). "
                "The object might have been deleted and then recreated"
            )
            raise errors.conflict(kind, meta["name"], why)
        if version and version != meta["resourceVersion"]:
            why = (
                f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
                f"({meta['resourceVersion']}). The object might have been modified"
            )
            raise errors.conflict(kind, meta["name"], why)

    def delete(self, resource: Resource, old: Json, grace: int | None = None, policy: str = "") -> Json:
        """Begin, hasten or complete a deletion."""
        self._controllers.wake()
        meta = dict(old["metadata"])
        seconds = grace_seconds(old, grace) if resource is PODS else 0
        finalizers = [each for each in meta.get("finalizers") or [] if each not in {FOREGROUND, ORPHAN}]
        finalizers += {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(policy, [])
        if not policy:
            finalizers = list(meta.get("finalizers") or [])
        ongoing = meta.get("deletionGracePeriodSeconds")
        if ongoing is not None and (seconds >= ongoing > 0 or (grace is None and ongoing > 0)):
            return old
        held = resource is NAMESPACES and bool(old["spec"].get("finalizers"))
        if not finalizers and not seconds and not held:
            self.history.remove(resource.plural, old)
            return old if resource is PODS else {**_SUCCESS, "details": {"name": meta["name"], "uid": meta["uid"]}}
        if ongoing == seconds and finalizers == (meta.get("finalizers") or []):
            return old
        meta |= {"deletionTimestamp": self._later(seconds)}
        if ongoing is None and "generation" in meta:
            meta["generation"] += 1
        if not held:
            meta["deletionGracePeriodSeconds"] = seconds
        if finalizers:
            meta["finalizers"] = finalizers
        status = {**(old.get("status") or {}), "phase": "Terminating"} if held else old.get("status")
        return self.history.put(resource.plural, _pruned({**old, "metadata": meta, "status": status}))

    def _later(self, seconds: int) -> str:
        return metadata.seconds(self.clock.now_milliseconds() + 1000 * seconds)

    def open_streams(self, resource: str = "", client: str = "") -> Iterator[Stream]:
        """The watches of a resource and a client; empty: of all."""
        for stream in list(self.streams):
            if resource in {"", stream.target.resource.plural} and client in {"", stream.client}:
                yield stream

    def closed(self, stream: Stream) -> None:
        """The client has hung up."""
        stream.silent = True
        stream.end()
        self.streams = [each for each in self.streams if each is not stream]


def _token(version: int, namespace: str, name: str) -> str:
    told = orjson.dumps({"rv": version, "namespace": namespace, "name": name})
    return base64.urlsafe_b64encode(told).decode().rstrip("=")


def _without_version(body: Json) -> Json:
    meta = {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
    return {**body, "metadata": meta}


def _counted(body: Json) -> Json:
    """What the generation counts changes of."""
    return {key: value for key, value in body.items() if key not in {"metadata", "status"}}


def _pruned(body: Json) -> Json:
    return {key: value for key, value in body.items() if value is not None}
