"""Frames on the one TCP link between a rank and the controller, little-endian (docs/protocols/mindio.md §9).

Connect, header, register and heartbeat have the real package's layout, so that a gate which reads them treats both
alike. What else travels is the simulator's own: an action is its serial and a JSON object, its answer the serial, a
result and a JSON object.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

CONNECT = struct.Struct("<hh4xQ")
CONNECT_REPLY = struct.Struct("<h")
HEADER = struct.Struct("<hhIII")
REGISTER = struct.Struct("<i")
REPLY = struct.Struct("<iii")
HEARTBEAT = struct.Struct("<iiq4Biqq16s")
ACTION = struct.Struct("<H")
ANSWER = struct.Struct("<Hh")

MAGIC = 0
VERSION = 1
MAX_BODY = 16 << 20

#: Run status in the heartbeat of a rank that has ended in order; it is sent at once.
ENDED = 11

#: Results of an action (0 ok, 1 error, 2 ok without rebuild or "wait", 4 an exception or too late).
OK, ERROR, NO_REBUILD, TIMEOUT = 0, 1, 2, 4


class Message(IntEnum):
    """Types of messages; those from 9 on are actions, ordered by the controller."""

    REGISTER = 0
    REPLICAS = 1
    HEARTBEAT = 3
    ANSWER = 8
    COLLECT = 9
    LOCK = 10
    UNLOCK = 11
    STOP = 12
    CLEAN = 13
    REBUILD = 14
    REPAIR = 15
    ROLLBACK = 16
    RESUME = 17
    SAVE = 18
    RENAME = 19
    EXIT = 20
    DESTROY = 21
    PAUSE = 22
    CONTINUE = 23
    HOT_SWITCH = 24
    DOWNGRADE_REBUILD = 25
    UPGRADE_REBUILD = 26
    UPGRADE_REPAIR = 27
    UPGRADE_ROLLBACK = 28
    BACKUPS = 29


@dataclass(frozen=True)
class Heartbeat:
    """A rank's own account of itself: step in optimizer steps, state a `ReportState` value or `ENDED`."""

    rank: int
    repair_counter: int
    step: int
    state: int = 0
    updating: int = 0
    available: int = 1
    copying: int = 0
    milliseconds: int = 0
    backup_step: int = -1
    code: str = ""

    def pack(self) -> bytes:
        """The 56 bytes on the wire."""
        return HEARTBEAT.pack(
            self.rank,
            self.repair_counter,
            self.step,
            self.state,
            self.updating,
            self.available,
            self.copying,
            0,
            self.milliseconds,
            self.backup_step,
            self.code.encode()[:15],
        )

    @classmethod
    def unpack(cls, body: bytes) -> Heartbeat:
        """The reverse; `struct.error` for a wrong length."""
        fields = HEARTBEAT.unpack(body)
        code = fields[10].rstrip(b"\0").decode(errors="replace")
        return cls(*(*fields[:7], *fields[8:10], code))


def frame(kind: int, body: bytes = b"", sequence: int = 0, result: int = 0) -> bytes:
    """A header and its body."""
    return HEADER.pack(kind, result, len(body), sequence, 0) + body


def action(kind: Message, serial: int, arguments: dict[str, Any]) -> bytes:
    """An order of the controller."""
    body = ACTION.pack(serial)
    if arguments:
        body += json.dumps(arguments, separators=(",", ":")).encode()
    return frame(kind, body)


def answer(serial: int, result: int, content: dict[str, Any] | None = None) -> bytes:
    """A rank's answer to an order."""
    text = json.dumps(content, separators=(",", ":")).encode() if content else b""
    return frame(Message.ANSWER, ANSWER.pack(serial, result) + text)


def parse_action(body: bytes) -> tuple[int, dict[str, Any]]:
    """Serial and arguments of an order."""
    (serial,) = ACTION.unpack_from(body)
    return serial, json.loads(body[ACTION.size :] or b"{}")


def parse_answer(body: bytes) -> tuple[int, int, dict[str, Any]]:
    """Serial, result and content of an answer."""
    serial, result = ANSWER.unpack_from(body)
    return serial, result, json.loads(body[ANSWER.size :] or b"{}")


@dataclass
class FrameReader:
    """Cuts a byte stream into frames; `ValueError` when a length cannot be true."""

    buffer: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
        """Take in bytes; yields (type, result, sequence, body) of each whole frame."""
        self.buffer += data
        while len(self.buffer) >= HEADER.size:
            kind, result, length, sequence, _ = HEADER.unpack_from(self.buffer)
            if length > MAX_BODY:
                raise ValueError(f"a frame of {length} bytes")
            end = HEADER.size + length
            if len(self.buffer) < end:
                return
            body = bytes(self.buffer[HEADER.size : end])
            del self.buffer[:end]
            yield kind, result, sequence, body
