"""The gate over real sockets, with rules that a test sets: it holds, it forwards, it never accepts and closes."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from e2e.cluster.loopback import own_port
from tests.rigs.agent_gate import REGISTER_MESSAGE, GateRules, GateScene, heartbeat_message, mindio_message
from tests.rigs.agent_node import FakeClock
from tests.rigs.ipv6 import without_ipv6
from tests.rigs.rank_pod import ADDRESS, Controller, until
from trainer_sidecar.agent.gate import listener
from trainer_sidecar.agent.gate.frames import FrameReader, Message, Piece
from trainer_sidecar.agent.gate.gate import Gate
from trainer_sidecar.agent.gate.listener import HELD_CONNECTIONS, is_of_this_pod
from trainer_sidecar.agent.gate.passage import Passage
from trainer_sidecar.agent.gate.rules import LinkPhase

HEARTBEAT = heartbeat_message()


@pytest.fixture
async def scene() -> AsyncIterator[GateScene]:
    made = GateScene()
    await made.controller.start()
    await made.gate.listen_at_port()
    yield made
    await made.gate.close_port()
    await made.controller.stop()


async def test_a_rank_that_may_not_pass_is_held_and_taken_later(scene: GateScene) -> None:
    reader, _ = await scene.dial()
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.AT_GATE, "the held link")
    assert scene.controller.links == []
    scene.open()
    assert await reader.readexactly(2) == b"\0\0"
    assert scene.controller.links == [2]
    assert scene.rules.changes


async def test_without_the_lease_bytes_wait_and_nothing_is_closed(scene: GateScene) -> None:
    reader, writer = await scene.linked()
    writer.write(REGISTER_MESSAGE)
    await until(lambda: scene.controller.heard.get(2) == len(REGISTER_MESSAGE), "the first message")
    scene.open(False)
    for _ in range(50):
        writer.write(REGISTER_MESSAGE)
        await writer.drain()
    await asyncio.sleep(0.1)
    assert scene.controller.heard[2] == len(REGISTER_MESSAGE)
    assert not reader.at_eof()
    scene.open()
    await until(lambda: scene.controller.heard[2] == 51 * len(REGISTER_MESSAGE), "the bytes that waited")
    assert scene.controller.links == [2]


async def test_a_holding_gate_reads_heartbeats_and_passes_the_newest(scene: GateScene) -> None:
    _, writer = await scene.linked()
    scene.open(False)
    for step in range(1, 2001):
        writer.write(heartbeat_message(step=step))
        await writer.drain()
    await until(lambda: len(scene.rules.beats) == 2000, "every heartbeat")
    assert scene.rules.beats[-1] == (2, 2000)
    assert scene.controller.heard == {}
    scene.open()
    await until(lambda: scene.controller.heard.get(2, 0) >= len(HEARTBEAT), "the newest one")
    await asyncio.sleep(0.1)
    assert scene.controller.heard[2] % len(HEARTBEAT) == 0
    assert scene.controller.heard[2] < 10 * len(HEARTBEAT), "but for those that a read cut in two"


async def test_an_answer_to_a_stop_tells_the_step_of_that_moment(scene: GateScene) -> None:
    _, writer = await scene.linked()
    collected = mindio_message(10, bytes(16) + heartbeat_message(step=41)[16:])
    writer.write(heartbeat_message(step=39) + collected)
    await until(lambda: len(scene.rules.beats) == 2, "both")
    assert (scene.rules.beats, scene.rules.asked) == ([(2, 39), (2, 41)], [41])


async def test_an_orderly_end_tells_the_last_step(scene: GateScene) -> None:
    _, writer = await scene.linked()
    writer.write(heartbeat_message(step=39) + heartbeat_message(step=300, run_status=11))
    writer.close()
    await until(lambda: scene.rules.beats == [(2, 39), (2, 300)], "what it said before it left")


async def test_what_cannot_be_read_passes_and_is_counted(scene: GateScene) -> None:
    _, writer = await scene.linked()
    odd = (
        mindio_message(3, b"no heartbeat")
        + mindio_message(999, bytes(70_000))
        + heartbeat_message(rank=3)
        + heartbeat_message(step=-1)
    )
    writer.write(odd)
    await until(lambda: scene.controller.heard.get(2) == len(odd), "all of it")
    assert scene.gate.passage.unreadable == 2
    assert scene.rules.beats == [(2, None)], "an unknown step is unknown"
    writer.write(b"\xff" * 100)
    await until(lambda: scene.controller.heard.get(2) == len(odd) + 100, "what is no message at all")
    assert scene.gate.passage.unreadable == 3


async def test_frames_of_a_version_never_seen_pass_and_are_told(scene: GateScene) -> None:
    """No other controller may be told what such a rank registered: the layouts may be others."""
    await scene.linked()
    assert not scene.gate.gate_state().unreadable
    await scene.linked(3, version=2)
    assert scene.gate.gate_state().unreadable


async def test_an_error_of_the_reader_is_counted_and_the_bytes_pass(
    scene: GateScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, writer = await scene.linked()

    def fail(_: FrameReader, data: bytes) -> list[Piece]:
        raise IndexError(len(data))

    monkeypatch.setattr(FrameReader, "cut_pieces", fail)
    writer.write(REGISTER_MESSAGE + HEARTBEAT)
    await until(lambda: scene.controller.heard.get(2) == len(REGISTER_MESSAGE + HEARTBEAT), "the bytes")
    assert scene.gate.passage.unreadable == 1


async def test_the_controllers_bytes_wait_too(scene: GateScene) -> None:
    reader, _ = await scene.linked()
    scene.open(False)
    scene.controller.send(mindio_message(17, b"abcdef"))
    await asyncio.sleep(0.1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.readexactly(1), 0.05)
    scene.open()
    assert await reader.readexactly(22) == mindio_message(17, b"abcdef")


async def test_a_held_gate_pushes_back_instead_of_buffering(scene: GateScene) -> None:
    _, writer = await scene.linked()
    scene.open(False)

    async def flood() -> None:
        while True:
            writer.write(bytes(1 << 20))
            await writer.drain()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(flood(), 1)
    assert scene.controller.heard.get(2, 0) < 4 << 20


async def test_a_rank_is_held_until_the_controller_answers(scene: GateScene) -> None:
    await scene.controller.stop()
    scene.open()
    reader, _ = await scene.dial()
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.AT_GATE, "the held link")
    await asyncio.sleep(0.2)
    assert not reader.at_eof()
    await scene.controller.start()
    assert await reader.readexactly(2) == b"\0\0"


async def test_a_controller_that_closes_without_reply_is_tried_again(scene: GateScene) -> None:
    scene.controller.answering = False
    scene.open()
    reader, _ = await scene.dial()
    await until(lambda: scene.controller.refused > 1, "a second try")
    assert not reader.at_eof()
    scene.controller.answering = True
    assert await reader.readexactly(2) == b"\0\0"


async def test_a_ranks_link_outlives_the_controllers(scene: GateScene) -> None:
    reader, writer = await scene.linked()
    writer.write(heartbeat_message(step=1) + REGISTER_MESSAGE[:7])
    await until(lambda: scene.controller.heard.get(2) == len(HEARTBEAT) + 7, "the beginning")
    await scene.controller.stop()
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.AT_GATE, "the gate's turn")
    writer.write(
        REGISTER_MESSAGE[7:] + mindio_message(12, bytes(70)) + heartbeat_message(step=2) + heartbeat_message(step=3)
    )
    await until(lambda: (2, 3) in scene.rules.beats, "heartbeats without a controller")
    scene.controller.heard.clear()
    await scene.controller.start()
    await until(lambda: scene.controller.heard.get(2) == len(HEARTBEAT), "the newest heartbeat and nothing else")
    writer.write(REGISTER_MESSAGE)
    await until(lambda: scene.controller.heard.get(2) == len(HEARTBEAT + REGISTER_MESSAGE), "whole messages again")
    scene.controller.send(mindio_message(9, b"ab"))
    assert await reader.readexactly(18) == mindio_message(9, b"ab"), "the second reply is not the rank's"
    assert scene.controller.links == [2, 2]


async def test_a_message_cut_short_never_reaches_the_rank(scene: GateScene) -> None:
    reader, _ = await scene.linked()
    scene.controller.send(mindio_message(9, b"ab")[:17])
    await asyncio.sleep(0.1)
    await scene.controller.stop()
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.AT_GATE, "the gate's turn")
    await scene.controller.start()
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.LINKED, "the link")
    scene.controller.send(mindio_message(11, b"cd"))
    assert await reader.readexactly(18) == mindio_message(11, b"cd")


async def test_links_follow_the_controller_to_another_address(scene: GateScene) -> None:
    reader, writer = await scene.linked()
    other = Controller()
    await other.start()
    scene.rules.address = other.address
    scene.gate.follow_changed_order()
    await until(lambda: other.links == [2], "the link to the other one")
    writer.write(HEARTBEAT)
    await until(lambda: other.heard.get(2) == len(HEARTBEAT), "the heartbeat")
    assert not reader.at_eof()
    await other.stop()


async def test_a_waiting_link_leaves_a_deaf_controller_for_the_next(scene: GateScene) -> None:
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


async def test_a_dead_rank_leaves_the_gate(scene: GateScene) -> None:
    reader, writer = await scene.dial()
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.AT_GATE, "the held link")
    writer.close()
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.NONE, "the end of the link")
    await scene.linked(3)
    scene.gate.end_links(3)
    await until(lambda: scene.gate.furthest_link_phase(3) is LinkPhase.NONE, "the end of the link of rank 3")
    assert await reader.read() == b""


async def test_strangers_are_held_and_never_forwarded(scene: GateScene) -> None:
    scene.open()
    foreign, _ = await scene.dial(77)
    web, browser = await asyncio.open_connection(ADDRESS, scene.port)
    browser.write(b"GET / HTTP/1.1\r\n\r\n")
    await asyncio.sleep(0.1)
    assert not foreign.at_eof()
    assert not web.at_eof()
    assert scene.controller.links == []
    browser.close()


async def test_as_many_connections_wait_as_a_pod_may_open_at_once(scene: GateScene) -> None:
    """Nothing is accepted meanwhile: this test does not give the gate its turn."""
    many = min(300, int(Path("/proc/sys/net/core/somaxconn").read_text()))
    waiting = [socket.create_connection((ADDRESS, scene.port), timeout=60) for _ in range(many)]
    for connection in waiting:
        connection.close()


async def test_a_linked_rank_without_heartbeats_is_reported_once(scene: GateScene) -> None:
    _, writer = await scene.linked()
    writer.write(HEARTBEAT)
    await until(lambda: len(scene.rules.beats) == 1, "the heartbeat")
    spoke = scene.clock.now()
    for _ in range(20):
        scene.clock.pass_seconds(1)
        scene.gate.check_silence()
    assert scene.rules.silences == [(2, spoke)]


async def test_silence_does_not_count_while_held_or_frozen(scene: GateScene) -> None:
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
    rules = GateRules()
    gate = Gate(ADDRESS, stranger.getsockname()[1], Passage(rules, FakeClock()))
    listening = asyncio.ensure_future(gate.listen_at_port())
    await until(lambda: bool(rules.problems), "the report")
    stranger.close()
    await listening
    await gate.close_port()


@pytest.mark.parametrize("size", [1, 3, 16, 50, 1000])
def test_messages_are_found_however_the_bytes_are_cut(size: int) -> None:
    large = mindio_message(1, bytes(300))
    stream = (
        REGISTER_MESSAGE + HEARTBEAT + large + mindio_message(99, b"unknown") + mindio_message(4, b"") + HEARTBEAT
    ) * 3
    reader = FrameReader()
    pieces = [piece for at in range(0, len(stream), size) for piece in reader.cut_pieces(stream[at : at + size])]
    assert b"".join(piece.data for piece in pieces) == stream, "no byte is changed, lost or kept back"
    read = [piece.message for piece in pieces if piece.message is not None]
    assert [one.content for one in read] == [REGISTER_MESSAGE, HEARTBEAT, large, HEARTBEAT] * 3
    assert sum(piece.ends for piece in pieces) == sum(piece.begins for piece in pieces) == 18
    statuses = [status for one in read if (status := one.rank_status()) is not None]
    assert [(status.rank, status.step) for status in statuses] == [(2, 7)] * 6


def test_bytes_that_are_no_messages_end_the_reading_not_the_link() -> None:
    reader = FrameReader()
    assert b"".join(piece.data for piece in reader.cut_pieces(b"\xff" * 100)) == b"\xff" * 100
    assert reader.lost


def test_an_impossible_step_is_unknown() -> None:
    status = Message(3, heartbeat_message(step=1 << 62)).rank_status()
    assert status is not None
    assert status.step is None


async def test_the_gate_sees_whether_a_rank_has_told_of_its_copies(scene: GateScene) -> None:
    _, writer = await scene.linked()
    writer.write(HEARTBEAT)  # of a rank that registered on another link: nothing can be said
    await until(lambda: scene.rules.beats == [(2, 7)], "the first heartbeat")
    assert scene.rules.told == []
    writer.write(mindio_message(0, struct.pack("<i", 2)) + HEARTBEAT + mindio_message(1, b"groups" * 100) + HEARTBEAT)
    await until(lambda: len(scene.rules.told) == 2, "the heartbeats")
    assert scene.rules.told == [(2, False), (2, True)]


CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01" + bytes(60)


async def test_a_tls_handshake_of_the_pods_own_is_told_and_held(scene: GateScene) -> None:
    scene.open()
    reader, writer = await asyncio.open_connection(ADDRESS, scene.port)
    writer.write(CLIENT_HELLO)
    await until(lambda: scene.rules.tls == [None], "the handshake")
    assert not reader.at_eof()


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("cut", [1, 66])
async def test_tls_behind_the_connect_frame_is_told_and_held(scene: GateScene, is_open: bool, cut: int) -> None:
    scene.open(is_open)
    reader, writer = await scene.dial()
    if is_open:
        assert await reader.readexactly(2) == b"\0\0"
    writer.write(CLIENT_HELLO[:cut])
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.write(CLIENT_HELLO[cut:])
    await until(lambda: scene.rules.tls == [2], "the handshake")
    await asyncio.sleep(0.05)
    assert scene.gate.furthest_link_phase(2) is LinkPhase.NONE
    assert not reader.at_eof()
    assert scene.controller.heard == {}, "nothing of it reaches the controller"


async def test_another_pods_connection_is_held_and_counted(scene: GateScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that it is rank 2, and nobody listens."""
    scene.open()
    monkeypatch.setattr(listener, "is_of_this_pod", lambda host: host != "127.0.0.9")
    reader, writer = await asyncio.open_connection(ADDRESS, scene.port, local_addr=("127.0.0.9", 0))
    writer.write(struct.pack("<hh4xQ", 0, 1, 2) + HEARTBEAT)
    await until(lambda: scene.rules.strangers == [(scene.port, "127.0.0.9")], "the count")
    await asyncio.sleep(0.1)
    assert not reader.at_eof()
    assert (scene.controller.links, scene.rules.beats, scene.rules.changes) == ([], [], [])
    own, _ = await scene.dial()
    assert await own.readexactly(2) == b"\0\0"


