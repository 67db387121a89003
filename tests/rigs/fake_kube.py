"""The API server in memory, with what unit tests do to it beyond an API's verbs."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, MutableMapping, Sequence

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.history import key_of
from e2e.memory_api.server import MemoryServer
from hajob.api.base import Json
from hajob.kube.client import ApiError, PatchKind
from tests.rigs.fake_clock import FakeClock


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
        """Have the next requests fail like this."""
        for error, row in itertools.groupby(reversed(errors)):
            self.server.faults.refuse(error, times=len(list(row)))

    def put(self, resource: str, namespace: str, body: Json) -> Json:
        """Set an object as it is, as somebody else might have done long ago."""
        metadata = {"uid": f"uid-of-{body['metadata']['name']}", "namespace": namespace, **body["metadata"]}
        return copy.deepcopy(self.server.history.put(resource, {**copy.deepcopy(body), "metadata": metadata}))

    async def create_object(self, resource: str, namespace: str, body: Json, *, dry_run: bool = False) -> Json:
        answer = await super().create_object(resource, namespace, body, dry_run=dry_run)
        self.writes += [] if dry_run else [("create", resource, body)]
        return answer

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
        answer = await super().patch_object(resource, namespace, name, body, kind=kind, subresource=subresource)
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
    """Return the error of a request that did not get as far as the server."""
    return ApiError(0, "Unreachable", "no route")
