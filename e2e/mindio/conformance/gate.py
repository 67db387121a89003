"""A forwarder between a rank and the controller that can hold, be deaf, or close (docs/protocols/mindio.md §9)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

CONNECT = struct.Struct("<hh4xQ")
HEADER = struct.Struct("<hhIII")


class Gate:
    """Listens on one port and forwards bytes both ways for as long as it is open."""

    def __init__(self, address: str, target: int) -> None:
        self.address = address
        self.target = target
        self.port = 0
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.sent = bytearray()
        self.received = bytearray()
        self.to_rank: asyncio.StreamWriter | None = None

    async def listen(self) -> None:
        """Take connections (again, on the same port)."""
        self._server = await asyncio.start_server(self._serve, self.address, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def set(self, mode: str) -> None:
        """Change the mode: open, hold, deaf or close."""
        self._closing = mode == "close"
        if mode == "hold":
            self._open.clear()
        else:
            self._open.set()
        if mode in {"deaf", "close"}:
            self._cut()
        if mode == "deaf" and self._server is not None:
            self._server.close()
            self._server = None
        elif mode != "deaf" and self._server is None:
            await self.listen()

    def _cut(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        try:
            if self._closing:
                return
            await self._open.wait()
            upstream = await asyncio.open_connection(self.address, self.target)
            await self._both(reader, writer, *upstream)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            if task is not None:
                self._tasks.discard(task)
            writer.close()

    async def _both(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> None:
        for stream in (writer, up_writer):
            stream.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ways = {
            asyncio.ensure_future(self._pump(reader, up_writer, self.sent)),
            asyncio.ensure_future(self._pump(up_reader, writer, self.received)),
        }
        self.to_rank = writer
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            up_writer.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, copy: bytearray | None = None
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if copy is not None:
                    copy += data
                await self._open.wait()
                writer.write(data)
                await writer.drain()

    async def stop(self) -> None:
        """End everything."""
        self._cut()
        if self._server is not None:
            self._server.close()
