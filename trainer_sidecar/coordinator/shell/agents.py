"""The connections to the agents: each dialled at its pod's address, and redialled as long as the pod is assigned.

Each agent has one task. An open stream is given up once it has been silent for as long as makes its agent count as
silent: after a cut in the network, waiting for the old connection's retransmissions would take minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import grpc
import grpc.aio

from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol import sidecar_pb2_grpc, versions
from hajob.protocol.addresses import host_port
from hajob.wire import tls
from hajob.wire.halves import until_first_ends
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.shell.clock import now
from trainer_sidecar.coordinator.shell.settings import CoordinatorSettings
from trainer_sidecar.coordinator.shell.taskd import TaskdLink
from trainer_sidecar.coordinator.state.leases import SILENT_SECONDS

log = logging.getLogger(__name__)

# A node without power answers nothing, and a dial that waits for it holds a place in `Dials`.
HELLO_SECONDS = 2.0
# By itself gRPC would wait up to two minutes between two attempts, and the pod is usually back within seconds.
REDIAL_MILLISECONDS = 1000
CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # a channel serves one attempt: no back-off of earlier ones
    ("grpc.min_reconnect_backoff_ms", REDIAL_MILLISECONDS),
    ("grpc.initial_reconnect_backoff_ms", REDIAL_MILLISECONDS),
)
# An agent whose container is restarted listens again within a second, and its gates need their leases soon.
BACKOFF_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.0)
Stream = grpc.aio.StreamStreamCall[pb.CoordinatorToAgent, pb.AgentToCoordinator]


class Dials:
    """Limit of concurrent dials: each costs a handshake, and thousands at once keep the loop from granting leases.

    Agents whose last dial failed share a limit of their own, so that they delay only each other.
    """

    def __init__(self, first: int = 64, again: int = 128) -> None:
        self._first, self._again = asyncio.Semaphore(first), asyncio.Semaphore(again)

    def semaphore_for_dial(self, failures: int) -> asyncio.Semaphore:
        """Return the semaphore to hold until the agent has answered; `failures`: failed dials in a row."""
        return self._again if failures else self._first


class Agents:
    """The links to all agents; what they say goes to the core, and what the core wants then is sent at once.

    Attributes:
        settings: of this coordinator.
        dials: shared by all links.
        controller: takes what is said of a controller in TaskD's manager; None where it is in this pod.
    """

    def __init__(self, settings: CoordinatorSettings, core: CoordinatorCore, send_effects: Callable[[], None]) -> None:
        self.settings = settings
        self.dials = Dials()
        self._core = core
        self._send_effects = send_effects
        self._links: dict[str, AgentLink] = {}
        self._dialled = 0  # version of the roster that the links were made for
        self._table = ""  # version of the rank table that was sent to all
        self.controller: TaskdLink | None = None

    def dial_new_pods(self) -> None:
        """Keep a link to every pod that has an address, none to a pod that is forgotten."""
        # Called after every input: of thousands of pods only a changed roster is worth a comparison.
        roster = self._core.job.roster
        if roster.version == self._dialled:
            return
        self._dialled = roster.version
        for uid in [uid for uid in self._links if uid not in roster.pods]:
            closing = asyncio.create_task(self._links.pop(uid).close_stream())
            closing.add_done_callback(lambda _: None)
        for pod in roster.pods.values():
            if pod.uid not in self._links and pod.address:
                address = host_port(pod.address, self.settings.agent_port)
                self._links[pod.uid] = AgentLink(pod.uid, address, self)

    async def close_streams(self) -> None:
        """End all conversations."""
        for link in self._links.values():
            await link.close_stream()

    def send_message(self, uid: str, message: pb.CoordinatorToAgent) -> None:
        """Queue a message; the end of the stream drops queued messages, because the next stream repeats everything."""
        link = self._links.get(uid)
        if link is not None:
            link.outgoing.put_nowait(message)

    def own_hello(self) -> pb.Hello:
        """Build the coordinator's hello to an agent."""
        own, fence = self.settings, self._core.job.operator.fence
        return versions.hello(
            own.job_uid, fence=fence, incarnation=own.incarnation, pod_name=own.pod_name, pod_uid=own.pod_uid
        )

    def send_new_rank_table(self) -> None:
        """Send all agents the rank table once it is another one; it is large, and so in no order."""
        table = self._core.job.rank_table
        if table is None or table.version == self._table:
            return
        self._table = table.version
        for uid in self._links:
            self.send_message(uid, pb.CoordinatorToAgent(rank_table=table))

    def handle_agent_connected(self, uid: str) -> None:
        """Tell the core that an agent is there, and the agent the rank table."""
        if (table := self._core.job.rank_table) is not None:
            self.send_message(uid, pb.CoordinatorToAgent(rank_table=table))
        self._core.note_connected_agent(uid, now())
        self._send_effects()

    def handle_agent_message(self, uid: str, message: pb.AgentToCoordinator) -> None:
        """Handle a heartbeat, or a report, which may be a heartbeat as well."""
        body = message.WhichOneof("body")
        if body == "heartbeat":
            self._answer_heartbeat(uid, message.heartbeat.number)
        elif body == "report":
            report = message.report
            self._core.apply_agent_report(uid, report, now())
            if not (report.heartbeat and self._answer_heartbeat(uid, report.heartbeat, report.sequence)):
                self.send_message(uid, pb.CoordinatorToAgent(acknowledge=pb.Acknowledge(sequence=report.sequence)))
            self._send_effects()
        elif body == "store":
            self._core.apply_store_content(uid, message.store, now())
            self._send_effects()
        elif body == "controller" and self.controller is not None:
            self.controller.apply_line(uid, message.controller)
            self._send_effects()

    def _answer_heartbeat(self, uid: str, heartbeat: int, acknowledged: int = 0) -> bool:
        """Grant a lease, and with it acknowledge the report that the heartbeat came with; False: no lease for it."""
        grant = self._core.answer_heartbeat(uid, heartbeat, now())
        if grant is None:
            return False
        grant.acknowledged = acknowledged
        self.send_message(uid, pb.CoordinatorToAgent(lease_grant=grant))
        return True

    def handle_agent_disconnected(self, uid: str, *, refused: bool) -> None:
        """Tell the core that an agent's stream is gone, or that a dial has failed."""
        self._core.note_disconnected_agent(uid, now(), refused=refused)
        self._send_effects()


