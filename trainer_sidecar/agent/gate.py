"""The gate: MindIO's port on this pod, through which every rank of the pod reaches the controller.

A rank's link passes only while the order admits the process that runs and the lease holds; both are looked at for
every chunk. Otherwise the gate *holds*: links stay open, bytes wait. It never accepts a connection and closes it,
because a rank whose first connect is closed gives up MindIO for good; a link that was open may break, the rank then
connects again. docs/protocols/launcher.md#the-gate
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import fcntl
import logging
import resource
import socket
from typing import Any, Protocol

from trainer_sidecar.agent import frames
from trainer_sidecar.agent.clock import SECOND, Clock

CHUNK = 65536
BACKLOG = 512
LISTENER_DESCRIPTOR = 4000
BIND_RETRY_SECONDS = 1.0
CONNECT_TIMEOUT_SECONDS = 5.0
REPLY_TIMEOUT_SECONDS = 30.0
FIRST_RETRY_SECONDS = 0.05
LAST_RETRY_SECONDS = 1.0
SILENT_SECONDS = 8
NEVER_SPOKE_SECONDS = 30
FROZEN_SECONDS = 2  # a check that comes this late tells of this process, not of the ranks

log = logging.getLogger(__name__)


class LinkPhase(enum.Enum):
    """How far a rank's newest link is."""

    NONE = "none"
    AT_GATE = "at gate"
    LINKED = "linked"


class Rules(Protocol):
    """What the gate asks, and tells, the rest of the agent."""

    def may_pass(self, rank: int) -> bool:
        """Whether this rank's bytes may pass now."""

    def is_local(self, rank: int) -> bool:
        """Whether this pod has that rank."""

    def controller_address(self) -> str:
        """host:port of the MindIO controller, empty while there is none."""

    def link_changed(self, rank: int) -> None:
        """A link of this rank was opened, linked or closed."""

    def heartbeat(self, rank: int, step: int) -> None:
        """A heartbeat has passed."""

    def copies(self, rank: int, *, told: bool) -> None:
        """At each heartbeat of a link on which the rank registered: whether it told MindIO of its copies."""

    def tls_spoken(self) -> None:
        """A process of this pod opened a connection with a TLS handshake."""

    def silent(self, rank: int, since: int) -> None:
        """A linked rank has said nothing since then, although it could."""

    def port_taken(self, problem: OSError) -> None:
        """The gate can't listen."""


