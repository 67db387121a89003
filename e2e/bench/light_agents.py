"""Many agents in one process, for measuring one coordinator: the agent's own gRPC service over nodes without ranks.

    python -m e2e.bench.light_agents FILE

Address, TLS, hello, heartbeats, leases, reports and what is repeated are the agent's own code; only the node behind
them is light: a rank is there as soon as it is ordered, and finishes a step whenever the clock says so, told by a
MindIO heartbeat every two seconds as at a real gate.

Orders come on the standard input, a line each: `lose UID` (that node falls silent with its connection open, as one
without power; when it spoke last is answered), `forget` (what was counted so far), `tell` (what was counted is
answered). Answers are a line of JSON each.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

from hajob.protocol import descriptors
from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.clock import SECOND, BootClock
from trainer_sidecar.agent.gate.lease import Lease
from trainer_sidecar.agent.report.outbox import Outbox
from trainer_sidecar.agent.server import AgentService, CoordinatorStream, make_server
from trainer_sidecar.agent.settings import AgentSettings, Identity

if TYPE_CHECKING:
    from trainer_sidecar.agent.node import Node
    from trainer_sidecar.agent.server import Context
from trainer_sidecar.agent.report.ports import AgentPorts

BEAT_EVERY = 2 * SECOND  # of MindIO's processors
SERVERS_AT_ONCE = 64


@dataclass
class Counts:
    """What went wrong with leases, and how long the coordinator's answers took; times in milliseconds."""

    agents: int = 0
    linked: int = 0
    lapsed: int = 0  # leases that ran out although the node is there
    disconnected: int = 0
    answers: int = 0
    slowest_answer: float = 0.0
    slow_answers: int = 0  # slower than half a second

    def take_answer(self, milliseconds: float) -> None:
        """A heartbeat was answered after so long."""
        self.answers += 1
        self.slowest_answer = max(self.slowest_answer, milliseconds)
        self.slow_answers += milliseconds > 500


@dataclass
class LightNode:
    """What an agent's service needs of a node."""

    settings: AgentSettings
    clock: BootClock
    counts: Counts
    step_seconds: float
    lease: Lease = field(default_factory=Lease)
    outbox: Outbox = field(default_factory=Outbox)
    ports: AgentPorts = field(default_factory=AgentPorts)
    order: pb.NodeOrder = field(default_factory=pb.NodeOrder)
    sent: dict[int, int] = field(default_factory=dict)
    stream: int = 0
    linked_since: int = 0
    steps: dict[int, int] = field(default_factory=dict)
    beat_due: int = 0
    was_valid: bool = False
    lost: bool = False
    beaten: int = 0  # when the newest heartbeat to the coordinator left

    def begin_conversation(self, *, higher_fence: bool) -> None:
        """A coordinator has said hello."""
        self.lease.begin_conversation(is_kept=not higher_fence)
        self.counts.disconnected += self.stream > 0
        self.stream += 1
        self.outbox.begin_stream(self.clock.now())

    def apply_coordinator_message(self, message: pb.CoordinatorToAgent) -> None:
        """A message of the coordinator."""
        if self.lost:
            return
        body = message.WhichOneof("body")
        if body == "lease_grant":
            self._granted(message.lease_grant)
        elif body == "acknowledge":
            self.outbox.acknowledge_reports(message.acknowledge.sequence)
        elif body == "node_order":
            self._ordered(message.node_order)

    def _granted(self, grant: pb.LeaseGrant) -> None:
        now = self.clock.now()
        sent = self.sent.pop(grant.heartbeat, now)
        self.counts.take_answer((now - sent) / 1e6)
        self.lease.apply_grant(grant.heartbeat, grant.lease_milliseconds)
        self.was_valid = True
        if grant.acknowledged:
            self.outbox.acknowledge_reports(grant.acknowledged)

    def _ordered(self, order: pb.NodeOrder) -> None:
        self.order = order
        now = self.clock.now()
        if not self.linked_since and any(rank.run for rank in order.ranks):
            self.linked_since, self.beat_due = now, now
            self.counts.linked += 1
        self.outbox.report_state_at_once(now)

    def look(self) -> None:
        """A lease that has run out is counted; the ranks' heartbeats are heard."""
        now = self.clock.now()
        if self.lost:
            return
        if self.was_valid and not self.lease.is_valid(now):
            self.was_valid, self.counts.lapsed = False, self.counts.lapsed + 1
        if self.linked_since and now >= self.beat_due:
            self.beat_due = now + BEAT_EVERY
            step = int((now - self.linked_since) / SECOND / self.step_seconds)
            for rank in self.settings.local_ranks:
                if self.steps.get(rank) != step:
                    self.steps[rank] = step
                    self.outbox.add_heartbeat(rank, step, now, due=None)

    def wanted_store_content(self) -> str:
        """Nobody has written into a store."""
        return ""

    def next_report(self, *, with_heartbeat: bool = False) -> pb.AgentReport | None:
        """As an agent's node: what is due, or what rides along with a heartbeat."""
        now = self.clock.now()
        self.look()
        due = self.outbox.next_report_time()
        if (due is None or due > now) and not (with_heartbeat and self.outbox.has_steps_for_heartbeat(now)):
            return None
        return self.outbox.take_report(now, self._state())

    def _state(self) -> pb.AgentReport:
        wanted = {entry.rank: entry for entry in self.order.ranks if entry.run}
        ranks = []
        for rank in self.settings.local_ranks:
            entry = wanted.get(rank)
            if entry is None:
                ranks.append(pb.RankState(rank=rank, phase=pb.ABSENT))
                continue
            step = self.steps.get(rank)
            ranks.append(
                pb.RankState(
                    rank=rank, incarnation=entry.incarnation, start=entry.start, pid=1, phase=pb.LINKED, step=step
                )
            )
        return pb.AgentReport(launcher_ready=True, ranks=ranks)


