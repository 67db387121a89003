"""The part of MindIO's wire that the gate must read: who connects, what a rank registers, and its step.

docs/protocols/mindio.md has the layouts. The gate never changes a byte that it passes on; it forwards unreadable bytes
all the same.
"""

from __future__ import annotations

import struct
from collections.abc import Container
from dataclasses import dataclass

CONNECT = struct.Struct("<hh4xQ")  # magic, version, rank
CONNECT_MAGIC = 0
CONNECT_VERSION = 1  # the only one whose layouts were seen
REPLY = struct.Struct("<h")  # 0: taken
HEADER = struct.Struct("<hhIII")  # type, result, length, sequence, checksum
REGISTER = 0
COPIES = 1
DATA_PARALLEL = 2
HEARTBEAT = 3
DESTROY = 28  # the controller says that it goes, and a rank never beats again
COLLECTED = 10
LOCKED = 12
NORMAL = 26
STATUS = struct.Struct("<iiqbb")  # rank, repair counter, step, run status, device status
STEP = struct.Struct("<q")
STEP_OFFSET = 8  # in a heartbeat
HEARTBEAT_BYTES = 56
ANSWER_BYTES = 16  # before the heartbeat in an answer that carries one
STATUS_OFFSETS = {HEARTBEAT: 0, COLLECTED: ANSWER_BYTES, LOCKED: ANSWER_BYTES, NORMAL: ANSWER_BYTES}
ANSWERS = {4: 5, 7: 8, 9: COLLECTED, 11: LOCKED, 17: 18, 19: 20, 21: 22, 23: 24, 25: NORMAL} | {
    rebuild: rebuild + 1 for rebuild in (29, 31, 33, 35, 37)
}
"""The reply to each action of the controller; a rank replies to pauses when the step ends, to others never."""
LOCK, STOP, CLEAN, REPAIR = 11, 17, 19, 21
PAUSE, PAUSED, GO_ON = 13, 14, 15
"""Pause and go on have the same reply."""
ONCE = {LOCK: ANSWERS[STOP], STOP: ANSWERS[STOP], CLEAN: ANSWERS[CLEAN], REPAIR: ANSWERS[REPAIR], PAUSE: PAUSED}
"""What a process does once until it goes on training, and the answer that tells that it has: asked again it fails,
waits for ever, or is stuck later. What locks again must be stopped again."""
GO_ON_TRAINING = 25
TO_ALL = frozenset({PAUSE, GO_ON, GO_ON_TRAINING, 31, 33})
"""Actions of which every rank gets the same bytes; a rank that does not get them keeps the others waiting."""
HANDLED = {action: answer for action, answer in ANSWERS.items() if action not in (9, LOCK, 25)} | {
    PAUSE: PAUSED,
    GO_ON: PAUSED,
}
"""Replies that the trainer sends when it is done, and not MindIO's own thread."""
KEPT = frozenset({REGISTER, COPIES, DATA_PARALLEL, PAUSED, *STATUS_OFFSETS, *ANSWERS.values()})
LARGEST_KEPT = 4 * 1024 * 1024  # the groups of 100,000 ranks and more
LARGEST_BODY = 256 * 1024 * 1024  # far above any message: a larger length means that the bytes are not MindIO's
# No training gets there: a larger number, or a negative one, means that the field holds something else.
LARGEST_STEP = 1 << 48
FIRST_ACTION = 4  # types below are what ranks say by themselves
SERIAL_AT = {4: 16, 6: 2, 7: 4, 21: 24, 23: 14, 29: 8, 31: 8, 33: 8, 35: 24, 37: 14}
"""Offset of the serial in the body of an action, 0 for the others."""
SERIAL = struct.Struct("<H")
REGISTERED = struct.Struct("<ii")  # result, repair counter: in the reply to a registration
LEFT = 11
"""The run status of a rank that has left MindIO in order."""
TLS_HANDSHAKE = b"\x16\x03"


def opens_tls(data: bytes) -> bool:
    """Return whether these are the first bytes of a TLS handshake."""
    return data[:2] == TLS_HANDSHAKE


def rank_of_connect_frame(frame: bytes) -> int | None:
    """Return the rank of a connect frame, None: this is not MindIO's."""
    magic, _, rank = CONNECT.unpack(frame)
    return int(rank) if magic == CONNECT_MAGIC else None


def version_of_connect_frame(frame: bytes) -> int:
    """Return the version of MindIO's frames that a connect frame announces."""
    _, version, _ = CONNECT.unpack(frame)
    return int(version)


@dataclass(frozen=True, slots=True)
class Status:
    """What a rank says of itself, every 2 s and in its answers to collect, lock and normal.

    Attributes:
        step: Optimizer steps it has completed, 0 before the first; None when the message does not tell.
        counter: How many repairs it knows of.
        left: Its training is over, and it has said goodbye.
        is_well: Neither its process nor its device is at fault, and it waits for nothing.
    """

    rank: int
    step: int | None
    counter: int = 0
    left: bool = False
    is_well: bool = True


