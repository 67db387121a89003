"""The agent's gRPC server: one stream at a time, over TLS, from a coordinator of this job only.

The stream carries levels down and numbered reports up. One task writes, so a report never waits for another task's
turn: an exit is on the wire as soon as the event loop runs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import grpc

from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol import sidecar_pb2_grpc as rpc
from hajob.protocol import versions
from hajob.protocol.addresses import host_port
from hajob.protocol.heartbeats import heartbeat_seconds
from hajob.wire import tls
from trainer_sidecar.agent.clock import SECOND, Clock
from trainer_sidecar.agent.node import Node
from trainer_sidecar.agent.settings import AgentSettings
from trainer_sidecar.agent.succession import CoordinatorClaim, Succession

EARLY = SECOND // 4  # a report is a heartbeat as well rather than waking everybody twice
# A peer that has proved to be the coordinator says hello at once; one that does not must not hold up the next one.
HELLO_SECONDS = 5.0
SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 10000),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.keepalive_permit_without_calls", 1),
)

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[pb.CoordinatorToAgent, pb.AgentToCoordinator]


class CoordinatorStream:
    """One accepted stream."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self.superseded = asyncio.Event()
        self.store_sent = ""  # the word to which the content of the store was sent


class AgentService(rpc.AgentServicer):
    """The Agent service of sidecar.proto."""

    def __init__(self, settings: AgentSettings, node: Node, clock: Clock) -> None:
        self._settings = settings
        self._node = node
        self._clock = clock
        self._succession = Succession()
        self._current: CoordinatorStream | None = None
        self.is_alone = asyncio.Event()  # no coordinator is connected
        self.is_alone.set()
        num_nodes = -(-settings.world_size // settings.ranks_per_node)
        self._interval = int(heartbeat_seconds(num_nodes) * SECOND)

    def wake_stream(self) -> None:
        """Wake the stream: there may be something to report."""
        if self._current is not None:
            self._current.wake.set()

    async def Converse(self, _: object, context: Context) -> None:  # noqa: N802  the name in the .proto
        """Serve one coordinator, until it disconnects or another one takes over."""
        await self._require_coordinator(context)
        claim = await self._read_hello(context)
        if self._current is not None:
            self._current.superseded.set()
        conversation = self._current = CoordinatorStream()
        self.is_alone.clear()
        self._node.begin_conversation(higher_fence=self._succession.accept_claim(claim))
        log.info("coordinator connected: fence %d, incarnation %d", claim.fence, claim.incarnation)
        try:
            await context.write(pb.AgentToCoordinator(hello=self._own_hello()))
            await self._run_conversation(context, conversation)
        finally:
            if self._current is conversation:
                self._current = None
                self.is_alone.set()
        if conversation.superseded.is_set():
            await context.abort(grpc.StatusCode.ABORTED, "another coordinator has connected")

    async def _run_conversation(self, context: Context, conversation: CoordinatorStream) -> None:
        tasks = [
            asyncio.ensure_future(self._read_messages(context, conversation)),
            asyncio.ensure_future(self._write_reports(context, conversation)),
            asyncio.ensure_future(conversation.superseded.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, grpc.RpcError | grpc.aio.UsageError):
                log.error("the conversation with the coordinator failed", exc_info=result)

    async def _require_coordinator(self, context: Context) -> None:
        wanted, names = f"coordinator.{self._settings.job_uid}", tls.names_of_peer(context.auth_context())
        if wanted not in names:
            text = f"only {wanted} is listened to, the certificate says {', '.join(names) or 'no name'}"
            log.error("a peer was turned away: %s", text)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, text)

    async def _read_hello(self, context: Context) -> CoordinatorClaim:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                message = await context.read()
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no Hello came")
        if not isinstance(message, pb.CoordinatorToAgent) or message.WhichOneof("body") != "hello":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "a stream opens with Hello")
        hello = message.hello
        if problem := versions.disagreement(hello, "the coordinator"):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, problem)
        if hello.job_uid != self._settings.job_uid:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, f"job {hello.job_uid!r}, this is {self._settings.job_uid!r}"
            )
        claim = CoordinatorClaim(hello.fence, hello.incarnation)
        refusal = self._succession.refusal_of_claim(claim)
        if refusal is not None:
            log.warning("a coordinator was turned away: %s", refusal)
            await context.abort(grpc.StatusCode.ABORTED, refusal)
        return claim

    def _own_hello(self) -> pb.Hello:
        own = self._settings
        return versions.hello(own.job_uid, incarnation=own.incarnation, pod_name=own.pod_name, pod_uid=own.pod_uid)

    async def _read_messages(self, context: Context, conversation: CoordinatorStream) -> None:
        while True:
            message = await context.read()
            if not isinstance(message, pb.CoordinatorToAgent) or self._current is not conversation:
                return  # the end of the stream, or of its turn
            self._node.apply_coordinator_message(message)

    async def _write_reports(self, context: Context, conversation: CoordinatorStream) -> None:
        """Send heartbeats at their interval, reports when they are due."""
        next_heartbeat = 0
        while self._current is conversation:
            conversation.wake.clear()
            now, number = self._clock.now(), 0
            report = self._node.next_report(with_heartbeat=now >= next_heartbeat)
            if now >= next_heartbeat - (EARLY if report is not None else 0):
                next_heartbeat = now + self._interval
                number = self._node.lease.number_heartbeat(now)
            if report is not None:
                report.heartbeat = number
                await context.write(pb.AgentToCoordinator(report=report))
            elif number:
                await context.write(pb.AgentToCoordinator(heartbeat=pb.Heartbeat(number=number)))
            if (wanted := self._node.wanted_store_content()) != conversation.store_sent:
                conversation.store_sent = wanted
                for part in self._node.ports.store_content(wanted) if wanted else ():
                    await context.write(pb.AgentToCoordinator(store=part))
            for line in self._node.ports.take_controller_lines():
                await context.write(pb.AgentToCoordinator(controller=line))
            await self._sleep_until_due(conversation, next_heartbeat)

    async def _sleep_until_due(self, conversation: CoordinatorStream, until: int) -> None:
        due = self._node.outbox.next_report_time()
        until = until if due is None else min(until, due)
        try:
            async with asyncio.timeout(max(0, until - self._clock.now()) / SECOND):
                await conversation.wake.wait()
        except TimeoutError:
            return


def make_server(service: AgentService, settings: AgentSettings) -> grpc.aio.Server:
    """Return a server on the pod's own address, not started. OSError: address taken, or TLS file missing."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    rpc.add_AgentServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    address = host_port(settings.pod_address, settings.agent_port)
    secret = tls.server_credentials(settings.tls_directory)
    try:
        bound = server.add_secure_port(address, secret)
    except RuntimeError as problem:
        raise OSError(_taken_address_text(address, f": {problem}")) from problem
    if bound == 0:
        raise OSError(_taken_address_text(address))
    return server


def _taken_address_text(address: str, why: str = "") -> str:
    return (
        f"{address} cannot be listened on{why}; end the process that has it, or give the job another port in "
        "spec.network.agentPort"
    )
