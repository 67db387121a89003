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
from collections.abc import Callable

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.clock import SECOND, Clock
from trainer_sidecar.agent.gate import frames
from trainer_sidecar.agent.gate.link import GateLink, wait_until_closed
from trainer_sidecar.agent.gate.listener import Listener
from trainer_sidecar.agent.gate.rank_messages import LinkedRank
from trainer_sidecar.agent.gate.registering import StandIns
from trainer_sidecar.agent.gate.registrations import Registrations
from trainer_sidecar.agent.gate.rules import LinkPhase, Rules

FROZEN_SECONDS = 2  # a check that comes this late tells of this process, not of the ranks

log = logging.getLogger(__name__)


class Gate(Listener):
    """The listener and its links.

    Attributes:
        unreadable: Messages that could not be read. They have passed all the same; no other controller can take over.
    """

    def __init__(
        self, address: str, port: int, rules: Rules, clock: Clock, registrations: Registrations | None = None
    ) -> None:
        super().__init__(address, port, rules)
        self.rules = rules
        self.clock = clock
        self.registrations = registrations if registrations is not None else Registrations()
        self._stand_ins = StandIns(rules, self.registrations)
        self._links: dict[GateLink, asyncio.Task[None]] = {}
        self._change = asyncio.Event()
        self._checked = clock.now()
        self.unreadable = 0

    async def close(self) -> None:
        """Stop listening and end every link."""
        self._stand_ins.close()
        await super().close()
        self.registrations.close()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; a rank whose link breaks will connect again."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            frame = await reader.readexactly(frames.CONNECT.size)
            rank = frames.rank_of_connect_frame(frame)
            if rank is None or not self.rules.is_local(rank):
                await self._hold_foreign_connection(frame, reader)
            else:
                whose = LinkedRank(rank, self.rules.process_name(rank))
                await self._serve_rank(frame, GateLink(self, whose, reader, writer))

    async def _hold_foreign_connection(self, frame: bytes, reader: asyncio.StreamReader) -> None:
        log.warning("the gate holds a connection that is no rank of this pod: %s", frame.hex())
        if frames.opens_tls(frame):
            self.rules.report_tls(None)
        await wait_until_closed(reader)

    async def _serve_rank(self, frame: bytes, link: GateLink) -> None:
        rank = link.whose.rank
        kept = self.registrations.registration_of(rank, link.whose.process)
        if kept is not None and kept.left:
            log.info("rank %d has left MindIO and connects again: closed, or its end would hang", rank)
            return
        task = asyncio.current_task()
        assert task is not None, "the listener serves every connection in a task"
        self._end_links_of_dead(rank)
        if (version := frames.version_of_connect_frame(frame)) != frames.CONNECT_VERSION:
            self.count_unreadable(rank, f"its connect frame is of version {version}, not {frames.CONNECT_VERSION}")
        self._links[link] = task
        try:
            await link.forward_until_end(frame)
        finally:
            self._links.pop(link, None)
            link.close()

    def count_unreadable(self, rank: int, what: str) -> None:
        """Count a message that could not be read."""
        self.unreadable += 1
        if self.unreadable.bit_count() == 1:  # the first, second, fourth …: each heartbeat may be one
            log.warning("rank %s: %s; passed on unread (number %d)", rank, what, self.unreadable)

    async def wait_until_open(self, rank: int, bound: str | None) -> None:
        """Wait until the rank's bytes may pass; at once when they may. `bound`: the controller that they go to."""
        await self.wait_until(lambda: self.rules.may_pass(rank))
        if bound is not None and bound != self.rules.controller_name():
            raise ConnectionAbortedError("another controller is in service")

    async def wait_until(self, allowed: Callable[[], bool]) -> None:
        """Wait until order and lease allow it; at once when they do."""
        while not allowed():
            await self._change.wait()

    def gate_state(self) -> pb.GateState:
        """Return what the coordinator must know to bring another controller into service."""
        controller, kept = self.rules.controller_name(), self.registrations
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
        state.unreadable = self.unreadable > 0
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
        self._change.set()
        self._change = asyncio.Event()
        address, controller = self.rules.controller_address(), self.rules.controller_name()
        for link in list(self._links):
            if address:
                link.redirect_to_controller(address, controller)
            elif (word := self.rules.missed_action_of(link.whose.rank)) is not None:
                link.give_missed_action(word)
        self._stand_ins.follow_changed_order()

    def end_link(self, link: GateLink) -> None:
        """End one link."""
        if link in self._links:
            self._links[link].cancel()

    def end_links(self, rank: int) -> None:
        """End the links of a rank whose process has ended: they must not be taken for its successor's."""
        for link in list(self._links):
            if link.whose.rank == rank:
                link.end_with_process()

    def _end_links_of_dead(self, rank: int) -> None:
        """End the replies for a dead process: another one of the rank has come to the gate, or the same again."""
        for link in list(self._links):
            if link.whose.rank == rank and link.has_ended:
                self.end_link(link)

    def furthest_link_phase(self, rank: int) -> LinkPhase:
        """Return the furthest phase of the rank's links."""
        phases = {link.phase for link in self._links if link.whose.rank == rank}
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