class LightService(AgentService):
    """An agent's service that can fall silent."""

    node: LightNode

    async def _write_reports(self, context: Context, conversation: CoordinatorStream) -> None:
        await super()._write_reports(cast("Context", _Watched(context, self.node)), conversation)


class _Watched:
    """A stream whose heartbeats are timed, and which a lost node does not write to."""

    def __init__(self, context: Context, node: LightNode) -> None:
        self._context = context
        self._node = node

    async def write(self, message: pb.AgentToCoordinator) -> None:
        """To the coordinator."""
        if self._node.lost:
            await asyncio.Event().wait()
        number = message.heartbeat.number if message.HasField("heartbeat") else message.report.heartbeat
        if number:
            self._node.beaten = self._node.sent[number] = self._node.clock.now()
        await self._context.write(message)


def make_nodes(given: dict[str, Any]) -> tuple[Counts, dict[str, LightService]]:
    """All agents of the file, by the UID of their pod."""
    counts, clock, services = Counts(), BootClock(), {}
    for entry in given["agents"]:
        settings = AgentSettings(
            directory=Path(given["directory"]),
            tls_directory=Path(given["tls"]),
            pod_address=entry["address"],
            pod_name=entry["uid"],
            pod_uid=entry["uid"],
            job_uid=given["job"],
            identity=Identity(entry["nodeRank"], 1),
            ranks_per_node=given["ranksPerNode"],
            world_size=given["worldSize"],
            agent_port=given["port"],
            mindio_port=8000,
            rendezvous_port=29500,
            output_directory="",
            output_attempt_limit=1,
            checkpoint_directory="",
            fence_after_seconds=60,
        )
        node = LightNode(settings, clock, counts, given["stepSeconds"])
        service = LightService(settings, cast("Node", node), clock)
        service.node = node
        services[entry["uid"]] = service
    counts.agents = len(services)
    return counts, services


async def _serve(services: Iterable[LightService]) -> list[grpc.aio.Server]:
    servers = []
    for service in services:
        server = make_server(service, service.node.settings)
        await server.start()
        servers.append(server)
    return servers


async def run(given: dict[str, Any]) -> None:
    """Serve until the standard input ends."""
    counts, services = make_nodes(given)
    servers = await _serve(services.values())
    gc.collect()
    gc.freeze()
    print("serving", flush=True)
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[str]()
    threading.Thread(target=_read_lines, args=(loop, lines), daemon=True).start()
    while line := await lines.get():
        word, _, uid = line.strip().partition(" ")
        if word == "lose":
            services[uid].node.lost = True
            counts.agents -= 1
            print(json.dumps({"lost": services[uid].node.beaten}), flush=True)
        elif word == "forget":
            counts.lapsed = counts.disconnected = counts.answers = counts.slow_answers = 0
            counts.slowest_answer = 0.0
        elif word == "tell":
            print(json.dumps(asdict(counts)), flush=True)
    for server in servers:
        await server.stop(None)


def _read_lines(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[str]) -> None:
    for line in sys.stdin:
        loop.call_soon_threadsafe(lines.put_nowait, line)
    loop.call_soon_threadsafe(lines.put_nowait, "")


if __name__ == "__main__":
    descriptors.raise_limit()
    asyncio.run(run(json.loads(Path(sys.argv[1]).read_text())))
