"""A clock that moves only when told to, and the API server in memory with what unit tests of the runtime do to it."""

from __future__ import annotations

import asyncio
import copy
import heapq
import itertools
from collections.abc import Callable, Iterator, MutableMapping, Sequence

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.history import key_of
from e2e.memory_api.server import MemoryServer
from hajob.api.base import Json
from hajob.runtime.kube import ApiError, PatchKind

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


class FakeKube(MemoryKube):
    """The server in memory, with what these tests do to it beyond an API's verbs."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        super().__init__(MemoryServer(clock or FakeClock()))
        self.objects = Objects(self.server)
        self.writes: list[tuple[str, str, Json]] = []

    @property
    def version(self) -> str:
        """The resourceVersion that a list has now."""
        return str(self.server.history.version)

    def fail(self, *errors: ApiError) -> None:
        """The next requests fail like this."""
        for error, row in itertools.groupby(reversed(errors)):
            self.server.faults.refuse(error, times=len(list(row)))

    def put(self, resource: str, namespace: str, body: Json) -> Json:
        """Set an object as it is, as somebody else might have done long ago."""
        metadata = {"uid": f"uid-of-{body['metadata']['name']}", "namespace": namespace, **body["metadata"]}
        return copy.deepcopy(self.server.history.put(resource, {**copy.deepcopy(body), "metadata": metadata}))

    async def create(self, resource: str, namespace: str, body: Json, *, dry_run: bool = False) -> Json:
        answer = await super().create(resource, namespace, body, dry_run=dry_run)
        self.writes += [] if dry_run else [("create", resource, body)]
        return answer

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
        answer = await super().patch(resource, namespace, name, body, kind=kind, subresource=subresource)
        self.writes.append(("patch", resource, {"body": body}))
        return answer


class Objects(MutableMapping[tuple[str, str, str], Json]):
    """What is stored, by resource, namespace and name; a change of it in place makes no version."""

    def __init__(self, server: MemoryServer) -> None:
        self._history = server.history

    def __getitem__(self, key: tuple[str, str, str]) -> Json:
        found = self._history.find(key[0], key[1:])
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: tuple[str, str, str], body: Json) -> None:
        self._history.put(key[0], body)

    def __delitem__(self, key: tuple[str, str, str]) -> None:
        self._history.remove(key[0], self[key])

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return iter([(plural, *key_of(body)) for plural, body in self._history.everything()])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def unreachable() -> ApiError:
    return ApiError(0, "Unreachable", "no route")
