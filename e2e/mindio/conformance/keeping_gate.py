"""A forwarder that keeps its rank's link when the controller goes, and makes the rank known to another one."""

from __future__ import annotations

import asyncio
import contextlib
import struct

from e2e.mindio.conformance.gate import CONNECT, HEADER, Gate

REGISTRATION = (0, 1, 2)
HEARTBEAT = 3


class KeepingGate(Gate):
    """One rank's; every message of the rank is read."""

    def __init__(self, address: str, target: int) -> None:
        super().__init__(address, target)
        self._connect = b""
        self._told: dict[int, bytes] = {}
        self._beat = b""
        self._up: asyncio.StreamWriter | None = None
        self._down: asyncio.Future[None] | None = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.to_rank = writer
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            self._connect = await reader.readexactly(CONNECT.size)
            writer.write(await self._dial())
            while True:
                message = await reader.readexactly(HEADER.size)
                kind, _, length, _, _ = HEADER.unpack(message)
                message += await reader.readexactly(length)
                if kind in REGISTRATION:
                    self._told[kind] = message
                elif kind == HEARTBEAT:
                    self._beat = message
                if self._up is not None:
                    self._up.write(message)
        writer.close()

    async def _dial(self) -> bytes:
        reader, self._up = await asyncio.open_connection(self.address, self.target)
        self._up.write(self._connect)
        reply = await reader.readexactly(2)
        self._down = asyncio.ensure_future(self._pass_down(reader))
        return reply

    async def _pass_down(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self.to_rank is not None:
                    self.to_rank.write(data)

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
