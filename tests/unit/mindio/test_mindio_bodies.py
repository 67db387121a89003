"""Bodies of MindIO's messages: every field where the real package has it, and back again."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from mindio_ttp import _bodies as bodies
from mindio_ttp import _wire as wire
from mindio_ttp._names import ReportState
from mindio_ttp._wire import Heartbeat, Message

INFO = {"type": [0, 0], "repair_type": 3, "src": [1, 2], "dst": [3, 3], "rank_list": [1, 2, 3]}
COUNTED = {"step": 7, "counter": 5}

ACTIONS: list[tuple[Message, dict[str, Any], int, int, int | None]] = [
    (Message.COLLECT, {}, 2, 0, None),
    (Message.NORMAL, {}, 2, 0, None),
    (Message.EXIT, {}, 2, 0, None),
    (Message.DESTROY, {}, 2, 0, None),
    (Message.LOCK, {"step": 7}, 16, 0, None),
    (Message.STOP, {"type": "recover"}, 6, 0, None),
    (Message.CLEAN, {"type": "retry"}, 6, 0, None),
    (Message.PAUSE, {"step": 7, "raise": True}, 24, 0, None),
    (Message.RENAME, {"rank": 3}, 8, 4, None),
    (Message.SAVE, {**COUNTED, "info": [{"type": 0, "ranks": [0, 1]}]}, 40, 16, 0),
    (Message.REPAIR, {**COUNTED, "type": "recover", "info": INFO}, 76, 24, 0),
    (Message.UPGRADE_REPAIR, {**COUNTED, "type": "upgrade", "info": INFO, "params": "x"}, 82, 24, 0),
    (Message.ROLLBACK, COUNTED, 24, 14, 8),
    (Message.UPGRADE_ROLLBACK, {**COUNTED, "params": "xyz"}, 28, 14, 8),
    (Message.REBUILD, {"counter": 5, "ranks": [3]}, 16, 8, 4),
    (Message.UPGRADE_REBUILD, {"counter": 5, "ranks": [3], "params": "x"}, 22, 8, 4),
    (Message.DOWNGRADE_REBUILD, {"counter": 5, "remaining": [0, 1], "group": [0], "params": "x"}, 46, 8, 4),
]
"""Type, arguments, bytes of the body, where its serial stands, where the repair counter."""


@pytest.mark.parametrize(("kind", "arguments", "length", "serial_at", "counter_at"), ACTIONS)
def test_an_action_has_the_real_ones_layout(
    kind: Message, arguments: dict[str, Any], length: int, serial_at: int, counter_at: int | None
) -> None:
    ((found, _, _, body),) = wire.FrameReader().feed(bodies.action(kind, 0x1234, arguments))
    assert (found, len(body)) == (kind, length)
    assert body[serial_at : serial_at + 2] == b"\x34\x12"
    if counter_at is not None:
        assert struct.unpack_from("<i", body, counter_at) == (5,)
    serial, read = bodies.parse_action(kind, body)
    assert serial == 0x1234
    assert {name: read[name] for name in arguments} == arguments


@pytest.mark.parametrize("kind", [Message.COLLECT, Message.LOCK, Message.STOP, Message.RENAME])
def test_a_body_of_another_length_is_an_error(kind: Message) -> None:
    with pytest.raises(struct.error):
        bodies.parse_action(kind, bytes(3))


def test_an_answer_is_short_or_carries_an_account() -> None:
    ((kind, _, _, body),) = wire.FrameReader().feed(bodies.answer(Message.CLEANED, bodies.Answer(1, 9, 3)))
    assert (kind, body) == (20, struct.pack("<iH2xi", 1, 9, 3))
    assert bodies.parse_answer(body) == bodies.Answer(1, 9, 3)
    beat = Heartbeat(3, 1, 42, ReportState.RS_UCE, code="12ab")
    ((kind, _, _, body),) = wire.FrameReader().feed(bodies.answer(Message.LOCKED, bodies.Answer(0, 9, 3, 17, beat)))
    assert (kind, len(body), body[16:]) == (12, 72, beat.pack())
    assert bodies.parse_answer(body) == bodies.Answer(0, 9, 3, 17, beat)
    with pytest.raises(struct.error):
        bodies.parse_answer(bytes(13))


@pytest.mark.parametrize(
    ("beat", "four"),
    [
        (Heartbeat(0, 0, 1), (0, 0, 0, 0)),
        (Heartbeat(0, 0, 1, ReportState.RS_UNKNOWN), (1, 0, 0, 0)),
        (Heartbeat(0, 0, 1, isolated=True), (6, 0, 0, 0)),
        (Heartbeat(0, 0, 1, ReportState.RS_PREREPAIR_FINISH, isolated=True), (8, 0, 0, 0)),
        (Heartbeat(0, 0, 1, ReportState.RS_UCE), (0, 2, 0, 0)),
        (Heartbeat(0, 0, 1, ReportState.RS_UCE, low=True), (0, 3, 0, 0)),
        (Heartbeat(0, 0, 1, ReportState.RS_UCE_CORRUPTED), (0, 4, 0, 0)),
        (Heartbeat(0, 0, 1, ReportState.RS_HCCL_FAILED, updating=True), (0, 12, 0, 1)),
        (Heartbeat(0, 0, 1, copying=True, updating=True), (0, 0, 0, 2)),
        (Heartbeat(0, 0, 1, ended=True), (11, 0, 0, 0)),
    ],
)
def test_the_four_status_bytes(beat: Heartbeat, four: tuple[int, ...]) -> None:
    body = beat.pack()
    assert (tuple(body[16:20]), body[24:32]) == (four, bytes(8))
    read = Heartbeat.unpack(body)
    assert (read.state, read.ended, read.low) == (beat.state, beat.ended, beat.low)


def test_what_a_rank_tells_of_its_groups() -> None:
    groups = [
        {"rank_list": [0, 2, 4, 6], "replica_cnt": 2, "replica_shift": 0},
        {"rank_list": [0, 4], "replica_cnt": 1, "replica_shift": 1},
    ]
    body = bodies.replicas(4, groups, arf=True, retry=False, zit=True)
    assert len(body) == 12 + 4 * (2 * 2 + (1 + 4) + (1 + 2))
    assert struct.unpack_from("<ii???", body) == (4, 2, True, False, True)
    assert bodies.parse_replicas(body) == (groups, {"arf": True, "uce": False, "zit": True})
    assert bodies.parse_data_parallel(bodies.data_parallel(4, [0, 4])) == [0, 4]
