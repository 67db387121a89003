"""The gate over real sockets, with rules that a test sets: it holds, it forwards, it never accepts and closes."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from e2e.cluster.loopback import own_port
from tests.unit.agent.fakes import FakeClock
from tests.unit.agent.rig import ADDRESS, Controller, until
from trainer_sidecar.agent.frames import HeartbeatReader
from trainer_sidecar.agent.gate import Gate, LinkPhase

HEARTBEAT = struct.pack("<hhIII", 3, 0, 56, 1, 0) + struct.pack("<iiq4xiqq16s", 2, 0, 7, 0, 0, 0, b"")


class Rules:
    """What the agent would decide."""

    def __init__(self) -> None:
        self.open = False
        self.address = ""
        self.changes: list[int] = []
        self.beats: list[tuple[int, int]] = []
        self.silences: list[tuple[int, int]] = []
        self.problems: list[OSError] = []
        self.told: list[tuple[int, bool]] = []
        self.tls = 0

    def may_pass(self, _: int) -> bool:
        return self.open and bool(self.address)

    def is_local(self, rank: int) -> bool:
        return rank in (2, 3)

    def controller_address(self) -> str:
        return self.address

    def link_changed(self, rank: int) -> None:
        self.changes.append(rank)

    def heartbeat(self, rank: int, step: int) -> None:
        self.beats.append((rank, step))

    def silent(self, rank: int, since: int) -> None:
        self.silences.append((rank, since))

    def copies(self, rank: int, *, told: bool) -> None:
        self.told.append((rank, told))

    def tls_spoken(self) -> None:
        self.tls += 1

    def port_taken(self, problem: OSError) -> None:
        self.problems.append(problem)


class Scene:
    """A gate, its rules, a clock, a controller behind it."""

    def __init__(self) -> None:
        self.rules = Rules()
        self.clock = FakeClock()
        self.port = own_port()
        self.gate = Gate(ADDRESS, self.port, self.rules, self.clock)
        self.controller = Controller()

    def open(self, is_open: bool = True) -> None:
        self.rules.address = self.controller.address
        self.rules.open = is_open
        self.gate.changed()

    async def dial(self, rank: int = 2) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(ADDRESS, self.port)
        writer.write(struct.pack("<hh4xQ", 0, 1, rank))
        return reader, writer

    async def linked(self, rank: int = 2) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.open()
        link = await self.dial(rank)
        assert await link[0].readexactly(2) == b"\0\0"
        await until(lambda: self.gate.phase(rank) is LinkPhase.LINKED, "the link")
        return link


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    await made.controller.start()
    await made.gate.listen()
    yield made
    await made.gate.close()
    await made.controller.stop()


async def test_a_rank_that_may_not_pass_is_held_and_taken_later(scene: Scene) -> None:
    reader, _ = await scene.dial()
    await until(lambda: scene.gate.phase(2) is LinkPhase.AT_GATE, "the held link")
    assert scene.controller.links == []
    scene.open()
    assert await reader.readexactly(2) == b"\0\0"
    assert scene.controller.links == [2]
    assert scene.rules.changes


async def test_without_the_lease_bytes_wait_and_nothing_is_closed(scene: Scene) -> None:
    reader, writer = await scene.linked()
    writer.write(HEARTBEAT)
    await until(lambda: scene.controller.heard.get(2) == len(HEARTBEAT), "the first heartbeat")
    scene.open(False)
    for _ in range(50):
        writer.write(HEARTBEAT)
        await writer.drain()
    await asyncio.sleep(0.1)
    assert scene.controller.heard[2] == len(HEARTBEAT)
    assert not reader.at_eof()
    scene.open()
    await until(lambda: scene.controller.heard[2] == 51 * len(HEARTBEAT), "the bytes that waited")
    assert scene.controller.links == [2]
    assert len(scene.rules.beats) == 51
    assert scene.rules.beats[0] == (2, 7)


async def test_the_controllers_bytes_wait_too(scene: Scene) -> None:
    reader, _ = await scene.linked()
    scene.open(False)
    scene.controller.send(b"stop")
    await asyncio.sleep(0.1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.readexactly(1), 0.05)
    scene.open()
    assert await reader.readexactly(4) == b"stop"


async def test_a_held_gate_pushes_back_instead_of_buffering(scene: Scene) -> None:
    _, writer = await scene.linked()
    scene.open(False)

    async def flood() -> None:
        while True:
            writer.write(bytes(1 << 20))
            await writer.drain()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(flood(), 1)
    assert scene.controller.heard.get(2, 0) < 4 << 20


async def test_a_rank_is_held_until_the_controller_answers(scene: Scene) -> None:
    await scene.controller.stop()
    scene.open()
    reader, _ = await scene.dial()
    await until(lambda: scene.gate.phase(2) is LinkPhase.AT_GATE, "the held link")
    await asyncio.sleep(0.2)
    assert not reader.at_eof()
    await scene.controller.start()
    assert await reader.readexactly(2) == b"\0\0"


async def test_a_controller_that_closes_before_its_reply_is_tried_again(scene: Scene) -> None:
    scene.controller.answering = False
    scene.open()
    reader, _ = await scene.dial()
    await until(lambda: scene.controller.refused > 1, "a second try")
    assert not reader.at_eof()
    scene.controller.answering = True
    assert await reader.readexactly(2) == b"\0\0"


async def test_a_dead_controller_breaks_the_link_and_the_next_one_is_held(scene: Scene) -> None:
    reader, _ = await scene.linked()
    await scene.controller.stop()
    assert await reader.read() == b""
    again, _ = await scene.dial()
    await until(lambda: scene.gate.phase(2) is LinkPhase.AT_GATE, "the held link")
    await asyncio.sleep(0.1)
    assert not again.at_eof()
    await scene.controller.start()
    assert await again.readexactly(2) == b"\0\0"


async def test_links_follow_the_controller_to_another_address(scene: Scene) -> None:
    reader, _ = await scene.linked()
    other = Controller()
    await other.start()
    scene.rules.address = other.address
    scene.gate.changed()
    assert await reader.read() == b""
    again, _ = await scene.dial()
    assert await again.readexactly(2) == b"\0\0"
    assert other.links == [2]
    await other.stop()


async def test_a_waiting_link_leaves_a_deaf_controller_for_the_next(scene: Scene) -> None:
    deaf = socket.socket()
    deaf.bind((ADDRESS, own_port()))
    deaf.listen()
    scene.rules.address = f"{ADDRESS}:{deaf.getsockname()[1]}"
    scene.rules.open = True
    reader, writer = await scene.dial()
    peer, _ = await asyncio.get_running_loop().run_in_executor(None, deaf.accept)
    scene.open()
    assert await reader.readexactly(2) == b"\0\0"
    writer.close()
    peer.close()
    deaf.close()


async def test_a_dead_rank_leaves_the_gate(scene: Scene) -> None:
    reader, writer = await scene.dial()
    await until(lambda: scene.gate.phase(2) is LinkPhase.AT_GATE, "the held link")
    writer.close()
    await until(lambda: scene.gate.phase(2) is LinkPhase.NONE, "the end of the link")
    await scene.linked(3)
    scene.gate.end_links(3)
    await until(lambda: scene.gate.phase(3) is LinkPhase.NONE, "the end of the link of rank 3")
    assert await reader.read() == b""


async def test_strangers_are_held_and_never_forwarded(scene: Scene) -> None:
    scene.open()
    foreign, _ = await scene.dial(77)
    web, browser = await asyncio.open_connection(ADDRESS, scene.port)
    browser.write(b"GET / HTTP/1.1\r\n\r\n")
    await asyncio.sleep(0.1)
    assert not foreign.at_eof()
    assert not web.at_eof()
    assert scene.controller.links == []
    browser.close()


async def test_as_many_connections_wait_as_a_pod_may_open_at_once(scene: Scene) -> None:
    """Nothing is accepted meanwhile: this test does not give the gate its turn."""
    many = min(300, int(Path("/proc/sys/net/core/somaxconn").read_text()))
    waiting = [socket.create_connection((ADDRESS, scene.port), timeout=5) for _ in range(many)]
    for connection in waiting:
        connection.close()


async def test_a_linked_rank_without_heartbeats_is_reported_once(scene: Scene) -> None:
    _, writer = await scene.linked()
    writer.write(HEARTBEAT)
    await until(lambda: len(scene.rules.beats) == 1, "the heartbeat")
    spoke = scene.clock.now()
    for _ in range(20):
        scene.clock.pass_seconds(1)
        scene.gate.check_silence()
    assert scene.rules.silences == [(2, spoke)]


async def test_silence_does_not_count_while_the_gate_holds_or_the_agent_was_frozen(scene: Scene) -> None:
    _, writer = await scene.linked()
    writer.write(HEARTBEAT)
    await until(lambda: len(scene.rules.beats) == 1, "the heartbeat")
    scene.open(False)
    for _ in range(20):
        scene.clock.pass_seconds(1)
        scene.gate.check_silence()
    scene.open()
    scene.clock.pass_seconds(100)
    scene.gate.check_silence()
    assert scene.rules.silences == []


async def test_a_taken_port_is_told_and_tried_again() -> None:
    stranger = socket.socket()
    stranger.bind((ADDRESS, own_port()))
    stranger.listen()
    rules = Rules()
    gate = Gate(ADDRESS, stranger.getsockname()[1], rules, FakeClock())
    listening = asyncio.ensure_future(gate.listen())
    await until(lambda: bool(rules.problems), "the report")
    stranger.close()
    await listening
    await gate.close()


@pytest.mark.parametrize("size", [1, 3, 16, 50, 1000])
def test_heartbeats_are_found_however_the_bytes_are_cut(size: int) -> None:
    register = struct.pack("<hhIII", 0, 0, 4, 1, 0) + struct.pack("<i", 2)
    large = struct.pack("<hhIII", 1, 0, 300, 2, 0) + bytes(300)
    stream = (register + HEARTBEAT + large + HEARTBEAT) * 3
    reader = HeartbeatReader()
    beats = [beat for at in range(0, len(stream), size) for beat in reader.feed(stream[at : at + size])]
    assert [(beat.rank, beat.step) for beat in beats] == [(2, 7)] * 6


def test_bytes_that_are_not_messages_end_the_reading_not_the_link() -> None:
    reader = HeartbeatReader()
    assert list(reader.feed(b"\xff" * 100)) == []
    assert reader.is_lost


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("<hhIII", kind, 0, len(body), 1, 0) + body


async def test_the_gate_sees_whether_a_rank_has_told_of_its_copies(scene: Scene) -> None:
    _, writer = await scene.linked()
    writer.write(HEARTBEAT)  # of a rank that registered on another link: nothing can be said
    await until(lambda: scene.rules.beats == [(2, 7)], "the first heartbeat")
    assert scene.rules.told == []
    writer.write(message(0, struct.pack("<i", 2)) + HEARTBEAT + message(1, b"groups" * 100) + HEARTBEAT)
    await until(lambda: len(scene.rules.told) == 2, "the heartbeats")
    assert scene.rules.told == [(2, False), (2, True)]


async def test_a_tls_handshake_of_the_pods_own_is_told_and_held(scene: Scene) -> None:
    scene.open()
    reader, writer = await asyncio.open_connection(ADDRESS, scene.port)
    writer.write(b"\x16\x03\x01\x02\x00\x01" + bytes(60))
    await until(lambda: scene.rules.tls == 1, "the handshake")
    assert not reader.at_eof()
    assert not scene.gate.is_own(("10.1.2.3", 1))
    assert not scene.gate.is_own(None)
