"""A forwarder that keeps its rank's link when the controller goes, and makes the rank known to another one."""

from __future__ import annotations

import asyncio
import contextlib
import struct

from e2e.mindio.conformance.gate import CONNECT, HEADER, Gate
from e2e.mindio.conformance.serials import ANSWER_BYTES, serial

REGISTRATION = (0, 1, 2)
HEARTBEAT, NORMAL, DESTROYED = 3, 25, 28


class KeepingGate(Gate):
    """One rank's; every message of both is read.

    Attributes:
        answers: Actions that it answers itself, in the rank's place, until the rank is to train again.
    """

    def __init__(self, address: str, target: int) -> None:
        super().__init__(address, target)
        self._connect = b""
        self._told: dict[int, bytes] = {}
        self._beat = b""
        self.answers: set[int] = set()
        self._up: asyncio.StreamWriter | None = None
        self._down: asyncio.Future[None] | None = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.to_rank = writer
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.closing(writer), contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            self._connect = await reader.readexactly(CONNECT.size)
            writer.write(await self._dial())
            is_first = True
            while True:
                message = await reader.readexactly(HEADER.size)
                kind, _, length, _, _ = HEADER.unpack(message)
                message += await reader.readexactly(length)
                if is_first and kind not in REGISTRATION and self._up is not None:
                    self._up.close()  # it has lost its link and not its life: it never registers again
                    await self.replay(heartbeat=False)
                is_first = False
                if kind in REGISTRATION:
                    self._told[kind] = message
                elif kind == HEARTBEAT:
                    self._beat = message
                if self._up is not None:
                    self._up.write(message)

    async def _dial(self) -> bytes:
        reader, self._up = await asyncio.open_connection(self.address, self.target)
        self._up.write(self._connect)
        reply = await reader.readexactly(2)
        self._down = asyncio.ensure_future(self._pass_down(reader))
        return reply

    async def _pass_down(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                message = await reader.readexactly(HEADER.size)
                kind, _, length, _, _ = HEADER.unpack(message)
                message += await reader.readexactly(length)
                if kind == NORMAL:
                    self.answers = set()
                if kind in self.answers and self._up is not None:
                    self._up.write(done(kind, message[HEADER.size :], self._beat[HEADER.size :]))
                elif self.to_rank is not None and kind != DESTROYED:
                    self.to_rank.write(message)

    def part(self) -> None:
        """Let go of the controller; the rank's link stays."""
        if self._up is not None:
            self._up.close()
        self._up = None

    async def replay(self, *, heartbeat: bool = True, stays: bool = True) -> None:
        """Tell the controller of now what the rank has told; `stays`: join both sides, else hang up."""
        reader, up = await asyncio.open_connection(self.address, self.target)
        up.write(self._connect)
        await reader.readexactly(2)
        for kind in REGISTRATION:
            if kind in self._told:
                up.write(self._told[kind])
                (length,) = struct.unpack_from("<I", await reader.readexactly(HEADER.size), 4)
                await reader.readexactly(length)
        if not stays:
            up.close()
            return
        if heartbeat:
            up.write(self._beat)
        self._up = up
        self._down = asyncio.ensure_future(self._pass_down(reader))

    async def stop(self) -> None:
        """End everything."""
        self.part()
        if self._down is not None:
            self._down.cancel()
        await super().stop()


def done(kind: int, body: bytes, beat: bytes) -> bytes:
    """The answer to an action that a rank has carried out before."""
    rank = beat[:4]
    number = struct.pack("<iHxx", 0, serial(kind, body, answers=False))
    account = struct.pack("<q", -1) + beat
    answer = number + (account if ANSWER_BYTES.get(kind + 1) else rank)
    return HEADER.pack(kind + 1, 0, len(answer), 0, 0) + answer
