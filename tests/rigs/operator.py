"""The operator itself on the API server in memory, and what it reads at its start."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Callable
from typing import Any, Final
from unittest import mock

import aiohttp
import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.memory_api.client import MemoryKube
from e2e.memory_api.nodes import Nodes
from e2e.memory_api.server import MemoryServer
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.app import operator as app
from hajob.app.core import OperatorCore
from hajob.app.operator import Operator
from hajob.app.settings import Settings
from hajob.coordinator_link import channel
from hajob.coordinator_link.channel import Channel, ChannelListener, Dialer
from hajob.kube.credentials import ApiCredentials
from hajob.protocol import sidecar_pb2 as wire
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


class IdleFrontend:
    """A frontend without kopf: it notes that it was started, and for whom.

    Attributes:
        starts: how often it was started.
        intake: who is to be shown the jobs; None before the first start.
        has_ended: what the operator is told when it asks.
        stopping: called when it is stopped.
    """

    def __init__(self) -> None:
        self.starts = 0
        self.intake: OperatorCore | None = None
        self.has_ended = False
        self.stopping: Callable[[], object] = lambda: None

    def start_serving(self, intake: OperatorCore) -> None:
        """Note the start."""
        self.starts += 1
        self.intake = intake

    async def stop_serving(self) -> None:
        """Tell whoever waits for it."""
        self.stopping()

    def end_kopf(self) -> None:
        """Read nothing anew."""


class RecordedChannel(Channel):
    """A channel to a coordinator that dials nobody and keeps the orders that it is given."""

    up = True

    def __init__(self, address: str, job_uid: str, _: object, listener: ChannelListener, _dialer: Dialer) -> None:
        self.address, self.job_uid, self.listener = address, job_uid, listener
        self.orders: list[wire.Order] = []
        self.ordered: Callable[[], object] = lambda: None
        self._reports = 0

    def start_dialling(self) -> None:
        """Dial nobody."""

    def dial_at_once(self) -> None:
        """Dial nobody."""

    async def close_channel(self) -> None:
        """Close nothing."""

    def send_assignment(self, _: wire.Assignment) -> None:
        """Send nothing."""

    def acknowledge_report(self, _: int) -> None:
        """Send nothing."""

    def send_order(self, order: wire.Order) -> None:
        """Keep an order that differs from the one before, as a channel sends it."""
        if not self.orders or self.orders[-1] != order:
            self.orders.append(order)
            self.ordered()

    def report(self, *facts: wire.Fact, milestones: list[wire.Milestone] | None = None, **state: Any) -> None:
        """Report, as the coordinator of a job's first attempt does."""
        self._reports += 1
        now = wire.CoordinatorState(**{"controller_ready": True, "attempt": 1, "step": 0, **state})
        self.listener.apply_report(
            wire.Report(sequence=self._reports, state=now, facts=facts, milestones=milestones or [])
        )


PORTS: Final = itertools.count(20_000)
"""For health and metrics: one for each operator of this process, at an address of this process."""


