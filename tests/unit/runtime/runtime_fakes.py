"""A clock that moves only when told to, and an API server in memory, for tests of the runtime.

The API keeps what these tests need of the real one's rules: resource versions and conflicts, UID preconditions, merge
patches, watches that end in errors on command. It says what it is not: no schema, no defaults, no authentication.
"""

from __future__ import annotations

import asyncio
import copy
import heapq
import itertools
from collections.abc import AsyncIterator, Callable, Sequence

from hajob.api.base import Json
from hajob.runtime.kube import ApiError, Page, PatchKind, TokenIdentity, WatchEvent

START_MILLISECONDS = 1_795_255_200_000


class FakeClock:
    """Time stands still until `advance`; timers come in order. Wall clock and monotonic clock may move apart."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.wall_ahead = 0.0
        self._timers: list[tuple[float, int, Call]] = []
        self._count = itertools.count()

    def now_milliseconds(self) -> int:
        return START_MILLISECONDS + round((self.seconds + self.wall_ahead) * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: object) -> Call:
        timer = Call(call, arguments)
        heapq.heappush(self._timers, (self.seconds + seconds, next(self._count), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.Future()
        self.call_later(seconds, _wake, future)
        await future

    async def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due on the way."""
        end = self.seconds + seconds
        await settle()
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self.seconds = max(self.seconds, due)
            timer.come()
            await settle()
        self.seconds = end

    def freeze(self, seconds: float) -> None:
        """Let time pass while nothing runs, as for a process that is stopped."""
        self.seconds += seconds

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock; nothing else moves."""
        self.wall_ahead += seconds


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Call:
    """A timer of the fake clock."""

    def __init__(self, call: Callable[..., object], arguments: tuple[object, ...]) -> None:
        self._call: Callable[..., object] | None = call
        self._arguments = arguments

    @property
    def awaited(self) -> bool:
        """Whether it is still to come."""
        return self._call is not None

    def cancel(self) -> None:
        self._call = None

    def come(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call(*self._arguments)


async def settle() -> None:
    """Let every task run until it waits for something outside."""
    for _ in range(20):
        await asyncio.sleep(0)


def merged(target: Json, patch: Json) -> Json:
    """A merge patch as RFC 7386 says."""
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            old = result.get(name)
            result[name] = merged(old if isinstance(old, dict) else {}, value)
        else:
            result[name] = value
    return result


def operated(target: Json, patch: Sequence[Json]) -> Json:
    """A JSON patch as RFC 6902 says, as far as `test`, `add` and `remove` of members go."""
    result = copy.deepcopy(target)
    for operation in patch:
        *parents, last = operation["path"].strip("/").split("/")
        node = result
        for parent in parents:
            if parent not in node:
                raise ApiError(422, "Invalid", f"{operation['path']}: missing path")
            node = node[parent]
        if operation["op"] == "add":
            node[last] = copy.deepcopy(operation["value"])
        elif last not in node or (operation["op"] == "test" and node[last] != operation["value"]):
            raise ApiError(422, "Invalid", f"{operation['op']} {operation['path']} failed")
        elif operation["op"] == "remove":
            del node[last]
    return result


class FakeKube:
    """The part of an API server that the runtime's tests need."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Json] = {}
        self.writes: list[tuple[str, str, Json]] = []
        self.failures: list[ApiError] = []
        self.on_status: Callable[[Json, Json], None] = lambda _old, _new: None
        self.streams: list[asyncio.Queue[WatchEvent | ApiError | None]] = []
        self.lists = 0
        self._version = 100

    @property
    def version(self) -> str:
        """The resourceVersion that a list has now."""
        return str(self._version)

    def fail(self, *errors: ApiError) -> None:
        """The next requests fail like this."""
        self.failures += errors

    def put(self, resource: str, namespace: str, body: Json) -> Json:
        """Set an object, as somebody else would."""
        self._version += 1
        made = copy.deepcopy(body)
        made["metadata"] = {"uid": f"uid-{self._version}", "namespace": namespace, **made["metadata"]}
        made["metadata"]["resourceVersion"] = str(self._version)
        self.objects[resource, namespace, made["metadata"]["name"]] = made
        return copy.deepcopy(made)

    def send(self, type_: str, body: Json) -> None:
        """A line in the newest watch."""
        self.streams[-1].put_nowait(WatchEvent(type_, copy.deepcopy(body)))

    def break_watch(self, error: ApiError | None = None) -> None:
        """The newest watch ends, with an error or as a server ends it."""
        self.streams[-1].put_nowait(error)

    def _check(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    def _find(self, resource: str, namespace: str, name: str) -> Json:
        try:
            return self.objects[resource, namespace, name]
        except KeyError:
            raise ApiError(404, "NotFound", f"{resource} {name} not found") from None

    async def get(self, resource: str, namespace: str, name: str) -> Json:
        self._check()
        return copy.deepcopy(self._find(resource, namespace, name))

    async def pages(self, resource: str, namespace: str = "", label_selector: str = "") -> AsyncIterator[Page]:
        self.lists += 1
        self._check()
        found = [copy.deepcopy(body) for key, body in self.objects.items() if key[0] == resource]
        version = self.version
        for start in range(0, max(len(found), 1), 2):
            yield Page(found[start : start + 2], version)

    async def watch(
        self, resource: str, namespace: str = "", label_selector: str = "", resource_version: str = ""
    ) -> AsyncIterator[WatchEvent]:
        self._check()
        stream: asyncio.Queue[WatchEvent | ApiError | None] = asyncio.Queue()
        self.streams.append(stream)
        while (item := await stream.get()) is not None:
            if isinstance(item, ApiError):
                raise item
            yield item

    async def create(self, resource: str, namespace: str, body: Json, *, dry_run: bool = False) -> Json:
        self._check()
        if (resource, namespace, body["metadata"]["name"]) in self.objects:
            raise ApiError(409, "AlreadyExists", "it is there")
        if dry_run:
            return copy.deepcopy(body)
        self.writes.append(("create", resource, body))
        return self.put(resource, namespace, body)

    async def replace(self, resource: str, namespace: str, body: Json) -> Json:
        self._check()
        old = self._find(resource, namespace, body["metadata"]["name"])
        if old["metadata"]["resourceVersion"] != body["metadata"].get("resourceVersion"):
            raise ApiError(409, "Conflict", "the object has been modified")
        self.writes.append(("replace", resource, body))
        return self.put(resource, namespace, body)

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
        self._check()
        old = self._find(resource, namespace, name)
        new = merged(old, body) if isinstance(body, dict) else operated(old, body)
        self.on_status(old, new)
        self.writes.append(("patch", resource, {"body": body}))
        return self.put(resource, namespace, new)

    async def delete(
        self, resource: str, namespace: str, name: str, *, uid: str = "", grace_seconds: int | None = None
    ) -> None:
        self._check()
        self._find(resource, namespace, name)
        del self.objects[resource, namespace, name]

    async def token_review(self, token: str, audience: str) -> TokenIdentity | None:
        self._check()
        return None


def unreachable() -> ApiError:
    return ApiError(0, "Unreachable", "no route")
