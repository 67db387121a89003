"""Frames on the one TCP link between a rank and the controller, little-endian (docs/protocols/mindio.md §9).

Types of messages and layouts of their bodies are the real package's, so that a gate which reads or counts them treats
both alike; what is in the bodies of actions and answers is `_bodies`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from ._names import ReportState

CONNECT = struct.Struct("<hh4xQ")
CONNECT_REPLY = struct.Struct("<h")
HEADER = struct.Struct("<hhIII")
REGISTER = struct.Struct("<i")
REPLY = struct.Struct("<iiB3x")
HEARTBEAT = struct.Struct("<iiq4b4xqq16s")

MAGIC = 0
VERSION = 1
MAX_BODY = 16 << 20

#: Results of an action: 0 ok, 1 error, 2 ok without rebuild, 4 an exception or too late, 5 to be asked again.
OK, ERROR, NO_REBUILD, TIMEOUT, NEED_RETRY = 0, 1, 2, 4, 5
#: The result of a registration that waits for its repair.
ISOLATED = 7

#: Run status and device status in a heartbeat; what is missing in `DEVICE` is a normal device.
RUN_ABNORMAL, RUN_ISOLATED, RUN_INITIALISED, RUN_READY, RUN_STEP_FINISH, RUN_ENDED = 1, 6, 7, 8, 10, 11
DEVICE_LOW = 3
RUN = {
    ReportState.RS_UNKNOWN: RUN_ABNORMAL,
    ReportState.RS_INIT_FINISH: RUN_INITIALISED,
    ReportState.RS_PREREPAIR_FINISH: RUN_READY,
    ReportState.RS_STEP_FINISH: RUN_STEP_FINISH,
}
DEVICE = {
    ReportState.RS_UCE: 2,
    ReportState.RS_UCE_CORRUPTED: 4,
    ReportState.RS_RETRY: 9,
    ReportState.RS_HCCL_FAILED: 12,
}
STATE_OF_RUN = {value: state for state, value in RUN.items()}
STATE_OF_DEVICE = {value: state for state, value in DEVICE.items()} | {DEVICE_LOW: ReportState.RS_UCE}
UPDATED, UPDATING, COPYING = 0, 1, 2


class Message(IntEnum):
    """Types of messages; `ANSWER_OF` says which of them answer which."""

    REGISTER = 0
    REPLICAS = 1
    DATA_PARALLEL = 2
    HEARTBEAT = 3
    SAVE = 4
    SAVED = 5
    BACKUPS = 6
    RENAME = 7
    RENAMED = 8
    COLLECT = 9
    COLLECTED = 10
    LOCK = 11
    LOCKED = 12
    PAUSE = 13
    PAUSED = 14
    CONTINUE = 15
    STOP = 17
    STOPPED = 18
    CLEAN = 19
    CLEANED = 20
    REPAIR = 21
    REPAIRED = 22
    ROLLBACK = 23
    ROLLED_BACK = 24
    NORMAL = 25
    IS_NORMAL = 26
    EXIT = 27
    DESTROY = 28
    DOWNGRADE_REBUILD = 29
    DOWNGRADE_REBUILT = 30
    REBUILD = 31
    REBUILT = 32
    UPGRADE_REBUILD = 33
    UPGRADE_REBUILT = 34
    UPGRADE_REPAIR = 35
    UPGRADE_REPAIRED = 36
    UPGRADE_ROLLBACK = 37
    UPGRADE_ROLLED_BACK = 38


M = Message
#: Which message answers an action; those that are missing have no answer.
ANSWER_OF = {
    M.SAVE: M.SAVED,
    M.RENAME: M.RENAMED,
    M.COLLECT: M.COLLECTED,
    M.LOCK: M.LOCKED,
    M.PAUSE: M.PAUSED,
    M.CONTINUE: M.PAUSED,
    M.STOP: M.STOPPED,
    M.CLEAN: M.CLEANED,
    M.REPAIR: M.REPAIRED,
    M.ROLLBACK: M.ROLLED_BACK,
    M.NORMAL: M.IS_NORMAL,
    M.DOWNGRADE_REBUILD: M.DOWNGRADE_REBUILT,
    M.REBUILD: M.REBUILT,
    M.UPGRADE_REBUILD: M.UPGRADE_REBUILT,
    M.UPGRADE_REPAIR: M.UPGRADE_REPAIRED,
    M.UPGRADE_ROLLBACK: M.UPGRADE_ROLLED_BACK,
}
REPLIES = frozenset({M.REGISTER, M.REPLICAS, M.DATA_PARALLEL})
ANSWERS = frozenset(ANSWER_OF.values())
ACTIONS = frozenset({*ANSWER_OF, M.EXIT})


@dataclass(frozen=True)
class Heartbeat:
    """A rank's own account of itself.

    Attributes:
        step: Optimizer steps it has completed.
        ended: It has ended in order; `isolated`: it waits for its repair.
        low: A memory fault after which nothing has to be rebuilt.
    """

    rank: int
    repair_counter: int
    step: int
    state: ReportState = ReportState.RS_NORMAL
    updating: bool = False
    copying: bool = False
    ended: bool = False
    isolated: bool = False
    low: bool = False
    backup_step: int = -1
    code: str = ""

    def pack(self) -> bytes:
        """The 56 bytes on the wire; the time is always 0."""
        run = RUN_ENDED if self.ended else RUN.get(self.state, RUN_ISOLATED if self.isolated else 0)
        device = DEVICE_LOW if self.low else DEVICE.get(self.state, 0)
        data = COPYING if self.copying else UPDATING if self.updating else UPDATED
        code = self.code.encode()[:15]
        return HEARTBEAT.pack(
            self.rank, self.repair_counter, self.step, run, device, 0, data, 0, self.backup_step, code
        )

    @classmethod
    def unpack(cls, body: bytes) -> Heartbeat:
        """The reverse; `struct.error` for a wrong length."""
        rank, counter, step, run, device, _, data, _, backup, code = HEARTBEAT.unpack(body)
        return cls(
            rank,
            counter,
            step,
            STATE_OF_RUN.get(run, STATE_OF_DEVICE.get(device, ReportState.RS_NORMAL)),
            updating=data == UPDATING,
            copying=data == COPYING,
            ended=run == RUN_ENDED,
            isolated=run == RUN_ISOLATED,
            low=device == DEVICE_LOW,
            backup_step=backup,
            code=code.rstrip(b"\0").decode(errors="replace"),
        )


def frame(kind: int, body: bytes = b"", sequence: int = 0, result: int = 0) -> bytes:
    """A header and its body."""
    return HEADER.pack(kind, result, len(body), sequence, 0) + body


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
