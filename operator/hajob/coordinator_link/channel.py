"""The operator's side of the connection to one coordinator: dial it, keep it open, send the current state.

The operator sends levels: the newest Assignment and the newest Order. So this module keeps just those two, sends them
whenever a stream opens or one of them changes, and needs no queue. Reports are handed on at once in the same call,
because a report may carry a fault that needs a decision (docs/protocols/sidecar.md).

A coordinator that sends nothing for `SILENCE_SECONDS` counts as lost: it reports its state at least once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import dataclass
from typing import NoReturn, Protocol

import grpc
import grpc.aio

from hajob.clock import Clock, timeout
from hajob.leader.leadership import Leadership
from hajob.leader.probe import accepts_connection
from hajob.protocol import addresses, versions
from hajob.protocol import sidecar_pb2 as wire
from hajob.protocol.sidecar_pb2_grpc import CoordinatorStub
from hajob.wire import tls
from hajob.wire.halves import until_first_ends

log = logging.getLogger(__name__)

# A coordinator reports twice a second at least; five missing reports are no accident of the network.
SILENCE_SECONDS = 2.5
BACKOFF_SECONDS = (0.05, 0.1, 0.2, 0.5, *[1.0] * 25, 2.0, 4.0, 8.0, 16.0)
"""Between dials in vain: each second for as long as a fault lasts that passes, rarely where nobody has been for long.
The last four are shortened at random, by up to half."""
STEADY_DIALS = BACKOFF_SECONDS.index(2.0)
Stream = grpc.aio.StreamStreamCall[wire.OperatorMessage, wire.CoordinatorMessage]
CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


@dataclass(slots=True)
class CoordinatorCredentials:
    """PEM texts with which the operator proves itself to one job's coordinator.

    They are replaced in place, so that every new connection uses the newest.
    """

    authority: bytes
    certificate: bytes
    key: bytes


class ChannelListener(Protocol):
    """The receiver of a coordinator's messages: its job's controller."""

    async def check_hello(self, hello: wire.Hello) -> bool:
        """Check the coordinator's first message; False refuses it (its token does not prove its identity)."""

    def apply_report(self, report: wire.Report) -> None:
        """Handle a report. Called in the reader before it reads on: must not wait."""

    def note_connection_change(self, up: bool, reason: str) -> None:
        """Handle that the channel came up or went down, and why."""


class Dialer:
    """Makes the channels of one operator.

    Attributes:
        leadership: of this process: each coordinator is told its fence.
        clock: of the machine.
    """

    def __init__(self, leadership: Leadership, clock: Clock) -> None:
        self.leadership, self.clock = leadership, clock

    def dial(
        self, address: str, job_uid: str, credentials: CoordinatorCredentials, listener: ChannelListener
    ) -> Channel:
        """Make a channel that is not started yet."""
        return Channel(address, job_uid, credentials, listener, self)