class OperatorWorld:
    """An operator on a server, with a frontend that does nothing and channels that dial nobody.

    Args:
        beside: another world, whose server and clock this one shares.
        settings: more of the operator's environment.
    """

    def __init__(self, beside: OperatorWorld | None = None, **settings: str) -> None:
        self.clock: FakeClock = beside.clock if beside is not None else FakeClock()
        self.server: MemoryServer = beside.server if beside is not None else MemoryServer(self.clock)
        self.nodes = Nodes(self.server)
        identity = settings.setdefault("HAJOB_IDENTITY", "one")
        self.kube = MemoryKube(self.server, identity)
        self.frontend = IdleFrontend()
        self.channels: list[RecordedChannel] = beside.channels if beside is not None else []
        self._beside = beside
        pid, port = os.getpid(), next(PORTS)
        address = f"127.{200 + (pid >> 16) % 50}.{pid >> 8 & 255}.{pid & 255}"
        self.health = f"http://{address}:{port}"
        where = {"HAJOB_POD_IP": address, "HAJOB_METRICS_PORT": str(port)}
        chosen = Settings.from_environment({**where, **settings})
        with mock.patch.object(app, "Frontend", return_value=self.frontend):
            self.operator = Operator(chosen, self.kube, ApiCredentials("https://nowhere"), self.clock)

    def _dial(self, *where: Any) -> RecordedChannel:
        self.channels.append(RecordedChannel(*where))
        return self.channels[-1]

    async def run(self) -> None:
        """Run the operator until it ends; one beside another ends later, and dials as that one does."""
        if self._beside is not None:
            await self.operator.serve_until_stopped()
            return
        with mock.patch.object(channel, "Channel", self._dial):
            await self.operator.serve_until_stopped()

    async def node(self, name: str, **condition: str) -> None:
        """Make a node of the pool of its first letter, with conditions beside Ready."""
        told = [{"type": key, "status": status} for key, status in {"Ready": "True", **condition}.items()]
        await self.kube.create_object("nodes", "", {"metadata": {"name": name, "labels": {"pool": name[0]}}})
        await self.kube.patch_object("nodes", "", name, {"status": {"conditions": told}}, subresource="status")

    async def job(self, name: str, fence: int, namespace: str = "default") -> None:
        """Make a job whose status holds a fence."""
        await self.kube.create_object(names.PLURAL, namespace, {**QUICKSTART, "metadata": {"name": name}})
        await self.kube.patch_object(names.PLURAL, namespace, name, {"status": {"fence": fence}}, subresource="status")

    async def lease(self) -> Json:
        """Return the spec of the Lease: who leads, and with which fence (`leaseTransitions`)."""
        spec: Json = (await self.kube.get_object("leases", "hajob-system", "hajob-operator"))["spec"]
        return spec

    async def chip_node(self, name: str) -> None:
        """Make a ready node with two chips."""
        there = {names.DEFAULT_RESOURCE_NAME: "2", "pods": "100"}
        ready = {"type": "Ready", "status": "True"}
        await self.kube.create_object("nodes", "", {"metadata": {"name": name}})
        status = {"conditions": [ready], "allocatable": there, "capacity": there}
        await self.kube.patch_object("nodes", "", name, {"status": status}, subresource="status")

    async def show_job(self, name: str) -> None:
        """Show the leader a job, as the frontend does."""
        assert self.frontend.intake is not None, "it does not lead"
        self.frontend.intake.handle_job(await self.kube.get_object(names.PLURAL, "default", name))

    async def train(self, name: str) -> RecordedChannel:
        """Let the leader take a new job to a training that has done five steps; return the coordinator's channel."""
        await self.kube.create_object(names.PLURAL, "default", {**QUICKSTART, "metadata": {"name": name}})
        await self.show_job(name)
        before = len(self.channels)
        await self.until(lambda: len(self.channels) > before)
        channel = self.channels[-1]
        channel.listener.note_connection_change(True, "")
        for step, milestones in ((0, []), (0, [wire.Milestone(kind=wire.STARTED, incarnation=1)]), (5, [])):
            channel.report(milestones=milestones, step=step)
            await self.clock.advance(0.2)
        return channel

    async def place_pods(self) -> None:
        """Give each pod without a gate a node of its own, and run it."""
        pods = [raw async for page in self.kube.list_pages("pods", "default") for raw in page.items]
        nodes = [raw["metadata"]["name"] async for page in self.kube.list_pages("nodes", "") for raw in page.items]
        free = sorted(set(nodes) - {raw["spec"].get("nodeName") for raw in pods})
        for raw in pods:
            name = raw["metadata"]["name"]
            if not raw["spec"].get("nodeName") and not raw["spec"].get("schedulingGates"):
                node = free.pop(0)
                self.nodes.bind("default", name, node)
                self.nodes.run("default", name, f"127.0.1.{nodes.index(node) + 1}")

    async def until(self, happens: Callable[[], object]) -> None:
        """Let a minute of the clock pass at most, in which pods run as soon as they may, until something happens."""
        for _ in range(300):
            if happens():
                return
            await self.clock.advance(0.2)
            await self.place_pods()
        raise AssertionError("it has not happened within a minute")


class LedOperator:
    """An operator that runs, asked by HTTP as a kubelet asks it."""

    def __init__(self, world: OperatorWorld) -> None:
        self.world, self.operator = world, world.operator
        self.task = asyncio.create_task(world.run())

    async def asked(self, path: str) -> str:
        """Return what the operator answers at /healthz, /readyz or /faults, once it listens."""
        async with asyncio.timeout(90), aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(self.world.health + path) as answer:
                        return await answer.text()
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(0.01)

    async def wait_until_leading(self) -> None:
        """Let time pass until the operator holds the lease."""
        async with asyncio.timeout(90):
            while not self.world.frontend.starts:
                await asyncio.sleep(0.01)  # the metrics' listener is a real one
                await self.world.clock.advance(0.1)

    async def end(self) -> None:
        """Have a signal end the operator, as a kubelet does, and wait until it has ended."""
        signal.raise_signal(signal.SIGTERM)
        await self.task
