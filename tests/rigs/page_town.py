"""The page's server on this machine, before a cluster in memory whose objects a test sets as it likes."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.server import MemoryServer
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.clock import SystemClock
from hajob.web.live import LiveCluster, Scope
from hajob.web.local_door import ADDRESS, LocalDoor
from hajob.web.server import Door, build_application
from tests.rigs.told_job import NAMESPACE

CHIP: Final = names.DEFAULT_RESOURCE_NAME


class PassingClock(SystemClock):
    """The machine's clock, whose monotonic time a test lets pass."""

    def __init__(self) -> None:
        self._passed = 0.0

    def pass_seconds(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self._passed += seconds

    def monotonic(self) -> float:
        return super().monotonic() + self._passed


class PageTown:
    """A server of the page, and the cluster behind it.

    Attributes:
        server: The API server.
        door: Who may come in.
        cluster: As the page sees it.
    """

    def __init__(self, server: MemoryServer, cluster: LiveCluster) -> None:
        self.server, self.cluster, self.door = server, cluster, LocalDoor(cluster)

    def put(self, resource: str, body: Json, namespace: str = NAMESPACE) -> None:
        """Set an object as it is from now on."""
        put_object(self.server, resource, body, namespace)

    def remove(self, resource: str, name: str, namespace: str = NAMESPACE) -> None:
        """Take an object away."""
        found = self.server.history.find(resource, (namespace, name))
        assert found is not None, f"there is no {resource} {name}"
        self.server.history.remove(resource, found)

    @property
    def address(self) -> str:
        """Of the page, with its key."""
        return self.door.address


def put_object(server: MemoryServer, resource: str, body: Json, namespace: str = NAMESPACE) -> None:
    """Set an object of a server as it is from now on."""
    where = {"namespace": namespace} if namespace else {}
    metadata = {"uid": f"uid-of-{body['metadata']['name']}", **where, **body["metadata"]}
    server.history.put(resource, {**copy.deepcopy(body), "metadata": metadata})


@asynccontextmanager
async def open_town(*objects: tuple[str, Json], scope: Scope | None = None) -> AsyncIterator[PageTown]:
    """Serve the page of a cluster that has these objects, by resource."""
    clock = SystemClock()
    server = MemoryServer(clock)
    for resource, body in objects:
        put_object(server, resource, body, "" if resource in {"nodes", names.QUARANTINES} else NAMESPACE)
    async with LiveCluster(MemoryKube(server), clock, scope or Scope()) as cluster:
        town = PageTown(server, cluster)
        async with serve_door(town.door, clock) as town.door.port:
            yield town


@asynccontextmanager
async def serve_door(door: Door, clock: SystemClock) -> AsyncIterator[int]:
    """Serve the page behind a door on a free port of this machine, and yield the port."""
    runner = web.AppRunner(build_application(door, clock), handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, ADDRESS, 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def chip_node(name: str, chips: int = 2, **spec: Any) -> Json:
    """A node with chips that is well."""
    status = {
        "capacity": {CHIP: str(chips)},
        "allocatable": {CHIP: str(chips)},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}