async def test_many_strangers_do_not_use_up_the_descriptors(scene: GateScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "is_of_this_pod", lambda _: False)
    readers = [(await asyncio.open_connection(ADDRESS, scene.port))[0] for _ in range(HELD_CONNECTIONS + 1)]
    assert await readers[0].read() == b"", "the oldest is let go"
    assert len(scene.rules.strangers) == HELD_CONNECTIONS + 1


@pytest.mark.parametrize(
    ("host", "is_own"),
    [("127.0.0.1", True), pytest.param("::1", True, marks=without_ipv6), ("::ffff:127.0.0.1", True),
     ("192.0.2.1", False), ("2001:db8::1", False),
     ("nonsense", False)],
)  # fmt: skip
def test_an_address_is_the_pods_when_its_namespace_has_it(host: str, is_own: bool) -> None:
    assert is_of_this_pod(host) is is_own


@without_ipv6
async def test_the_gate_serves_ipv6_on_both_sides() -> None:
    controller = await asyncio.start_server(answer_and_echo, "::1", 0)
    rules = GateRules()
    rules.open, rules.address = True, f"[::1]:{controller.sockets[0].getsockname()[1]}"
    gate = Gate("::1", own_port(), Passage(rules, FakeClock()))
    await gate.listen_at_port()
    reader, writer = await asyncio.open_connection("::1", gate.port)
    writer.write(struct.pack("<hh4xQ", 0, 1, 2) + HEARTBEAT)
    assert await reader.readexactly(2 + len(HEARTBEAT)) == b"\0\0" + HEARTBEAT
    assert rules.beats == [(2, 7)]
    await gate.close_port()
    controller.close()


async def answer_and_echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(16)
    writer.write(b"\0\0")
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()
