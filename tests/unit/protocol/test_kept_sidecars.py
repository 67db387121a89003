"""Sidecars and operators of earlier versions, played from recordings, are understood by those of today."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from e2e.cluster.loopback import own_address, own_port
from hajob import metrics
from hajob.api import constants as names
from hajob.capacity.caches import Caches
from hajob.clock import SystemClock
from hajob.coordinator_link.channel import Channel, ChannelListener, CoordinatorCredentials, Dialer
from hajob.job.ports import Ports
from hajob.leader.leadership import Leadership
from hajob.protocol import sidecar_pb2 as pb
from hajob.wire.tls import read_tls_files as read_certificates
from hajob.wire.tls import server_credentials
from tests.rigs.certificates import Authority
from tests.rigs.job_controller import ControllerTown, settle_town
from tests.rigs.rank_pod import until
from tests.unit.protocol.kept_sidecar import JOB, RECORDINGS, KeptServer, Line, recording, speak
from trainer_sidecar.agent import server as agent_server
from trainer_sidecar.agent import settings as agent_settings
from trainer_sidecar.coordinator.shell.agents import AgentLink, Agents
from trainer_sidecar.coordinator.shell.server import OperatorServer
from trainer_sidecar.coordinator.shell.settings import read_settings

VERSIONS = sorted(place.name for place in RECORDINGS.iterdir())
everyone = pytest.mark.parametrize("version", VERSIONS)


class KeptDialer(Dialer):
    """Dials the coordinator of the recording, whatever its pod's address is."""

    def __init__(self, town: TownWithKeptCoordinator) -> None:
        super().__init__(Leadership(), SystemClock())
        self._town = town

    def dial(
        self, address: str, job_uid: str, credentials: CoordinatorCredentials, listener: ChannelListener
    ) -> Channel:
        assert self._town.server is not None, address
        self._town.channels.append(super().dial(self._town.server.address, job_uid, credentials, listener))
        return self._town.channels[-1]


class TownWithKeptCoordinator(ControllerTown):
    """A job of two nodes with two chips each, whose coordinator is dialled for real."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines
        self.channels: list[Channel] = []
        self.server: KeptServer | None = None
        super().__init__()

    def open(self) -> Any:
        stored = self.stored()
        stored["metadata"]["uid"] = JOB
        stored["spec"] |= {"numNodes": 2, "parallelism": {"tensor": 1}}
        return super().open()

    def ports(self, caches: Caches | None = None) -> Ports:
        return replace(super().ports(caches), dialer=KeptDialer(self))

    async def serve(self) -> KeptServer:
        """The coordinator of the recording, with the certificate that the operator made."""
        secret = next(body for (kind, _, _), body in self.kube.objects.items() if kind == "secrets")
        files = {name: base64.b64decode(text) for name, text in secret["data"].items()}
        pair = (files["coordinator.key"], files["coordinator.crt"])
        tls = grpc.ssl_server_credentials([pair], files["ca.crt"], require_client_auth=True)
        self.server = KeptServer("Coordinator", self.lines, tls)
        await self.server.start()
        return self.server

    async def prove(self, _token: str, _audience: str) -> str:
        """Whoever answers is the coordinator's pod."""
        return next(pod.uid for pod in self.pods() if pod.role == names.ROLE_COORDINATOR)

    async def live(self, condition: Callable[[], bool], what: str) -> None:
        """Let real messages and the town's time go on until a condition holds."""
        async with asyncio.timeout(90):
            while not condition():
                await settle_town(self)
                await asyncio.sleep(0.005)
        assert condition(), what


def refused() -> float:
    return sum(
        sample.value
        for metric in metrics.REFUSED.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    )


