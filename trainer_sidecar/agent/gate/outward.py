"""A rank's bytes on their way to the controller: read as soon as they come, passed on when that is allowed.

Reading goes on while the gate holds, because heartbeats tell that a rank lives and how far it is. What is held is
bounded: of heartbeats behind one another only the newest is kept (each says everything, and none is answered), and
beyond a limit nothing more is read. While there is no controller at all, nothing but the newest heartbeat is kept: what
else the rank says answers a controller that is gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from trainer_sidecar.agent.gate.frames import Piece

# Thousands of replies: a rank owes one or two at a time. Beyond it the rank waits in its own socket, as without a gate.
LIMIT_BYTES = 256 * 1024


class Outward:
    """A bounded queue of pieces with one reader and one writer; `is_held` says that nothing may pass for now."""

    def __init__(self, is_held: Callable[[], bool]) -> None:
        self._is_held = is_held
        self._pieces: deque[Piece] = deque()
        self._size = 0
        self._ended = False
        self._is_attached = True
        self._is_between = True  # the last piece that came ended a message
        self._inserted: list[bytes] = []
        self._is_torn = False  # the beginning of the message that comes now went to a controller that is gone
        self._change = asyncio.Event()

    def detach_controller(self) -> None:
        """Keep only the newest heartbeat: the controller is gone."""
        self._is_attached = False
        self._is_torn = not self._is_between
        self._inserted.clear()
        beats = [piece for piece in self._pieces if piece.is_heartbeat]
        self._replace_pieces(beats[-1:])

    def attach_controller(self) -> None:
        """Keep everything from the next whole message on: a controller is there again."""
        self._is_attached = True

    async def put_piece(self, piece: Piece) -> None:
        """Add a piece, once there is room for it."""
        self._is_between = piece.ends
        self._is_torn = (self._is_torn and not piece.begins) or (piece.begins and not self._is_attached)
        if self._pieces and piece.is_heartbeat and self._pieces[-1].is_heartbeat and self._is_waiting():
            self._size -= len(self._pieces.pop().data)
        if self._is_torn and not piece.is_heartbeat:
            return
        while self._size >= LIMIT_BYTES and self._is_attached:
            await self._wait_for_change()
        self._append_piece(piece)
        if self._inserted and piece.ends:
            self._append_piece(Piece(b"".join(self._inserted), begins=True, ends=True))
            self._inserted.clear()

    def insert_message(self, message: bytes) -> None:
        """Add a whole message that the rank has not sent, between two of its own."""
        if self._is_between:
            self._append_piece(Piece(message, begins=True, ends=True))
        else:
            self._inserted.append(message)

    def _append_piece(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._size += len(piece.data)
        self._change.set()

    def _is_waiting(self) -> bool:
        return not self._is_attached or self._is_held()

    def end_input(self) -> None:
        """Mark the end: nothing more will come."""
        self._ended = True
        self._change.set()

    async def wait_for_bytes(self) -> bool:
        """Wait until something is there to be taken; False: nothing more will come."""
        while not self._pieces and not self._ended:
            await self._wait_for_change()
        return bool(self._pieces)

    def take_bytes(self) -> bytes:
        """Take out all bytes that wait."""
        taken = b"".join(piece.data for piece in self._pieces)
        self._replace_pieces([])
        return taken

    def _replace_pieces(self, pieces: list[Piece]) -> None:
        self._pieces = deque(pieces)
        self._size = sum(len(piece.data) for piece in pieces)
        self._change.set()

    async def _wait_for_change(self) -> None:
        self._change.clear()
        await self._change.wait()