class Channel:
    """The channel to one coordinator, by its address, from `start_dialling` until it is closed.

    A channel is made for one coordinator pod. When the pod is replaced its channel is closed and another is made, so
    nothing here ever changes its address.
    """

    def __init__(
        self,
        address: str,
        job_uid: str,
        credentials: CoordinatorCredentials,
        listener: ChannelListener,
        dialer: Dialer,
    ) -> None:
        self.address = address
        self._job_uid = job_uid
        self._credentials = credentials
        self._listener = listener
        self._leadership = dialer.leadership
        self._clock = dialer.clock
        self._assignment: wire.Assignment | None = None
        self._order: wire.Order | None = None
        self._heard = 0
        self._acknowledged = 0
        self._changed = asyncio.Event()
        self._dials = 0
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.up = False

    def start_dialling(self) -> None:
        """Start dialling."""
        self._task = asyncio.create_task(self._redial_for_ever(), name=f"channel {self.address}")

    async def close_channel(self) -> None:
        """Close the channel for good."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def send_assignment(self, assignment: wire.Assignment) -> None:
        """Send the job's description and the addresses of its pods, if they have changed."""
        if assignment != self._assignment:
            self._assignment = assignment
            self._changed.set()

    def send_order(self, order: wire.Order) -> None:
        """Send the action that the coordinator is to take now, if it has changed."""
        if order != self._order:
            self._order = order
            self._changed.set()

    def acknowledge_report(self, sequence: int) -> None:
        """Acknowledge that the effects of a report are in the status: it need not be repeated to the next leader."""
        if self._acknowledged < sequence <= self._heard:
            self._acknowledged = sequence
            self._changed.set()

    def dial_at_once(self) -> None:
        """Dial at once again, and often, because the pod has changed."""
        if not self.up:
            self._dials = 0
            self._hurry.set()

    async def _redial_for_ever(self) -> None:
        while True:
            reason = await self._run_stream() if await self._accepts_connection() else "nobody is there"
            if self.up:
                self._dials = 0
                self.up = False
                self._listener.note_connection_change(False, reason)
            log.debug("coordinator %s: %s", self.address, reason)
            await self._pause_before_dial()

    async def _pause_before_dial(self) -> None:
        """Wait before the next dial, longer each time; `dial_at_once` ends the wait."""
        seconds = BACKOFF_SECONDS[min(self._dials, len(BACKOFF_SECONDS) - 1)]
        if self._dials >= STEADY_DIALS:
            seconds *= 1 - random.random() / 2
        self._dials += 1
        self._hurry.clear()
        with contextlib.suppress(TimeoutError):
            async with timeout(self._clock, seconds):
                await self._hurry.wait()

    async def _accepts_connection(self) -> bool:
        """Whether the port accepts a connection: cheaper than a new gRPC channel (1 ms and 0.1 MiB each time)."""
        return await accepts_connection(*addresses.split(self.address), self._clock)

    async def _run_stream(self) -> str:
        """Run one stream from its opening to its end; return why it ended, in words."""
        self._heard = self._acknowledged = 0  # another process may answer now, and count from one again
        try:
            async with self._open_channel() as channel:
                stub = CoordinatorStub(channel)  # type: ignore[no-untyped-call]
                stream: Stream = stub.Converse()
                return await until_first_ends(self._read_messages(stream), self._write_levels(stream))
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        except TimeoutError:
            return f"it said nothing for {SILENCE_SECONDS} s"
        except (OSError, ValueError) as error:
            return str(error)
        except Exception as error:  # of the listener: nobody would dial again if it ended this task
            log.exception("coordinator %s: what it said could not be taken in", self.address)
            return f"an error of this program: {type(error).__name__}: {error}"

    def _open_channel(self) -> grpc.aio.Channel:
        own = self._credentials
        content = own.authority, own.key, own.certificate
        return tls.secure_channel(self.address, f"coordinator.{self._job_uid}", content, CHANNEL_OPTIONS)

    async def _read_messages(self, stream: Stream) -> str:
        async with timeout(self._clock, SILENCE_SECONDS):
            hello = await stream.read()
        if not isinstance(hello, wire.CoordinatorMessage):
            return "it hung up before a word"
        if problem := versions.disagreement(hello.hello, "the coordinator"):
            return problem
        if not await self._listener.check_hello(hello.hello):
            return "its token does not prove that it is this job's coordinator"
        self.up = True
        self._listener.note_connection_change(True, "")
        while True:
            async with timeout(self._clock, SILENCE_SECONDS):
                message = await stream.read()
            if not isinstance(message, wire.CoordinatorMessage):
                return "it hung up"
            if message.WhichOneof("body") == "report":
                self._heard = message.report.sequence
                self._listener.apply_report(message.report)

    async def _write_levels(self, stream: Stream) -> NoReturn:
        """Send assignment and order, and each again whenever it changes, until cancelled."""
        hello = versions.hello(self._job_uid, fence=self._leadership.fence)
        await self._write_message(stream, wire.OperatorMessage(hello=hello))
        assignment: wire.Assignment | None = None
        order: wire.Order | None = None
        acknowledged = 0
        while True:
            self._changed.clear()
            if self._order is not None and self._order is not order:
                order = self._order
                await self._write_message(stream, wire.OperatorMessage(order=order))
            if self._assignment is not None and self._assignment is not assignment:
                assignment = self._assignment
                await self._write_message(stream, wire.OperatorMessage(assignment=assignment))
            if self._acknowledged > acknowledged:
                acknowledged = self._acknowledged
                await self._write_message(
                    stream, wire.OperatorMessage(acknowledge=wire.Acknowledge(sequence=acknowledged))
                )
            await self._changed.wait()

    async def _write_message(self, stream: Stream, message: wire.OperatorMessage) -> None:
        await stream.write(message)
