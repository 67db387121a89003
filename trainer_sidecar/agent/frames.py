"""As much of MindIO's wire as the gate must read: who connects, and which messages are heartbeats.

docs/protocols/mindio.md has the layouts. The gate never changes a byte; what it cannot read it forwards all the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

CONNECT = struct.Struct("<hh4xQ")  # magic, version, rank
CONNECT_MAGIC = 0
REPLY = struct.Struct("<h")  # 0: taken
HEADER = struct.Struct("<hhIII")  # type, result, length, sequence, checksum
REGISTER = 0
COPIES = 1
HEARTBEAT = 3
HEARTBEAT_START = struct.Struct("<iiq")  # rank, repair counter, step
HEARTBEAT_BYTES = 56
LARGEST_BODY = 256 * 1024 * 1024


def opens_tls(frame: bytes) -> bool:
    """Whether these are the first bytes of a TLS handshake, where a connect frame should be."""
    return frame[:2] == b"\x16\x03"


def connecting_rank(frame: bytes) -> int | None:
    """The rank of a connect frame, None: this is not MindIO's."""
    magic, _, rank = CONNECT.unpack(frame)
    return int(rank) if magic == CONNECT_MAGIC else None


@dataclass(frozen=True)
class Heartbeat:
    """What a heartbeat says that the gate uses."""

    rank: int
    step: int


class HeartbeatReader:
    """Finds the heartbeats in the bytes that flow from a rank to the controller, however they are cut.

    Attributes:
        registered: The rank has registered on this link.
        told_copies: The rank has said where its optimizer's copies are.
    """

    def __init__(self) -> None:
        self.registered = False
        self.told_copies = False
        self._buffer = b""
        self._skip = 0
        self._lost = False

    @property
    def is_lost(self) -> bool:
        """The bytes don't look like MindIO's messages; silence can no longer be told."""
        return self._lost

    def feed(self, data: bytes) -> Iterator[Heartbeat]:
        """The heartbeats that `data` completes."""
        while data and not self._lost:
            if self._skip:
                skipped = min(self._skip, len(data))
                self._skip -= skipped
                data = data[skipped:]
                continue
            self._buffer += data
            data = b""
            if len(self._buffer) < HEADER.size:
                return
            kind, _, length, _, _ = HEADER.unpack_from(self._buffer)
            if kind == HEARTBEAT and length == HEARTBEAT_BYTES:
                if len(self._buffer) < HEADER.size + length:
                    return
                rank, _, step = HEARTBEAT_START.unpack_from(self._buffer, HEADER.size)
                yield Heartbeat(rank, step)
            self.registered = self.registered or kind == REGISTER
            self.told_copies = self.told_copies or kind == COPIES
            self._lost = length > LARGEST_BODY
            data, self._buffer, self._skip = self._buffer[HEADER.size :], b"", length
