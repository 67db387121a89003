"""A rank that has died while MindIO waits for it is answered for by the gate; nobody else ever is."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator

import pytest

from tests.rigs.agent_gate import REGISTER_MESSAGE, GateScene, heartbeat_message, mindio_message
from tests.rigs.rank_pod import until
from trainer_sidecar.agent.gate import link as gate_link
from trainer_sidecar.agent.gate.dead_rank_replies import DeadRankReplies
from trainer_sidecar.agent.gate.frames import HEARTBEAT, SERIAL_AT, Message
from trainer_sidecar.agent.gate.rules import LinkPhase

COLLECT, LOCK, STOP, CLEAN, REPAIR, PAUSE, GO_ON, NORMAL = 9, 11, 17, 19, 21, 13, 15, 25
STATUS = heartbeat_message()[16:]


def action(kind: int, serial: int, size: int = 32) -> bytes:
    body = bytearray(size)
    struct.pack_into("<H", body, SERIAL_AT.get(kind, 0), serial)
    return mindio_message(kind, bytes(body))


def long_answer(kind: int, serial: int, status: bytes = STATUS) -> bytes:
    body = struct.pack("<iH2xq", 0, serial, -1) + status
    return struct.pack("<hhIII", kind, 0, len(body), 0, 0) + body


def short_answer(kind: int, serial: int, result: int) -> bytes:
    body = struct.pack("<iH2xi", result, serial, 2)
    return struct.pack("<hhIII", kind, 0, len(body), 0, 0) + body


@pytest.fixture
async def scene() -> AsyncIterator[GateScene]:
    made = GateScene()
    await made.controller.start()
    await made.gate.listen_at_port()
    yield made
    await made.gate.close_port()
    await made.controller.stop()


async def said_by_dead_rank(scene: GateScene, expected: bytes) -> None:
    """All that the controller has heard of rank 2 after its registration and one heartbeat."""
    before = len(REGISTER_MESSAGE + heartbeat_message())
    await until(lambda: len(scene.controller.said[2]) >= before + len(expected), "the answer")
    assert scene.controller.said[2][before:] == expected


async def speaking(scene: GateScene) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Rank 2, linked, registered, with one heartbeat behind it; keep what is returned."""
    reader, writer = await scene.linked()
    writer.write(REGISTER_MESSAGE + heartbeat_message())
    await until(lambda: scene.controller.heard.get(2) == len(REGISTER_MESSAGE + heartbeat_message()), "its messages")
    return reader, writer


@pytest.mark.parametrize("dies_first", [True, False])
async def test_what_a_dead_rank_owes_is_answered_at_once(scene: GateScene, *, dies_first: bool) -> None:
    reader, writer = await speaking(scene)
    if dies_first:
        writer.close()
        scene.gate.end_links(2)
    scene.controller.send(action(COLLECT, 5, 2))
    if not dies_first:
        await reader.readexactly(18)
        scene.gate.end_links(2)  # a child of it keeps its link open
    await said_by_dead_rank(scene, long_answer(10, 5))
    scene.controller.send(action(LOCK, 6, 16) + action(STOP, 7, 6))
    await said_by_dead_rank(scene, long_answer(10, 5) + long_answer(12, 6) + short_answer(18, 7, 0))
    assert scene.gate.furthest_link_phase(2) is LinkPhase.NONE


async def test_a_rank_that_lost_its_link_and_lives_is_not_answered_for(scene: GateScene) -> None:
    _, writer = await speaking(scene)
    writer.close()
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.NONE, "the end of the link")
    scene.controller.send(action(LOCK, 6, 16))
    _, again = await scene.dial()
    await until(lambda: scene.controller.links == [2, 2], "its second link")
    again.write(heartbeat_message())
    await said_by_dead_rank(scene, heartbeat_message())


async def test_without_a_lease_nobody_is_answered_for(scene: GateScene) -> None:
    _, writer = await speaking(scene)
    scene.open(False)
    writer.close()
    scene.gate.end_links(2)
    scene.controller.send(action(COLLECT, 5, 2))
    await asyncio.sleep(0.2)
    assert len(scene.controller.said[2]) == len(REGISTER_MESSAGE + heartbeat_message())
    scene.open()
    await said_by_dead_rank(scene, long_answer(10, 5))


