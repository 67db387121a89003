"""The operator's side: one stream, of the leader with the highest fence.

A new stream of the same or a higher fence takes the place of the one before it; a lower one is told so and ended. What
goes up is a report whenever something urgent happened, a little later for what is not, and twice a second at least, so
that the operator can tell silence from rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import grpc
import grpc.aio

from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol import sidecar_pb2_grpc, versions
from hajob.protocol.addresses import host_port
from hajob.wire import tls
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.shell.clock import now
from trainer_sidecar.coordinator.shell.settings import CoordinatorSettings

log = logging.getLogger(__name__)

SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),
    tls.LARGEST_MESSAGE,
    # An operator whose machine is gone, or that is stopped, hangs up nothing; only then do standing orders count.
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 5000),
)
# The agents report one after the other within milliseconds of an event: one report tells the operator of all of them.
COALESCE_SECONDS = 0.05
# Without anything new: the operator takes a coordinator that says nothing for seconds for lost.
REST_SECONDS = 0.5
# The pod is about to go: what is not read by then nobody reads, and gRPC would wait for the operator to hang up.
FLUSH_SECONDS = 0.2
REPORTS_SHARE = 0.1
"""Of the loop's time, at most, for reports that are not urgent: one of thousands of agents takes 20 ms."""
Context = grpc.aio.ServicerContext[pb.OperatorMessage, pb.CoordinatorMessage]


class OperatorServer(sidecar_pb2_grpc.CoordinatorServicer):
    """Serves `Coordinator.Converse`.

    What the operator says goes to the core, and what the core wants then is sent at once.
    """

    def __init__(self, settings: CoordinatorSettings, core: CoordinatorCore, send_effects: Callable[[], None]) -> None:
        self._settings = settings
        self._core = core
        self._send_effects = send_effects
        self._fence = 0
        self._current: asyncio.Event | None = None
        self._urgent = asyncio.Event()
        self._news = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self._coalesce = COALESCE_SECONDS

    async def start_listening(self) -> None:
        """Listen; `RuntimeError` when address and port cannot be had."""
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        sidecar_pb2_grpc.add_CoordinatorServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        address = host_port(self._settings.endpoint.address, self._settings.port)
        self._server.add_secure_port(address, tls.server_credentials(self._settings.tls_directory))
        await self._server.start()

    @property
    def is_leader_connected(self) -> bool:
        """Whether a leader is connected."""
        return self._current is not None and not self._current.is_set()

    async def stop_listening(self) -> None:
        """Stop, once what was said is on its way."""
        if self._current is not None:
            self._current.set()
            self.wake_stream(urgent=True)
        if self._server is not None:
            await self._server.stop(FLUSH_SECONDS)

    def wake_stream(self, *, urgent: bool) -> None:
        """Wake the stream: something is to be reported."""
        (self._urgent if urgent else self._news).set()
        self._news.set()

    async def Converse(  # noqa: N802  the name is the protocol's
        self, request_iterator: AsyncIterator[pb.OperatorMessage], context: Context
    ) -> AsyncIterator[pb.CoordinatorMessage]:
        """Serve one leader's stream."""
        hello = await self._accept_leader(request_iterator, context)
        over = asyncio.Event()
        if self._current is not None:
            self._current.set()
        self._current, self._fence = over, hello.fence
        self._core.note_operator(hello.fence, now())
        yield pb.CoordinatorMessage(hello=self._own_hello(self._core.job.incidents.incarnation))
        reader = asyncio.create_task(self._read_messages(request_iterator, over))
        try:
            self.wake_stream(urgent=True)
            while await self._wait_for_report(over):
                yield pb.CoordinatorMessage(report=self._timed_report())
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
        if hello.fence < self._fence:
            await context.abort(grpc.StatusCode.ABORTED, f"a leader with fence {self._fence} has come")

    def _timed_report(self) -> pb.Report:
        began = now()
        report = self._core.next_report(now())
        self._coalesce = min(max(COALESCE_SECONDS, (now() - began) / REPORTS_SHARE), REST_SECONDS)
        return report

    async def _accept_leader(self, requests: AsyncIterator[pb.OperatorMessage], context: Context) -> pb.Hello:
        uid = self._settings.job_uid
        if f"operator.{uid}" not in tls.names_of_peer(context.auth_context()):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "only the operator may speak to a coordinator")
        hello = (await anext(requests)).hello
        if problem := versions.disagreement(hello, "the operator"):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, problem)
        if hello.job_uid != uid:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"this is job {uid}, not {hello.job_uid}")
        if hello.fence < self._fence:
            text = f"fence {hello.fence} is lower than {self._fence}, which has been here"
            await context.abort(grpc.StatusCode.ABORTED, text)
        return hello

    def _own_hello(self, incarnation: int) -> pb.Hello:
        settings = self._settings
        token = settings.token_file.read_text().strip() if settings.token_file is not None else ""
        pod_name, pod_uid = settings.pod_name, settings.pod_uid
        return versions.hello(
            settings.job_uid, incarnation=incarnation, pod_name=pod_name, pod_uid=pod_uid, token=token
        )

    async def _read_messages(self, requests: AsyncIterator[pb.OperatorMessage], over: asyncio.Event) -> None:
        try:
            async for message in requests:
                if over.is_set():
                    return
                self._handle_message(message)
        finally:
            if self.is_leader_connected and self._current is over:
                self._core.job.operator.note_operator_left(now())
            over.set()
            self._urgent.set()
            self._news.set()

    def _handle_message(self, message: pb.OperatorMessage) -> None:
        body = message.WhichOneof("body")
        if body == "assignment":
            self._core.apply_assignment(message.assignment, now())
        elif body == "order":
            self._core.apply_order(message.order, now())
        elif body == "acknowledge":
            self._core.job.effects.outbox.acknowledge_reports(message.acknowledge.sequence)
        self._send_effects()

    async def _wait_for_report(self, over: asyncio.Event) -> bool:
        """Wait until a report should go out; False when this stream is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                await self._news.wait()
        if self._news.is_set() and not self._urgent.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._coalesce):
                    await self._urgent.wait()
        self._news.clear()
        self._urgent.clear()
        return not over.is_set()