@everyone
async def test_a_kept_coordinators_job_is_still_protected(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade: the operator of today hears the old coordinator's fault, and its order is followed."""
    town = TownWithKeptCoordinator(recording(version, "operator-coordinator"))
    before = refused()
    try:
        await settle_town(town)
        server = await town.serve()
        monkeypatch.setattr(town.kube, "pod_of_token", town.prove)
        await town.run_pods()
        await town.live(server.over.is_set, "the end of the recording")
        await town.live(lambda: bool(town.status().get("incidents")), "the incident")
        await town.live(lambda: town.status()["incidents"][0]["outcome"] == "Recovered", "the recovery")
        assert town.status()["incidents"][0]["action"] == "InPlace"
        assert town.status()["incidents"][0]["cause"]["firstRank"] == 3
        assert [one.hello.highest_version for one in server.heard if one.WhichOneof("body") == "hello"] == [1]
        assert refused() == before
    finally:
        await town.controller.stop_managing()
        if town.server is not None:
            await town.server.stop()


class HeardAgents(Agents):
    """A coordinator's links to its agents, noting what comes over them."""

    def __init__(self, tls_directory: Path) -> None:
        settings: Any = SimpleNamespace(job_uid=JOB, tls_directory=tls_directory)
        super().__init__(settings, cast("Any", None), lambda: None)
        self.messages: list[pb.AgentToCoordinator] = []
        self.connected = 0
        self.link: AgentLink | None = None

    def own_hello(self) -> pb.Hello:
        return pb.Hello(version=1, highest_version=7, job_uid=JOB, fence=1)

    def handle_agent_connected(self, _uid: str) -> None:
        self.connected += 1
        for rank in ((3, 1, True), (3, 2, False), (3, 2, True)):
            number, incarnation, admitted = rank
            ranks = [
                pb.RankOrder(rank=2, incarnation=1, run=True, admitted=True),
                pb.RankOrder(rank=number, incarnation=incarnation, run=True, admitted=admitted),
            ]
            assert self.link is not None
            order = pb.NodeOrder(revision=1, ranks=ranks)
            self.link.outgoing.put_nowait(pb.CoordinatorToAgent(node_order=order))

    def handle_agent_message(self, _uid: str, message: pb.AgentToCoordinator) -> None:
        self.messages.append(message)

    def handle_agent_disconnected(self, _uid: str, *, refused: bool) -> None:
        assert not refused


class HeardCore:
    """A coordinator's core, noting what its operator says."""

    def __init__(self) -> None:
        self.assignments: list[pb.Assignment] = []
        self.orders: list[pb.Order] = []
        self.acknowledged: list[int] = []
        self.job = SimpleNamespace(
            operator=SimpleNamespace(note_operator_left=lambda _: None),
            incidents=SimpleNamespace(incarnation=0),
            effects=SimpleNamespace(outbox=SimpleNamespace(acknowledge_reports=self.acknowledged.append)),
        )

    @property
    def number(self) -> int:
        """How many messages have come."""
        return len(self.assignments) + len(self.orders) + len(self.acknowledged)

    def note_operator(self, _fence: int, _now: float) -> None:
        pass

    def apply_assignment(self, assignment: pb.Assignment, _now: float) -> None:
        self.assignments.append(assignment)

    def apply_order(self, order: pb.Order, _now: float) -> None:
        self.orders.append(order)

    def next_report(self, _now: float) -> pb.Report:
        return pb.Report(sequence=1)


@everyone
async def test_a_kept_agent_is_heard_by_a_coordinator_of_today(version: str, tmp_path: Path) -> None:
    authority = Authority()
    coordinator = authority.write(tmp_path / "coordinator", f"coordinator.{JOB}")
    agent = authority.write(tmp_path / "agent", f"agent.{JOB}")
    lines = recording(version, "coordinator-agent-1")
    server = KeptServer("Agent", lines, server_credentials(agent))
    await server.start()
    heard = HeardAgents(coordinator)
    heard.link = AgentLink("uid-1-1", server.address, heard)
    try:
        await until(server.over.is_set, "the end of the recording")
        said = sum(line.sender == "agent" for line in lines) - 1  # one is the hello
        await until(lambda: len(heard.messages) == said, "every word of the agent")
    finally:
        await heard.link.close_stream()
        await server.stop()
    facts = [fact for message in heard.messages for fact in message.report.facts]
    assert [(fact.kind, list(fact.ranks)) for fact in facts if fact.kind == pb.PROCESS_EXITED] == [
        (pb.PROCESS_EXITED, [3])
    ]
    assert heard.connected == 1


@everyone
async def test_a_kept_operator_leads_coordinators_of_today(version: str, tmp_path: Path) -> None:
    """After a roll-back of the operator."""
    authority, core = Authority(), HeardCore()
    lines = recording(version, "operator-coordinator")
    settings = read_settings(
        {
            "POD_IP": own_address(),
            "POD_NAME": "job-coordinator",
            "POD_UID": "uid-coordinator",
            "HAJOB_COORDINATOR_PORT": str(own_port()),
            "HAJOB_DIR": str(tmp_path),
            "HAJOB_TLS_DIR": str(authority.write(tmp_path / "coordinator", f"coordinator.{JOB}")),
            "HAJOB_JOB_UID": JOB,
            "MINDIO_WAIT_MINDX_TIME": "120",
        }
    )
    server = OperatorServer(settings, cast("Any", core), lambda: None)
    await server.start_listening()
    tls = grpc.ssl_channel_credentials(*read_certificates(authority.write(tmp_path / "operator", f"operator.{JOB}")))
    address = f"{settings.endpoint.address}:{settings.port}"
    try:
        async with answered(speak(lines, "Coordinator", address, tls, f"coordinator.{JOB}")) as answers:
            hello = pb.CoordinatorMessage.FromString(await anext(answers)).hello
            assert hello.version == 1  # the only one that it takes
            said = sum(line.sender == "operator" for line in lines) - 1  # one is the hello
            await until(lambda: core.number == said, "every word of the operator")
    finally:
        await server.stop_listening()
    assert [order.action for order in core.orders] == [pb.START, pb.IN_PLACE]


@everyone
async def test_a_kept_coordinator_leads_agents_of_today(version: str, tmp_path: Path) -> None:
    """Rank pods made after an upgrade, beside a coordinator from before."""
    authority, node = Authority(), KeptNode()
    lines = recording(version, "coordinator-agent-1")
    settings = agent_settings.read_settings(
        {
            "POD_IP": own_address(),
            "POD_NAME": "job-1-1",
            "POD_UID": "uid-1-1",
            "HAJOB_AGENT_PORT": str(own_port()),
            "HAJOB_DIR": str(tmp_path),
            "HAJOB_TLS_DIR": str(authority.write(tmp_path / "agent", f"agent.{JOB}")),
            "HAJOB_JOB_UID": JOB,
            "HAJOB_NODE_RANK": "1",
            "HAJOB_RANKS_PER_NODE": "2",
            "HAJOB_WORLD_SIZE": "4",
            "HAJOB_INCARNATION": "1",
        }
    )
    service = agent_server.AgentService(settings, cast("Any", node), Beats())
    server = agent_server.make_server(service, settings)
    await server.start()
    tls = grpc.ssl_channel_credentials(
        *read_certificates(authority.write(tmp_path / "coordinator", f"coordinator.{JOB}"))
    )
    address = f"{settings.pod_address}:{settings.agent_port}"
    try:
        async with answered(speak(lines, "Agent", address, tls, f"agent.{JOB}")) as answers:
            assert pb.AgentToCoordinator.FromString(await anext(answers)).hello.version == 1
            said = sum(line.sender == "coordinator" for line in lines) - 1
            await until(lambda: len(node.messages) == said, "every word of the coordinator")
    finally:
        await server.stop(None)
    orders = [message.node_order for message in node.messages if message.WhichOneof("body") == "node_order"]
    assert [(rank.rank, rank.incarnation) for rank in orders[-1].ranks] == [(2, 1), (3, 2)]


@asynccontextmanager
async def answered(answers: Any) -> AsyncIterator[Any]:
    """A conversation that is hung up at the end."""
    try:
        yield answers
    finally:
        with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            await answers.aclose()


class Beats:
    """A clock that stands still."""

    def now(self) -> int:
        return 0


class KeptNode:
    """A node that has nothing to report."""

    lease = SimpleNamespace(number_heartbeat=lambda _: 1)
    outbox = SimpleNamespace(next_report_time=lambda: None)
    ports = SimpleNamespace(take_controller_lines=lambda: ())

    def __init__(self) -> None:
        self.messages: list[pb.CoordinatorToAgent] = []

    def begin_conversation(self, *, higher_fence: bool) -> None:
        assert higher_fence

    def apply_coordinator_message(self, message: pb.CoordinatorToAgent) -> None:
        self.messages.append(message)

    def next_report(self, *, with_heartbeat: bool = False) -> Any:
        assert with_heartbeat in {True, False}
        return None

    def wanted_store_content(self) -> str:
        return ""


def test_there_is_a_kept_version_to_play() -> None:
    assert "wire-1" in VERSIONS
