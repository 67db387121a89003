"""The gate: MindIO's port on this pod, through which every rank of the pod reaches the controller.

A rank's link passes only while the order admits the process that runs and the lease holds; both are looked at for
every chunk. Otherwise the gate *holds*: links stay open, bytes wait. It never accepts a connection and closes it,
because a rank whose first connect is closed gives up MindIO for good. A rank's link outlives the controller's: what the
rank says of itself is read as it comes, also while the gate holds and while there is no controller. Another controller
is told everything that the rank registered with. docs/protocols/launcher.md#the-gate
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Any

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent import frames
from trainer_sidecar.agent.clock import SECOND, Clock
from trainer_sidecar.agent.downward import Between, Downward
from trainer_sidecar.agent.gate_rules import LinkPhase, Rules
from trainer_sidecar.agent.last_words import LastWords
from trainer_sidecar.agent.listener import CHUNK, Listener
from trainer_sidecar.agent.outward import Outward
from trainer_sidecar.agent.registering import (
    CONNECT_TIMEOUT_SECONDS,
    FIRST_RETRY_SECONDS,
    LAST_RETRY_SECONDS,
    REPLY_TIMEOUT_SECONDS,
    StandIns,
    register,
)
from trainer_sidecar.agent.registrations import Registration, Registrations

SILENT_SECONDS = 8
NEVER_SPOKE_SECONDS = 30
FROZEN_SECONDS = 2  # a check that comes this late tells of this process, not of the ranks
UNREAD_SECONDS = 0.05  # what a dead rank had said is read; a child that it forked may keep its link open
KNOWN_SECONDS = 2.0  # between the end of a rank's link and the news that its process has ended
ANSWERED_SECONDS = 10.0  # so long a dead rank is answered for; MindIO misses its heartbeats after 8 to 12 s

log = logging.getLogger(__name__)


class GateLink:
    """One accepted connection and, once it passes, its counterpart at the controller."""

    def __init__(self, gate: Gate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._gate = gate
        self._reader = reader
        self._writer = writer
        self._upstream: asyncio.StreamWriter | None = None
        self._connecting: asyncio.Future[asyncio.StreamReader] | None = None
        self._frames = frames.FrameReader()
        self._downward: Downward | None = None
        self._outward = Outward(self._is_held)
        self._last_words: LastWords | None = None
        self._died = asyncio.Event()
        self.has_ended = False  # the rank's side; what is left is answered for it
        self._registered = self._told_copies = False
        self._speaks_tls = self._is_answered = False
        self.rank: int | None = None
        self.process = ""
        self.address = ""
        self.bound: str | None = None  # the controller that the connection of now goes to
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
                if frames.opens_tls(frame):
                    self._gate.rules.tls_spoken(None)
                await self._until_closed()
                return
            self.rank, self.process = rank, self._gate.rules.process(rank)
            self._last_words = LastWords(rank)
            if self._has_left():
                log.info("rank %d has left MindIO and connects again: closed, or its end would hang", rank)
                return
            self._gate.end_answers(rank)
            self._set_phase(LinkPhase.AT_GATE)
            await self._serve_rank(frame)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass  # the rank will connect again
        finally:
            self._close()

    async def _serve_rank(self, frame: bytes) -> None:
        reading = asyncio.ensure_future(self._read())
        pause = FIRST_RETRY_SECONDS
        try:
            while (upstream := await self._wait_for_upstream(frame, reading)) is not None:
                begun = self._gate.clock.now()
                await self._forward(upstream, reading)
                if self.has_ended or not self._can_go_on():
                    break
                self._set_phase(LinkPhase.AT_GATE)
                lasted = self._gate.clock.now() - begun > SECOND
                pause = FIRST_RETRY_SECONDS if lasted else min(2 * pause, LAST_RETRY_SECONDS)
                await asyncio.sleep(pause)
            if self._speaks_tls:
                await self._until_closed()
        finally:
            reading.cancel()

    def _can_go_on(self) -> bool:
        """Whether another connection to the controller can follow: both sides stand between two messages."""
        self._outward.detach()
        return not (self._frames.lost or (self._downward is not None and self._downward.lost))

    def _has_left(self) -> bool:
        kept = self._registration()
        return kept is not None and kept.left

    def _registration(self) -> Registration | None:
        assert self.rank is not None
        return self._gate.registrations.of(self.rank, self.process)

    async def _until_closed(self) -> None:
        while await self._reader.read(CHUNK):
            pass

    def _is_held(self) -> bool:
        return self.rank is None or not self._gate.rules.may_pass(self.rank)

    def _set_phase(self, phase: LinkPhase) -> None:
        before, self.phase = self.phase, phase
        if self.rank is not None and phase is not before:
            self._gate.rules.link_changed(self.rank)

    def _close(self) -> None:
        for writer in (self._writer, self._upstream):
            if writer is not None:
                writer.close()
        self._gate.forget(self)
        self._set_phase(LinkPhase.NONE)

    async def _wait_for_upstream(self, frame: bytes, reading: asyncio.Future[None]) -> asyncio.StreamReader | None:
        """The controller's side once it has taken the rank; None: the rank went away first, or speaks TLS."""
        attempt = asyncio.ensure_future(self._connect_until_taken(frame))
        try:
            both: set[asyncio.Future[Any]] = {attempt, reading}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return None if reading.done() else await attempt
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
            self._hang_up()
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_RETRY_SECONDS)

    def _hang_up(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
        self._upstream = self.bound = None

    def redirect(self, address: str, controller: str) -> None:
        """The controller is another one now: a link goes there, be it that it waits or that it was open."""
        if (self.address, self.bound) == (address, controller):
            return
        if self.phase is LinkPhase.AT_GATE and self._connecting is not None:
            self._connecting.cancel()
        elif self.phase is LinkPhase.LINKED and self._upstream is not None:
            self._upstream.transport.abort()

    async def _connect(self, frame: bytes) -> asyncio.StreamReader:
        rules = self._gate.rules
        self.address, self.bound = rules.controller_address(), rules.controller()
        self.process = self.process or rules.process(self.rank or 0)  # known by now, or it might not pass
        host, _, port = self.address.rpartition(":")
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            reader, self._upstream = await asyncio.open_connection(host.strip("[]"), int(port), limit=CHUNK)
        await self._gate.until_open(self)
        self._upstream.write(frame)
        async with asyncio.timeout(REPLY_TIMEOUT_SECONDS):
            reply = await reader.readexactly(frames.REPLY.size)
        await self._gate.until_open(self)
        self.taken = frames.REPLY.unpack(reply)[0] == 0
        if self._is_answered and not self.taken:
            raise ValueError(f"the rank is not taken again: {reply.hex()}")
        kept = self._registration()
        if kept is not None and kept.controller != self.bound and self.taken:
            await self._make_known(reader, kept)
        if not self._is_answered:
            self._is_answered = True
            self._writer.write(reply)
        return reader

    async def _make_known(self, reader: asyncio.StreamReader, kept: Registration) -> None:
        """Another controller learns what the one before knew; what it replies is not for the rank."""
        assert self._upstream is not None
        assert self.rank is not None
        assert self.bound is not None
        await register(reader, self._upstream, kept, lambda: self._gate.until_open(self))
        if kept.heartbeat:
            self._upstream.write(kept.heartbeat)
        log.info("rank %d is known to another controller, %s", self.rank, self.bound)
        self._gate.registrations.now_known(self.rank, kept, self.bound)

    async def _forward(self, upstream: asyncio.StreamReader, reading: asyncio.Future[None]) -> None:
        """Both directions until one of them ends, or the rank's process."""
        assert self._upstream is not None
        self.spoke = self._gate.clock.now()
        assert self.rank is not None
        link = Between(self.rank, self.process, self.bound or "")
        self._downward = Downward(link, self._gate.rules, self._gate.registrations, self._outward)
        self._outward.attach()
        if self._last_words is not None:
            self._last_words.begin()
        if self.taken:
            self._set_phase(LinkPhase.LINKED)
        pumps: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._pass_outward(self._upstream)),
            asyncio.ensure_future(self._pass_inward(upstream)),
            asyncio.ensure_future(self._died.wait()),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            self.has_ended = reading.done() or self._died.is_set()
        finally:
            for task in pumps:
                task.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        try:
            if self.has_ended and not self._speaks_tls:
                await self._answer_for_the_dead(upstream, reading)
        finally:
            self._hang_up()

    async def _answer_for_the_dead(self, upstream: asyncio.StreamReader, reading: asyncio.Future[None]) -> None:
        """MindIO would wait for what the rank owes it; only a process that is known to have ended is answered for."""
        assert self._upstream is not None
        self._set_phase(LinkPhase.NONE)
        await asyncio.wait({reading}, timeout=UNREAD_SECONDS)
        self._writer.close()
        words = self._last_words
        if words is None or words.has_left or not self._frames.is_at_boundary:
            return
        async with asyncio.timeout(KNOWN_SECONDS):
            await self._died.wait()
        async with asyncio.timeout(ANSWERED_SECONDS):
            await self._gate.until(self._gate.rules.may_answer)
            self._upstream.write(self._outward.take())
            while True:
                await self._gate.until(self._gate.rules.may_answer)
                self._upstream.write(words.take())
                data = await upstream.read(CHUNK)
                if not data:
                    return
                words.ordered(data)

    def end(self) -> None:
        """The rank's process has ended."""
        self._died.set()
        if self.phase is not LinkPhase.LINKED and not self.has_ended:
            self._gate.end(self)

    async def _read(self) -> None:
        """Read what the rank says until it ends, or turns out to be TLS."""
        try:
            data = await self._reader.read(CHUNK)
            if len(data) == 1:  # two bytes tell what it is
                data += await self._reader.read(CHUNK)
            if frames.opens_tls(data):
                self._found_tls()
                return
            while data:
                for piece in self._cut(data):
                    await self._outward.put(piece)
                    if piece.message is not None:
                        self._listen(piece.message)
                data = await self._reader.read(CHUNK)
        except ConnectionError:
            pass  # as good as its end
        finally:
            self._outward.end()

    def _found_tls(self) -> None:
        """MindIO sends its connect frame in the clear and begins TLS behind it."""
        log.error("rank %s speaks TLS behind its connect frame: nothing of it is passed on", self.rank)
        self._speaks_tls = True
        self._set_phase(LinkPhase.NONE)
        self._gate.rules.tls_spoken(self.rank)

    def _cut(self, data: bytes) -> Iterable[frames.Piece]:
        """The messages in these bytes; whatever goes wrong with reading them, the bytes pass."""
        was_lost = self._frames.lost
        try:
            pieces = self._frames.feed(data)
        except Exception:
            log.exception("the messages of rank %s cannot be read", self.rank)
            self._frames.lost = True
            pieces = [frames.Piece(data)]
        if self._frames.lost and not was_lost:
            self._gate.count_unreadable(self.rank, "its bytes do not look like MindIO's messages")
        return pieces

    async def _pass_outward(self, upstream: asyncio.StreamWriter) -> None:
        while await self._outward.until_some():
            await self._gate.until_open(self)
            upstream.write(self._outward.take())
            await upstream.drain()

    async def _pass_inward(self, upstream: asyncio.StreamReader) -> None:
        words = self._last_words
        assert words is not None
        while data := await upstream.read(CHUNK):
            words.ordered(data)
            await self._gate.until_open(self)
            passed = self._downward.take(data) if self._downward is not None else data
            if not self._writer.is_closing():
                with contextlib.suppress(ConnectionError):  # the rank's end is seen where it is read
                    self._writer.write(passed)
                    await self._writer.drain()

    def _listen(self, message: frames.Message) -> None:
        knows = self.rank is not None and self.process
        if knows and not self._gate.registrations.said(self.rank or 0, self.process, message):
            log.warning("rank %d did not register here: what it would have said is made anew", self.rank)
            if self._upstream is not None and self.bound:
                self._upstream.transport.abort()
        if message.kind == frames.REGISTER:
            self._registered = True
        elif message.kind == frames.COPIES:
            self._told_copies = True
        if self.rank is None or self._last_words is None:
            return
        self._last_words.said(message)
        if message.kind not in frames.STATUS_OFFSETS:
            return
        status = message.status()
        if status is None or status.rank != self.rank:
            self._gate.count_unreadable(self.rank, f"a message of type {message.kind} has another size or rank")
            return
        self.heartbeats += message.kind == frames.HEARTBEAT
        self.spoke = self._gate.clock.now()
        self.reported_silent = False
        self._gate.rules.heartbeat(self.rank, status.step, asked=message.kind != frames.HEARTBEAT)
        if self._registered:
            self._gate.rules.copies(self.rank, told=self._told_copies)

    def check_silence(self, now: int, *, excused: bool) -> None:
        """Report the rank when it is linked, could speak, and has not for 8 s (30 s when it never has)."""
        if self.phase is not LinkPhase.LINKED or self.rank is None or self._frames.lost:
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

    Attributes:
        unreadable: Messages of ranks that could not be read. They have passed all the same.
    """

    def __init__(
        self, address: str, port: int, rules: Rules, clock: Clock, registrations: Registrations | None = None
    ) -> None:
        self.rules = rules
        self.clock = clock
        self.registrations = registrations if registrations is not None else Registrations()
        self._stand_ins = StandIns(rules, self.registrations)
        self.listener = Listener(address, port, self._serve, rules)
        self._links: dict[GateLink, asyncio.Task[None]] = {}
        self._change = asyncio.Event()
        self._checked = clock.now()
        self.unreadable = 0

    async def listen(self) -> None:
        """Listen; while the port is somebody else's, say so and try again every second."""
        await self.listener.listen()

    async def close(self) -> None:
        """Stop listening and end every link."""
        self._stand_ins.close()
        await self.listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = GateLink(self, reader, writer)
        task = asyncio.current_task()
        assert task is not None, "the listener serves every connection in a task"
        self._links[link] = task
        await link.run()

    def count_unreadable(self, rank: int | None, what: str) -> None:
        """A message could not be read."""
        self.unreadable += 1
        if self.unreadable.bit_count() == 1:  # the first, second, fourth …: each heartbeat may be one
            log.warning("rank %s: %s; passed on unread (number %d)", rank, what, self.unreadable)

    def forget(self, link: GateLink) -> None:
        """A link has ended."""
        self._links.pop(link, None)

    async def until_open(self, link: GateLink) -> None:
        """Wait until the link's bytes may pass; at once when they may."""
        rank = link.rank
        assert rank is not None
        await self.until(lambda: self.rules.may_pass(rank))
        if link.bound is not None and link.bound != self.rules.controller():
            raise ConnectionAbortedError("another controller is in service")

    async def until(self, allowed: Callable[[], bool]) -> None:
        """Wait until order and lease allow it; at once when they do."""
        while not allowed():
            await self._change.wait()

    def state(self) -> pb.GateState:
        """What the coordinator must know to bring another controller into service."""
        controller, kept = self.rules.controller(), self.registrations
        links = [(link.rank, link.process) for link in self._links if link.phase is LinkPhase.LINKED]
        known = kept.known(controller, [(rank, process) for rank, process in links if rank is not None])
        registered = sorted({*known, *self._stand_ins.done()})
        state = pb.GateState(controller=controller, registered=registered, serial=kept.serial, counter=kept.counter)
        for rank, answered in kept.told((rank, self.rules.process(rank)) for rank in kept.ranks):
            state.told.add(rank=rank, answered=answered)
        return state

    def changed(self) -> None:
        """Order or lease has changed: let every waiting link look again; links to a former controller end."""
        self._change.set()
        self._change = asyncio.Event()
        address, controller = self.rules.controller_address(), self.rules.controller()
        for link in list(self._links):
            if address:
                link.redirect(address, controller)
        self._stand_ins.follow()

    def end(self, link: GateLink) -> None:
        """End one link."""
        if link in self._links:
            self._links[link].cancel()

    def end_links(self, rank: int) -> None:
        """The rank's process has ended: its links must not be taken for its successor's."""
        for link in list(self._links):
            if link.rank == rank:
                link.end()

    def end_answers(self, rank: int) -> None:
        """Another process of the rank has come to the gate, or the same one again."""
        for link in list(self._links):
            if link.rank == rank and link.has_ended:
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