@dataclass(frozen=True, slots=True)
class Message:
    """A whole message of a kind that the gate reads."""

    kind: int
    content: bytes  # header included

    def heartbeat_bytes(self) -> bytes:
        """Return the bytes of the heartbeat in it; empty when it carries none, or one of another size."""
        offset = STATUS_OFFSETS.get(self.kind)
        if offset is None or len(self.content) != HEADER.size + offset + HEARTBEAT_BYTES:
            return b""
        return self.content[HEADER.size + offset :]

    def rank_status(self) -> Status | None:
        """Return the status in that heartbeat."""
        heartbeat = self.heartbeat_bytes()
        if not heartbeat:
            return None
        rank, counter, step, run, device = STATUS.unpack_from(heartbeat)
        known = step if 0 <= step <= LARGEST_STEP else None
        return Status(rank, known, counter, run == LEFT, is_well=not run and not device)


def serial_of_action(action: Message) -> int:
    """Return the serial of the controller's action, 0: it has none."""
    at = HEADER.size + SERIAL_AT.get(action.kind, 0)
    if action.kind < FIRST_ACTION or len(action.content) < at + SERIAL.size:
        return 0
    return int(SERIAL.unpack_from(action.content, at)[0])


def parse_action(content: bytes) -> Message | None:
    """Return the action of these bytes; None: they are not a whole one."""
    messages = Inward().cut_messages(content)
    return messages[0] if len(messages) == 1 and messages[0].content == content else None


def parse_registration_reply(reply: bytes) -> tuple[int, int]:
    """Return result and repair counter of the reply to a registration; an odd one refuses."""
    if len(reply) < HEADER.size + REGISTERED.size:
        return -1, 0
    result, counter = REGISTERED.unpack_from(reply, HEADER.size)
    return int(result), int(counter)


class Inward:
    """Cuts what a controller says into whole messages, so that no rank is left in the middle of one.

    Attributes:
        lost: The bytes don't look like MindIO's messages any more: they are passed on as they come.
    """

    def __init__(self) -> None:
        self.lost = False
        self._buffer = bytearray()

    def cut_messages(self, data: bytes) -> list[Message]:
        """Return the messages that these bytes complete; kind -1: bytes that are no message."""
        self._buffer += data
        messages: list[Message] = []
        while len(self._buffer) >= HEADER.size and not self.lost:
            kind, _, length, _, _ = HEADER.unpack_from(self._buffer)
            self.lost = length > LARGEST_BODY
            if self.lost or len(self._buffer) < HEADER.size + length:
                break
            messages.append(Message(kind, bytes(self._buffer[: HEADER.size + length])))
            del self._buffer[: HEADER.size + length]
        if self.lost and self._buffer:
            messages.append(Message(-1, bytes(self._buffer)))
            self._buffer.clear()
        return messages


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes as they came, cut where a message ends; all pieces together are the stream.

    Attributes:
        begins: A message begins with these bytes.
        ends: A message ends with them.
        message: That one, if it is of a kind that the gate reads.
    """

    data: bytes
    begins: bool = False
    ends: bool = False
    message: Message | None = None

    @property
    def is_heartbeat(self) -> bool:
        """Whether this is one heartbeat, which a later one makes worthless."""
        return self.begins and self.message is not None and self.message.kind == HEARTBEAT


class FrameReader:
    """Cuts the bytes that flow between a rank and the controller into messages, however they come.

    Attributes:
        lost: The bytes don't look like MindIO's messages any more: from here on they are only passed on.
    """

    def __init__(self, kept: Container[int] = KEPT) -> None:
        self.lost = False
        self._kept = kept
        self._kind = -1
        self._content = bytearray()
        self._is_header = True
        self._is_kept = True
        self._missing = HEADER.size

    @property
    def is_at_boundary(self) -> bool:
        """Whether the next byte begins a message."""
        return not self.lost and self._is_header and self._missing == HEADER.size

    def cut_pieces(self, data: bytes) -> list[Piece]:
        """Return the pieces of `data`, in order and complete."""
        pieces: list[Piece] = []
        position = 0
        while position < len(data) and not self.lost:
            begins = self.is_at_boundary
            end, message = self._read_message(data, position)
            pieces.append(Piece(data[position:end], begins, self.is_at_boundary, message))
            position = end
        if position < len(data):
            pieces.append(Piece(data[position:]))
        return pieces

    def _read_message(self, data: bytes, position: int) -> tuple[int, Message | None]:
        """Read to the end of one message or of `data`: where that is, and the message if it was read whole."""
        while not self.lost:
            taken = min(self._missing, len(data) - position)
            if self._is_kept:
                self._content += data[position : position + taken]
            self._missing -= taken
            position += taken
            if self._missing:
                return position, None
            if not self._is_header:
                return position, self._complete_message()
            length = self._begin_body()
            if not length and not self.lost:
                return position, self._complete_message()
        return position, None

    def _begin_body(self) -> int:
        self._kind, _, length, _, _ = HEADER.unpack(self._content)
        self.lost = length > LARGEST_BODY
        self._is_header, self._missing = False, int(length)
        self._is_kept = self._kind in self._kept and length <= LARGEST_KEPT
        return self._missing

    def _complete_message(self) -> Message | None:
        message = Message(self._kind, bytes(self._content)) if self._is_kept else None
        self._content.clear()
        self._is_header = self._is_kept = True
        self._missing = HEADER.size
        return message