async def test_what_it_had_said_before_it_died_still_arrives(scene: GateScene) -> None:
    _, writer = await speaking(scene)
    scene.controller.send(action(COLLECT, 5, 2))
    scene.open(False)
    own = long_answer(10, 5, heartbeat_message(step=8)[16:])
    writer.write(own)
    await until(lambda: bool(scene.rules.asked), "its answer")
    writer.close()
    scene.gate.end_links(2)
    scene.open()
    scene.controller.send(action(STOP, 6, 6))
    await said_by_dead_rank(scene, own + short_answer(18, 6, 0))


async def test_one_that_died_within_a_message_is_not_answered_for(scene: GateScene) -> None:
    _, writer = await speaking(scene)
    writer.write(REGISTER_MESSAGE[:9])
    await until(lambda: scene.controller.heard[2] == len(REGISTER_MESSAGE + heartbeat_message()) + 9, "half a message")
    writer.close()
    scene.gate.end_links(2)
    await until(lambda: scene.controller.open_links == 0, "the end of the link")


async def test_a_rank_that_left_in_order_is_closed_at_once(scene: GateScene) -> None:
    _, writer = await speaking(scene)
    writer.write(heartbeat_message(run_status=11))
    writer.close()
    await until(lambda: scene.controller.open_links == 0, "the end of the link")


async def test_its_successor_ends_what_was_kept_for_it(scene: GateScene) -> None:
    _, writer = await speaking(scene)
    writer.close()
    scene.gate.end_links(2)
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.NONE, "the end of the link")
    scene.open(False)
    successor = await scene.dial()
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.AT_GATE, "the successor")
    await until(lambda: scene.controller.open_links == 0, "the end of the link that was kept")
    assert successor


async def test_it_is_answered_for_no_longer_than_it_helps(scene: GateScene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_link, "ANSWERED_SECONDS", 0.2)
    _, writer = await speaking(scene)
    writer.close()
    scene.gate.end_links(2)
    await until(lambda: scene.controller.open_links == 0, "the end of the link")


def test_what_a_dead_rank_had_to_do_has_failed() -> None:
    words = spoken()
    words.note_actions(action(REPAIR, 300, 56) + action(CLEAN, 301, 6))
    assert words.take_owed_replies() == short_answer(22, 300, 1) + short_answer(20, 301, 0)
    assert words.take_owed_replies() == b""


@pytest.mark.parametrize("status", [1, 6, 8])
def test_one_that_was_not_well_is_not_said_to_stand(status: int) -> None:
    words = spoken(status)
    words.note_actions(action(COLLECT, 1, 2) + action(NORMAL, 2, 2) + action(REPAIR, 3, 56))
    assert words.take_owed_replies() == short_answer(22, 3, 1)


def test_a_dead_rank_holds_up_no_continue() -> None:
    """MindIO would wait out its action limit, fail for good, and every rank would start anew."""
    words = spoken()
    words.note_actions(action(GO_ON, 7, 24))
    assert words.take_owed_replies() == short_answer(14, 7, 0)


def test_a_pause_and_short_messages_are_left_alone() -> None:
    words = spoken()
    words.note_actions(action(PAUSE, 1, 24) + mindio_message(REPAIR, b"short") + mindio_message(COLLECT, b""))
    assert words.take_owed_replies() == b""


def test_what_another_controller_had_asked_is_forgotten() -> None:
    words = spoken()
    words.note_actions(action(COLLECT, 1, 2) + action(LOCK, 2, 16)[:20])
    words.begin_connection()
    words.note_actions(action(STOP, 1, 6))
    assert words.take_owed_replies() == short_answer(18, 1, 0)


def spoken(status: int = 0) -> DeadRankReplies:
    words = DeadRankReplies(2)
    words.note_rank_message(Message(HEARTBEAT, heartbeat_message(run_status=status)))
    return words
