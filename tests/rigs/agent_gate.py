"""The agent's gate to MindIO's controller over real sockets, with rules that a test sets, and what ranks send."""

from __future__ import annotations

import asyncio
import struct

from e2e.cluster.loopback import own_port
from tests.rigs.agent_node import FakeClock
from tests.rigs.rank_pod import ADDRESS, Controller, until
from trainer_sidecar.agent.gate.frames import Message
from trainer_sidecar.agent.gate.gate import Gate
from trainer_sidecar.agent.gate.passage import Passage
from trainer_sidecar.agent.gate.rules import LinkPhase


def heartbeat_message(rank: int = 2, step: int = 7, *, run_status: int = 0) -> bytes:
    """Build a rank's heartbeat as MindIO sends it."""
    return struct.pack("<hhIII", 3, 0, 56, 1, 0) + struct.pack("<iiqb3xiqq16s", rank, 0, step, run_status, 0, 0, 0, b"")


def mindio_message(kind: int, body: bytes) -> bytes:
    """Build a message of MindIO's: its head and this body."""
    return struct.pack("<hhIII", kind, 0, len(body), 1, 0) + body


REGISTER_MESSAGE = mindio_message(0, struct.pack("<i", 2))


class GateRules:
    """What the agent would decide."""

    def __init__(self) -> None:
        self.open = False
        self.ahead = 0
        self.address = ""
        self.changes: list[int] = []
        self.beats: list[tuple[int, int | None]] = []
        self.asked: list[int | None] = []
        self.silences: list[tuple[int, int]] = []
        self.problems: list[OSError] = []
        self.told: list[tuple[int, bool]] = []
        self.tls: list[int | None] = []
        self.strangers: list[tuple[int, str]] = []
        self.served_by, self.running, self.over = "", "1.0", False
        self.repaired = False
        self.dead: frozenset[int] = frozenset()
        self.word: Message | None = None
        self.untold: frozenset[int] = frozenset()

    def may_pass(self, _: int) -> bool:
        return self.open and bool(self.address)

    def controller_name(self) -> str:
        return self.served_by

    def process_name(self, _: int) -> str:
        return self.running

    def is_incarnation_over(self) -> bool:
        return self.over

    def is_already_repaired(self) -> bool:
        return self.repaired

    def steps_ahead(self) -> int:
        return self.ahead

    def missed_action_of(self, rank: int) -> Message | None:
        return self.word if rank in self.untold else None

    def ranks_to_stand_in_for(self) -> frozenset[int]:
        return self.dead if self.open else frozenset()

    def is_local(self, rank: int) -> bool:
        return rank in (2, 3)

    def may_answer_for_dead(self) -> bool:
        return self.may_pass(2)

    def controller_address(self) -> str:
        return self.address

    def note_link_change(self, rank: int) -> None:
        self.changes.append(rank)

    def apply_heartbeat(self, rank: int, step: int | None, *, asked: bool) -> None:
        self.beats.append((rank, step))
        if asked:
            self.asked.append(step)

    def report_silent_rank(self, rank: int, since: int) -> None:
        self.silences.append((rank, since))

    def note_optimizer_copies(self, rank: int, *, told: bool) -> None:
        self.told.append((rank, told))

    def report_tls(self, rank: int | None) -> None:
        self.tls.append(rank)

    def report_taken_port(self, _: int, problem: OSError) -> None:
        self.problems.append(problem)

    def report_foreign_connection(self, port: int, host: str) -> None:
        self.strangers.append((port, host))

    def may_reach_store(self) -> bool:
        return False

    def store_address(self) -> str:
        return ""

    def store_name(self) -> str:
        return ""

    def is_store_kept(self) -> bool:
        return False


class GateScene:
    """A gate, its rules, a clock, a controller behind it."""

    def __init__(self) -> None:
        self.rules = GateRules()
        self.clock = FakeClock()
        self.port = own_port()
        self.gate = Gate(ADDRESS, self.port, Passage(self.rules, self.clock))
        self.controller = Controller()

    def open(self, is_open: bool = True) -> None:
        """Let ranks pass, or no longer; the controller is there."""
        self.rules.address = self.controller.address
        self.rules.open = is_open
        self.gate.follow_changed_order()

    async def dial(self, rank: int = 2, version: int = 1) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect as a rank does."""
        reader, writer = await asyncio.open_connection(ADDRESS, self.port)
        writer.write(struct.pack("<hh4xQ", 0, version, rank))
        return reader, writer

    async def linked(self, rank: int = 2, version: int = 1) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open the gate and connect as a rank whose link comes up."""
        self.open()
        link = await self.dial(rank, version)
        assert await link[0].readexactly(2) == b"\0\0"
        await until(lambda: self.gate.furthest_link_phase(rank) is LinkPhase.LINKED, "the link")
        return link
