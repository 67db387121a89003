"""The gate's replies for a rank that has died.

MindIO waits for every rank that had a link when it gave an action, also when the link is lost: 5 s when it takes stock,
its whole action limit otherwise. So the gate keeps the link of a rank whose process has ended for a moment, and replies
with the rank's last step, that it is stopped and clean, or that an action it had to carry out failed.
docs/protocols/launcher.md#the-gate, docs/decisions/0028-the-gate-answers-for-the-dead.md
"""

from __future__ import annotations

import struct
from typing import Final

from trainer_sidecar.agent.gate.frames import (
    ANSWERS,
    GO_ON,
    HEADER,
    LEFT,
    PAUSE,
    PAUSED,
    SERIAL,
    SERIAL_AT,
    STATUS_OFFSETS,
    FrameReader,
    Message,
)

ANSWER: Final = struct.Struct("<iHxx")
"""Result and serial; a rank follows, or the step of a loaded checkpoint (-1: none) and a heartbeat."""
ANSWER_SERIAL_AT: Final = HEADER.size + 4
RANK: Final = struct.Struct("<i")
NO_CHECKPOINT: Final = struct.pack("<q", -1)
RUN_STATUS_AT, DEVICE_STATUS_AT = 16, 17  # in a heartbeat; both are 0 while nothing is wrong
OK: Final = 0
FAILED: Final = 1
REPLIES: Final = ANSWERS | {GO_ON: PAUSED}
"""The reply to each action that is answered for a dead rank. A pause is not: the others may never come to its step."""
HARMLESS: Final = frozenset({9, 11, GO_ON, 17, 19, 25})
"""Collect, lock, go on, stop, clean, "everything is normal": a process that is dead stands, is stopped, holds
nothing."""


class DeadRankReplies:
    """The replies that a rank still owes the controller, and its last heartbeat."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._heartbeat = b""
        self._owed: dict[int, int] = {}  # serial -> kind of action
        self._frames = FrameReader(REPLIES)

    def begin_connection(self) -> None:
        """Begin with a connected controller; forget replies owed to another one."""
        self._frames = FrameReader(REPLIES)
        self._owed.clear()

    @property
    def has_left(self) -> bool:
        """Whether it said goodbye to MindIO: then the controller expects nothing of it."""
        return bool(self._heartbeat) and self._heartbeat[RUN_STATUS_AT] == LEFT

    def note_actions(self, data: bytes) -> None:
        """Take bytes of the controller, in order and complete, whether the rank gets them or not."""
        for message in (piece.message for piece in self._frames.cut_pieces(data)):
            if message is not None:
                serial = _serial_at_offset(message, HEADER.size + SERIAL_AT.get(message.kind, 0))
                if serial is not None:
                    self._owed[serial] = message.kind

    def note_rank_message(self, message: Message) -> None:
        """Take a message of the rank that reaches the controller."""
        self._heartbeat = message.heartbeat_bytes() or self._heartbeat
        serial = _serial_at_offset(message, ANSWER_SERIAL_AT) if message.kind in REPLIES.values() else None
        if serial is not None:
            self._owed.pop(serial, None)

    def take_owed_replies(self) -> bytes:
        """Return the replies owed now, without those that would call a rank well that said it was not."""
        given = [serial for serial, kind in self._owed.items() if self._is_well or REPLIES[kind] not in STATUS_OFFSETS]
        return b"".join(self._reply_to_action(serial, self._owed.pop(serial)) for serial in given)

    @property
    def _is_well(self) -> bool:
        return bool(self._heartbeat) and not self._heartbeat[RUN_STATUS_AT] and not self._heartbeat[DEVICE_STATUS_AT]

    def _reply_to_action(self, serial: int, kind: int) -> bytes:
        return reply_to_action(kind, serial, OK if kind in HARMLESS else FAILED, self._rank, self._heartbeat)


def reply_to_action(kind: int, serial: int, result: int, rank: int, heartbeat: bytes) -> bytes:
    """Return a rank's reply to an action of this kind; `heartbeat`: the 56 bytes of its last one."""
    answers = PAUSED if kind == PAUSE else REPLIES[kind]
    body = ANSWER.pack(result, serial)
    body += NO_CHECKPOINT + heartbeat if answers in STATUS_OFFSETS else RANK.pack(rank)
    return HEADER.pack(answers, 0, len(body), 0, 0) + body


def _serial_at_offset(message: Message, at: int) -> int | None:
    """Return the serial at this place; None: the message is shorter than MindIO's are."""
    whole = len(message.content) >= at + SERIAL.size
    return int(SERIAL.unpack_from(message.content, at)[0]) if whole else None