class Link:
    """One accepted connection and, once it passes, its counterpart at the controller."""

    def __init__(self, gate: Gate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._gate = gate
        self._reader = reader
        self._writer = writer
        self._upstream: asyncio.StreamWriter | None = None
        self._connecting: asyncio.Future[asyncio.StreamReader] | None = None
        self._heartbeats = frames.HeartbeatReader()
        self.rank: int | None = None
        self.address = ""
        self.phase = LinkPhase.NONE
        self.taken = False
        self.heartbeats = 0
        self.spoke = 0  # when it last said something, or could not
        self.reported_silent = False

    async def run(self) -> None:
        """From the connect frame to the end of either side."""
        try:
            frame = await self._reader.readexactly(frames.CONNECT.size)
            rank = frames.connecting_rank(frame)
            if rank is None or not self._gate.rules.is_local(rank):
                log.warning("the gate holds a connection that is no rank of this pod: %s", frame.hex())
                if frames.opens_tls(frame) and self._gate.is_own(self._writer.get_extra_info("peername")):
                    self._gate.rules.tls_spoken()
                await self._until_closed()
                return
            self.rank = rank
            self._set_phase(LinkPhase.AT_GATE)
            early = asyncio.ensure_future(self._reader.read(CHUNK))
            try:
                upstream = await self._wait_for_upstream(frame, early)
                if upstream is not None:
                    await self._forward(upstream, early)
            finally:
                early.cancel()
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass  # the rank will connect again
        finally:
            self._close()

    async def _until_closed(self) -> None:
        while await self._reader.read(CHUNK):
            pass

    def _set_phase(self, phase: LinkPhase) -> None:
        self.phase = phase
        if self.rank is not None:
            self._gate.rules.link_changed(self.rank)

    def _close(self) -> None:
        for writer in (self._writer, self._upstream):
            if writer is not None:
                writer.close()
        self._gate.forget(self)
        self._set_phase(LinkPhase.NONE)

    async def _wait_for_upstream(self, frame: bytes, early: asyncio.Future[bytes]) -> asyncio.StreamReader | None:
        """The controller's side once it has taken the rank; None: the rank went away first."""
        attempt = asyncio.ensure_future(self._connect_until_taken(frame))
        try:
            both: set[asyncio.Future[Any]] = {attempt, early}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if early.done() and (early.exception() is not None or not early.result()):
                return None
            return await attempt
        finally:
            attempt.cancel()

    async def _connect_until_taken(self, frame: bytes) -> asyncio.StreamReader:
        """Connect to the controller as often as it takes, only while that is allowed."""
        delay = FIRST_RETRY_SECONDS
        while True:
            await self._gate.until_open(self)
            self._connecting = asyncio.ensure_future(self._connect(frame))
            try:
                await asyncio.wait({self._connecting})
                if not self._connecting.cancelled():
                    return self._connecting.result()
            except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as problem:
                log.info("rank %s waits at the gate: controller %s: %r", self.rank, self.address, problem)
            finally:
                self._connecting.cancel()
            if self._upstream is not None:
                self._upstream.close()
                self._upstream = None
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_RETRY_SECONDS)

    def redirect(self, address: str) -> None:
        """The controller is elsewhere now: a link that waits tries there, one that is open ends."""
        if self.phase is LinkPhase.AT_GATE and self._connecting is not None and self.address != address:
            self._connecting.cancel()
        elif self.phase is LinkPhase.LINKED and self.address != address:
            self._gate.end(self)

    async def _connect(self, frame: bytes) -> asyncio.StreamReader:
        self.address = self._gate.rules.controller_address()
        host, _, port = self.address.rpartition(":")
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            reader, self._upstream = await asyncio.open_connection(host.strip("[]"), int(port), limit=CHUNK)
        await self._gate.until_open(self)
        self._upstream.write(frame)
        async with asyncio.timeout(REPLY_TIMEOUT_SECONDS):
            reply = await reader.readexactly(frames.REPLY.size)
        await self._gate.until_open(self)
        self._writer.write(reply)
        self.taken = frames.REPLY.unpack(reply)[0] == 0
        return reader

    async def _forward(self, upstream: asyncio.StreamReader, early: asyncio.Future[bytes]) -> None:
        """Both directions until one of them ends."""
        assert self._upstream is not None
        self.spoke = self._gate.clock.now()
        if self.taken:
            self._set_phase(LinkPhase.LINKED)
        nothing: asyncio.Future[bytes] = asyncio.ensure_future(upstream.read(CHUNK))
        pumps = [
            asyncio.ensure_future(self._pump(self._reader, self._upstream, early, outward=True)),
            asyncio.ensure_future(self._pump(upstream, self._writer, nothing, outward=False)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended: list[asyncio.Future[Any]] = [*pumps, nothing]
            for task in ended:
                task.cancel()
            await asyncio.gather(*ended, return_exceptions=True)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        first: asyncio.Future[bytes],
        *,
        outward: bool,
    ) -> None:
        data = await first
        while data:
            await self._gate.until_open(self)
            if outward:
                self._listen(data)
            writer.write(data)
            await writer.drain()
            await self._gate.until_open(self)
            data = await reader.read(CHUNK)

    def _listen(self, data: bytes) -> None:
        for beat in self._heartbeats.feed(data):
            self.heartbeats += 1
            self.spoke = self._gate.clock.now()
            self.reported_silent = False
            if self.rank is not None:
                self._gate.rules.heartbeat(self.rank, beat.step)
                if self._heartbeats.registered:
                    self._gate.rules.copies(self.rank, told=self._heartbeats.told_copies)

    def check_silence(self, now: int, *, excused: bool) -> None:
        """Report the rank when it is linked, could speak, and has not for 8 s (30 s when it never has)."""
        if self.phase is not LinkPhase.LINKED or self.rank is None or self._heartbeats.is_lost:
            return
        congested = self._upstream is not None and self._upstream.transport.get_write_buffer_size() > 0
        if excused or congested or not self._gate.rules.may_pass(self.rank):
            self.spoke = now
            return
        limit = (SILENT_SECONDS if self.heartbeats else NEVER_SPOKE_SECONDS) * SECOND
        if now - self.spoke > limit and not self.reported_silent:
            self.reported_silent = True
            self._gate.rules.silent(self.rank, self.spoke)


class Gate:
    """The listener and its links.

    When the agent is killed, its sockets are closed one after the other, and a rank that lost its link connects again
    within microseconds: were the listener still open then, the kernel would accept that connection and close it. Linux
    closes a dying process's descriptors from the highest down (measured: a listener below its links accepted and closed
    135 of 300 such connections, one above them none), so the listener has a higher one than any link will get.
    """

    def __init__(self, address: str, port: int, rules: Rules, clock: Clock) -> None:
        self._address = address
        self._port = port
        self.rules = rules
        self.clock = clock
        self._links: dict[Link, asyncio.Task[None]] = {}
        self._change = asyncio.Event()
        self._checked = clock.now()
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Listen; while the port is somebody else's, say so and try again every second."""
        while self._server is None:
            try:
                self._server = await asyncio.start_server(
                    self._accept,
                    sock=self._socket(),
                    limit=CHUNK,
                    backlog=BACKLOG,  # it listens again, by default to 100
                )
            except OSError as problem:
                self.rules.port_taken(problem)
                await asyncio.sleep(BIND_RETRY_SECONDS)

    def _socket(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._address, self._port))
            listener.listen(BACKLOG)
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            highest = min(LISTENER_DESCRIPTOR, limit - 16)
            return socket.socket(fileno=fcntl.fcntl(listener.fileno(), fcntl.F_DUPFD_CLOEXEC, highest))

    async def close(self) -> None:
        """Stop listening and end every link."""
        if self._server is not None:
            self._server.close()
        for task in list(self._links.values()):
            task.cancel()
        await asyncio.gather(*self._links.values(), return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self, reader, writer)
        task = asyncio.ensure_future(link.run())
        self._links[link] = task
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def is_own(self, peer: tuple[Any, ...] | None) -> bool:
        """Whether this comes from this pod itself, and is not somebody who tries ports."""
        host = str(peer[0]) if peer else ""
        return host == self._address or host.startswith("127.") or host == "::1"

    def forget(self, link: Link) -> None:
        """A link has ended."""
        self._links.pop(link, None)

    async def until_open(self, link: Link) -> None:
        """Wait until the link's bytes may pass; at once when they may."""
        assert link.rank is not None
        while not self.rules.may_pass(link.rank):
            await self._change.wait()

    def changed(self) -> None:
        """Order or lease has changed: let every waiting link look again; links to a former controller end."""
        self._change.set()
        self._change = asyncio.Event()
        address = self.rules.controller_address()
        for link in list(self._links):
            if address:
                link.redirect(address)

    def end(self, link: Link) -> None:
        """End one link."""
        if link in self._links:
            self._links[link].cancel()

    def end_links(self, rank: int) -> None:
        """The rank's process has ended: its links must not be taken for its successor's."""
        for link in list(self._links):
            if link.rank == rank:
                self.end(link)

    def phase(self, rank: int) -> LinkPhase:
        """The furthest phase of the rank's links."""
        phases = {link.phase for link in self._links if link.rank == rank}
        for phase in (LinkPhase.LINKED, LinkPhase.AT_GATE):
            if phase in phases:
                return phase
        return LinkPhase.NONE

    def check_silence(self) -> None:
        """Look for linked ranks without heartbeats; called about every second."""
        now = self.clock.now()
        excused = now - self._checked > FROZEN_SECONDS * SECOND
        self._checked = now
        for link in list(self._links):
            with contextlib.suppress(RuntimeError):  # a transport that is closing
                link.check_silence(now, excused=excused)
