"""One rank's link through the gate: from its connect frame to the end of either side, and a moment longer for the dead.

A rank's link outlives the controller's: the gate reads the rank's messages as they come, also while it holds and while
there is no controller. docs/protocols/launcher.md#the-gate
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from trainer_sidecar.agent.clock import SECOND
from trainer_sidecar.agent.gate import frames
from trainer_sidecar.agent.gate.controller_side import ControllerSide
from trainer_sidecar.agent.gate.dead_rank_replies import DeadRankReplies
from trainer_sidecar.agent.gate.downward import Between, Downward
from trainer_sidecar.agent.gate.listener import CHUNK
from trainer_sidecar.agent.gate.outward import Outward
from trainer_sidecar.agent.gate.passage import Passage
from trainer_sidecar.agent.gate.rank_messages import LinkedRank, RankMessages
from trainer_sidecar.agent.gate.rules import LinkPhase
from trainer_sidecar.agent.gate.step_margin import StepMargin
from trainer_sidecar.agent.gate.upstream import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS

UNREAD_SECONDS = 0.05  # what a dead rank had said is read; a child that it forked may keep its link open
KNOWN_SECONDS = 2.0  # between the end of a rank's link and the news that its process has ended
ANSWERED_SECONDS = 10.0  # so long a dead rank is answered for; MindIO misses its heartbeats after 8 to 12 s

log = logging.getLogger(__name__)


class GateLink:
    """One accepted connection of a rank and, once it passes, its counterpart at the controller.

    Attributes:
        whose: link it is.
        phase: how far it is.
        has_ended: the rank's side; what is left is answered for it.
    """

    def __init__(
        self, passage: Passage, whose: LinkedRank, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._passage, self.whose, self._reader, self._writer = passage, whose, reader, writer
        self._messages = RankMessages(whose, passage)
        self._controller = ControllerSide(passage, whose, writer.write)
        self._downward: Downward | None = None
        self._outward = Outward(lambda: not self._may_pass())
        self._replies = DeadRankReplies(whose.rank)
        self._margin = StepMargin(whose.rank)
        self._died = asyncio.Event()
        self._speaks_tls = False
        self.has_ended = False
        self.phase = LinkPhase.NONE

    async def forward_until_end(self, frame: bytes) -> None:
        """Run from the connect frame, which was read, to the end of either side."""
        self._set_phase(LinkPhase.AT_GATE)
        reading = asyncio.ensure_future(self._read_rank())
        pause = FIRST_RETRY_SECONDS
        try:
            while (upstream := await self._wait_for_controller(frame, reading)) is not None:
                begun = self._passage.clock.now()
                await self._forward_both_ways(upstream, reading)
                if self.has_ended or not self._can_reconnect():
                    break
                self._set_phase(LinkPhase.AT_GATE)
                lasted = self._passage.clock.now() - begun > SECOND
                pause = FIRST_RETRY_SECONDS if lasted else min(2 * pause, LAST_RETRY_SECONDS)
                await asyncio.sleep(pause)
            if self._speaks_tls:
                await wait_until_closed(self._reader)
        finally:
            reading.cancel()

    def close_both_sides(self) -> None:
        """Close both sides."""
        self._writer.close()
        self._controller.close_connection()
        self._set_phase(LinkPhase.NONE)

    def _can_reconnect(self) -> bool:
        """Whether another connection to the controller can follow: both sides stand between two messages."""
        self._outward.detach_controller()
        return not (self._messages.is_unreadable or (self._downward is not None and self._downward.is_unreadable))

    def _set_phase(self, phase: LinkPhase) -> None:
        before, self.phase = self.phase, phase
        if phase is not before:
            self._passage.rules.note_link_change(self.whose.rank)

    async def _wait_for_controller(self, frame: bytes, reading: asyncio.Future[None]) -> asyncio.StreamReader | None:
        """Return the controller's side once it has taken the rank; None: the rank disconnected first, or speaks TLS."""
        attempt = asyncio.ensure_future(self._controller.connect_rank(frame))
        try:
            both: set[asyncio.Future[Any]] = {attempt, reading}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return None if reading.done() else await attempt
        finally:
            attempt.cancel()

    def redirect_to_controller(self, address: str, controller: str) -> None:
        """Redirect the link, waiting or open, to another controller."""
        if self._controller.is_bound_to(address, controller):
            return
        if self.phase is LinkPhase.AT_GATE:
            self._controller.cancel_attempt()
        elif self.phase is LinkPhase.LINKED:
            self._controller.abort_connection()

    def give_missed_action(self, word: frames.Message) -> None:
        """Give the rank the action that the former controller gave the others but not this one."""
        rank, process = self.whose.rank, self.whose.process
        kept = self._passage.registrations.registration_of(rank, process)
        if kept is None or self.has_ended or kept.serial >= frames.serial_of_action(word):
            return
        log.warning("rank %d is told action %d, which the former controller has told others", rank, word.kind)
        self._passage.registrations.note_passed_action(rank, process, kept.controller, word)
        self._writer.write(word.content)
        self._passage.rules.note_link_change(rank)

    async def _forward_both_ways(self, upstream: asyncio.StreamReader, reading: asyncio.Future[None]) -> None:
        """Forward in both directions until one of them ends, or the rank's process."""
        self._messages.begin_watching_silence()
        link = Between(self.whose.rank, self.whose.process, self._controller.bound or "")
        self._downward = Downward(link, self._passage, self._outward, self._margin)
        self._outward.attach_controller()
        for message in self._controller.unsent_registration_messages():
            self._outward.insert_message(message)
        self._replies.begin_connection()
        if self._controller.is_taken:
            self._set_phase(LinkPhase.LINKED)
        pumps: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._forward_to_controller()),
            asyncio.ensure_future(self._forward_to_rank(upstream, self._downward)),
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
            self._controller.close_connection()

    async def _answer_for_the_dead(self, upstream: asyncio.StreamReader, reading: asyncio.Future[None]) -> None:
        """Reply for a process that is known to have ended: MindIO would wait for what the rank owes it."""
        self._set_phase(LinkPhase.NONE)
        # What the rank wrote before it died is still in the socket, and may answer what the controller waits for.
        await asyncio.wait({reading}, timeout=UNREAD_SECONDS)
        self._writer.close()
        replies, may_answer = self._replies, self._passage.rules.may_answer_for_dead
        if replies.has_left or not self._messages.is_at_boundary:
            return
        async with asyncio.timeout(KNOWN_SECONDS):
            await self._died.wait()
        async with asyncio.timeout(ANSWERED_SECONDS):
            await self._passage.wait_until(may_answer)
            self._controller.write(self._outward.take_bytes())
            while True:
                await self._passage.wait_until(may_answer)
                self._controller.write(replies.take_owed_replies())
                data = await upstream.read(CHUNK)
                if not data:
                    return
                replies.note_actions(data)

    def end_with_process(self) -> bool:
        """End the link, because the rank's process has ended; False: it goes on until MindIO has its replies."""
        self._died.set()
        return self.phase is not LinkPhase.LINKED and not self.has_ended

    async def _read_rank(self) -> None:
        """Read what the rank says until it ends, or turns out to be TLS."""
        try:
            data = await self._reader.read(CHUNK)
            if len(data) == 1:  # two bytes tell what it is
                data += await self._reader.read(CHUNK)
            if frames.opens_tls(data):
                self._handle_tls()
                return
            while data:
                for piece in self._messages.cut_pieces(data):
                    ahead = self._passage.rules.steps_ahead()
                    await self._outward.put_piece(self._margin.with_steps_ahead(piece, ahead))
                    if piece.message is not None:
                        self._handle_rank_message(piece.message)
                data = await self._reader.read(CHUNK)
        except ConnectionError:
            pass  # as good as its end
        finally:
            self._outward.end_input()

    def _handle_tls(self) -> None:
        """MindIO sends its connect frame in the clear and begins TLS behind it."""
        log.error("rank %s speaks TLS behind its connect frame: nothing of it is passed on", self.whose.rank)
        self._speaks_tls = True
        self._set_phase(LinkPhase.NONE)
        self._passage.rules.report_tls(self.whose.rank)

    def _handle_rank_message(self, message: frames.Message) -> None:
        rank, process = self.whose.rank, self.whose.process
        if process and not self._passage.registrations.note_rank_message(rank, process, message):
            log.warning("rank %d did not register here: what it would have said is made anew", rank)
            if self._controller.bound:
                self._controller.abort_connection()
        if message.kind in frames.HANDLED.values() and not (self.phase is LinkPhase.LINKED and self._may_pass()):
            self._passage.rules.note_link_change(rank)  # another controller waits for that
        self._replies.note_rank_message(message)
        self._messages.apply_message(message)

    async def _forward_to_controller(self) -> None:
        while await self._outward.wait_for_bytes():
            await self._controller.wait_until_open()
            self._controller.write(self._outward.take_bytes())
            await self._controller.drain_writes()

    async def _forward_to_rank(self, upstream: asyncio.StreamReader, downward: Downward) -> None:
        while data := await upstream.read(CHUNK):
            self._replies.note_actions(data)
            await self._controller.wait_until_open()
            was_lost, passed = downward.is_unreadable, downward.bytes_for_rank(data)
            if downward.is_unreadable and not was_lost:
                what = "what its controller says does not look like MindIO's messages"
                self._passage.count_unreadable(self.whose.rank, what)
            if not self._writer.is_closing():
                with contextlib.suppress(ConnectionError):  # the rank's end is seen where it is read
                    self._writer.write(passed)
                    await self._writer.drain()

    def _may_pass(self) -> bool:
        """Whether the controller hears the rank; a link to a node without power may be open, and nobody hears it."""
        return self._passage.rules.may_pass(self.whose.rank)

    def check_silence(self, now: int, *, excused: bool) -> None:
        """Report the rank when it is linked, could speak, and has not for long."""
        if self.phase is LinkPhase.LINKED:
            could_speak = self._may_pass() and not (excused or self._controller.is_congested)
            self._messages.check_silence(now, could_speak=could_speak)


async def wait_until_closed(reader: asyncio.StreamReader) -> None:
    """Hold a connection of which nothing is passed on."""
    while await reader.read(CHUNK):
        pass
