"""The gate: MindIO's port on this pod, through which every rank of the pod reaches the controller.

A rank's link passes only while the order admits the process that runs and the lease holds; both are looked at for
every chunk. Otherwise the gate *holds*: links stay open, bytes wait. It never accepts a connection and closes it,
because a rank whose first connect is closed gives up MindIO for good. Another controller is told everything that a rank
registered with. docs/protocols/launcher.md#the-gate
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.clock import SECOND
from trainer_sidecar.agent.gate import frames
from trainer_sidecar.agent.gate.link import GateLink, wait_until_closed
from trainer_sidecar.agent.gate.listener import Listener
from trainer_sidecar.agent.gate.passage import Passage
from trainer_sidecar.agent.gate.rank_messages import LinkedRank
from trainer_sidecar.agent.gate.registering import StandIns
from trainer_sidecar.agent.gate.rules import LinkPhase
from trainer_sidecar.agent.gate.security import RankTLSError

FROZEN_SECONDS = 2  # a check that comes this late tells of this process, not of the ranks

log = logging.getLogger(__name__)


class Gate(Listener):
    """The listener and its links.

    Attributes:
        passage: that the links share.
    """

    def __init__(self, address: str, port: int, passage: Passage) -> None:
        super().__init__(address, port, passage.rules)
        self._clock, self._registrations = passage.clock, passage.registrations
        self.passage = passage
        self._stand_ins = StandIns(passage)
        self._links: dict[GateLink, asyncio.Task[None]] = {}
        self._checked = passage.clock.now()

    async def close_port(self) -> None:
        """Stop listening and end every link."""
        self._stand_ins.end_stand_ins()
        if self.passage.security is not None:
            self.passage.security.end_tunnels()
        await super().close_port()
        self._registrations.close_files()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; a rank whose link breaks will connect again."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            frame = await reader.readexactly(frames.CONNECT.size)
            rank = frames.rank_of_connect_frame(frame)
            if rank is None or not self.rules.is_local(rank):
                await self._hold_foreign_connection(frame, reader)
            else:
                await self._serve_rank_in_the_clear(rank, frame, reader, writer)

    async def _serve_rank_in_the_clear(
        self, rank: int, frame: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if (security := self.passage.security) is not None:
            try:
                reader, writer = await security.secure_rank(reader, writer)
            except RankTLSError as problem:
                log.error("rank %d's TLS with its gate has failed: %s", rank, problem)  # noqa: TRY400  a sentence
                self.rules.report_tls(rank)
                await wait_until_closed(reader)
                return
        try:
            whose = LinkedRank(rank, self.rules.process_name(rank))
            await self._serve_rank(frame, GateLink(self.passage, whose, reader, writer))
        finally:
            writer.close()

    async def _hold_foreign_connection(self, frame: bytes, reader: asyncio.StreamReader) -> None:
        log.warning("the gate holds a connection that is no rank of this pod: %s", frame.hex())
        if frames.opens_tls(frame):
            self.rules.report_tls(None)
        await wait_until_closed(reader)

    async def _serve_rank(self, frame: bytes, link: GateLink) -> None:
        rank = link.whose.rank
        kept = self._registrations.registration_of(rank, link.whose.process)
        if kept is not None and kept.left:
            log.info("rank %d has left MindIO and connects again: closed, or its end would hang", rank)
            return
        task = asyncio.current_task()
        assert task is not None, "the listener serves every connection in a task"
        self._end_links_of_dead(rank)
        if (version := frames.version_of_connect_frame(frame)) != frames.CONNECT_VERSION:
            what = f"its connect frame is of version {version}, not {frames.CONNECT_VERSION}"
            self.passage.count_unreadable(rank, what)
        self._links[link] = task
        try:
            await link.forward_until_end(frame)
        finally:
            self._links.pop(link, None)
            link.close_both_sides()

    def gate_state(self) -> pb.GateState:
        """Return what the coordinator must know to bring another controller into service."""
        controller, kept = self.rules.controller_name(), self._registrations
        linked = [link.whose for link in self._links if link.phase is LinkPhase.LINKED]
        known = kept.ranks_known_to(controller, [(whose.rank, whose.process) for whose in linked])
        registered = sorted({*known, *self._stand_ins.registered_ranks()})
        state = pb.GateState(
            controller=controller,
            registered=registered,
            serial=kept.highest_serial,
            counter=kept.highest_repair_counter,
        )
        state.keeps_store = True
        state.unreadable = self.passage.unreadable > 0
        for rank, one in kept.registered_processes(
            (rank, self.rules.process_name(rank)) for rank in kept.registered_ranks
        ):
            actions = state.told.add(rank=rank, answered=sorted(one.answered), busy=bool(one.awaited))
            actions.repaired = one.repaired
            actions.serial = 0 if controller else one.serial
        if not controller and (last := kept.newest_action) is not None:
            state.action = last.kind
            state.word = last.content if last.kind in frames.TO_ALL else b""
        return state

    def follow_changed_order(self) -> None:
        """Let every waiting link check order and lease again; end links to a former controller."""
        self.passage.follow_changed_order()
        address, controller = self.rules.controller_address(), self.rules.controller_name()
        for link in list(self._links):
            if address:
                link.redirect_to_controller(address, controller)
            elif (word := self.rules.missed_action_of(link.whose.rank)) is not None:
                link.give_missed_action(word)
        self._stand_ins.follow_changed_order()

    def end_links(self, rank: int) -> None:
        """End the links of a rank whose process has ended: they must not be taken for its successor's."""
        for link in list(self._links):
            if link.whose.rank == rank and link.end_with_process():
                self._links[link].cancel()

    def _end_links_of_dead(self, rank: int) -> None:
        """End the replies for a dead process: another one of the rank has come to the gate, or the same again."""
        for link in list(self._links):
            if link.whose.rank == rank and link.has_ended:
                self._links[link].cancel()

    def furthest_link_phase(self, rank: int) -> LinkPhase:
        """Return the furthest phase of the rank's links."""
        phases = {link.phase for link in self._links if link.whose.rank == rank}
        for phase in (LinkPhase.LINKED, LinkPhase.AT_GATE):
            if phase in phases:
                return phase
        return LinkPhase.NONE

    def check_silence(self) -> None:
        """Look for linked ranks without heartbeats; called about every second."""
        now = self._clock.now()
        excused = now - self._checked > FROZEN_SECONDS * SECOND
        self._checked = now
        for link in list(self._links):
            with contextlib.suppress(RuntimeError):  # a transport that is closing
                link.check_silence(now, excused=excused)