class AgentLink:
    """Client that keeps a conversation with the agent at `address` (host:port) open until closed."""

    def __init__(self, uid: str, address: str, agents: Agents) -> None:
        self.uid = uid
        self.address = address
        self._agents = agents
        self._failures = 0
        self.outgoing: asyncio.Queue[pb.CoordinatorToAgent] = asyncio.Queue()
        self._task = asyncio.create_task(self._redial_for_ever(), name=f"agent-{address}")

    async def close_stream(self) -> None:
        """End the conversation."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _redial_for_ever(self) -> None:
        said = ""
        while True:
            reason, refused = "it hung up", False
            try:
                if await self._run_stream():
                    self._failures, said = 0, ""
            except grpc.aio.AioRpcError as error:
                refused = "refused" in (error.details() or "")
                reason = f"{error.code().name}: {error.details()}"
            except (TimeoutError, OSError, asyncio.InvalidStateError) as error:
                reason = str(error) or "no word in time"
            except Exception as error:  # raised by the core: ending this task would end all redialling
                log.exception("agent %s: what it said could not be taken in", self.address)
                reason = f"an error of this program: {type(error).__name__}: {error}"
            if reason != said:
                said = reason
                log.info("agent %s: %s", self.address, reason)
            self._tell_disconnected(refused=refused)
            await asyncio.sleep(BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)])
            self._failures += 1

    def _tell_disconnected(self, *, refused: bool) -> None:
        try:
            self._agents.handle_agent_disconnected(self.uid, refused=refused)
        except Exception:
            log.exception("agent %s: that it is gone could not be taken in", self.address)

    async def _run_stream(self) -> bool:
        """Run one stream from hello to its end; return whether the agent answered."""
        async with contextlib.AsyncExitStack() as stack:
            async with self._agents.dials.semaphore_for_dial(self._failures):
                own = self._agents.settings
                files = tls.read_tls_files(own.tls_directory)
                channel = tls.secure_channel(self.address, f"agent.{own.job_uid}", files, CHANNEL_OPTIONS)
                stream = await self._exchange_hellos(await stack.enter_async_context(channel))
            if stream is None:
                return False
            self._agents.handle_agent_connected(self.uid)
            await until_first_ends(self._read_messages(stream), self._write_messages(stream))
            return True

    async def _exchange_hellos(self, channel: grpc.aio.Channel) -> Stream | None:
        """Open a stream and wait for the agent's hello; return None when another pod answers."""
        self.outgoing = asyncio.Queue()
        stub = sidecar_pb2_grpc.AgentStub(channel)  # type: ignore[no-untyped-call]
        stream: Stream = stub.Converse()
        async with asyncio.timeout(HELLO_SECONDS):  # `wait_for` would lose a cancellation that meets a message
            await stream.write(pb.CoordinatorToAgent(hello=self._agents.own_hello()))
            first = await stream.read()
        if not isinstance(first, pb.AgentToCoordinator):
            raise await _error_of_stream(stream)
        return stream if self._is_of_this_pod(first) else None

    def _is_of_this_pod(self, first: pb.AgentToCoordinator) -> bool:
        """Whether the right pod of the right job answers: the address may belong to another pod by now."""
        hello = first.hello
        if problem := versions.disagreement(hello, "the agent"):
            log.error("agent %s: %s", self.address, problem)
            return False
        if hello.job_uid != self._agents.settings.job_uid:
            log.error("agent %s is of job %s", self.address, hello.job_uid)
            return False
        if hello.pod_uid != self.uid:
            log.error("agent %s is of pod %s, not of %s", self.address, hello.pod_uid, self.uid)
            return False
        return True

    async def _read_messages(self, stream: Stream) -> None:
        while True:
            async with asyncio.timeout(SILENT_SECONDS + 0.5):
                message = await stream.read()
            if not isinstance(message, pb.AgentToCoordinator):
                raise await _error_of_stream(stream)
            self._agents.handle_agent_message(self.uid, message)

    async def _write_messages(self, stream: Stream) -> None:
        while True:
            await stream.write(await self.outgoing.get())


async def _error_of_stream(stream: Stream) -> Exception:
    """Return the error with which a stream has ended."""
    code = await stream.code()
    if code is grpc.StatusCode.OK:
        return ConnectionResetError("it hung up")
    details = await stream.details()
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)
