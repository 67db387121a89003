"""The operator itself on the API server in memory, and what it reads at its start."""

from __future__ import annotations

import asyncio

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.memory_api.client import MemoryKube
from e2e.memory_api.server import MemoryServer
from hajob.api import constants as names
from hajob.runtime.app import Operator
from hajob.runtime.credentials import ApiCredentials
from hajob.runtime.settings import Settings
from tests.rigs.fake_clock import FakeClock

QUICKSTART = yaml.safe_load((CHECKOUT / "examples/quickstart.yaml").read_text())
UNREACHABLE_KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: me, user: {token: secret}}]
"""
"""Names an API server at a port where nobody listens."""


class OperatorWorld:
    """An operator on a server."""

    def __init__(self, **settings: str) -> None:
        self.clock = FakeClock()
        self.server = MemoryServer(self.clock)
        self.kube = MemoryKube(self.server)
        chosen = Settings.from_environment({"HAJOB_METRICS_PORT": "0", **settings})
        self.operator = Operator(chosen, self.kube, ApiCredentials("https://nowhere"), self.clock)

    async def node(self, name: str, **condition: str) -> None:
        """Make a node of the pool of its first letter, with conditions beside Ready."""
        told = [{"type": key, "status": status} for key, status in {"Ready": "True", **condition}.items()]
        await self.kube.create("nodes", "", {"metadata": {"name": name, "labels": {"pool": name[0]}}})
        await self.kube.patch("nodes", "", name, {"status": {"conditions": told}}, subresource="status")

    async def job(self, name: str, fence: int, namespace: str = "default") -> None:
        """Make a job whose status holds a fence."""
        await self.kube.create(names.PLURAL, namespace, {**QUICKSTART, "metadata": {"name": name}})
        await self.kube.patch(names.PLURAL, namespace, name, {"status": {"fence": fence}}, subresource="status")


class LedOperator:
    """An operator that runs, with a frontend that only counts its starts."""

    def __init__(self, world: OperatorWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.operator, self.clock, self.starts = world.operator, world.clock, 0

        async def stop() -> None:
            """Nothing was started."""

        monkeypatch.setattr(self.operator._frontend, "start", self._start)
        monkeypatch.setattr(self.operator._frontend, "stop", stop)
        self.task = asyncio.create_task(self.operator.run())

    def _start(self, _: object) -> None:
        self.starts += 1

    async def wait_until_leading(self) -> None:
        """Let time pass until the operator holds the lease."""
        async with asyncio.timeout(90):
            while not self.operator._lease.is_leader:
                await asyncio.sleep(0.01)  # the metrics' listener is a real one
                await self.clock.advance(0.1)

    async def end(self) -> None:
        """Stop the operator and wait until it has ended."""
        self.operator._stop.set()
        await self.task
