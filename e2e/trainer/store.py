"""The rendezvous store of the toy training: where ranks leave their addresses. It is what torch's TCPStore is to Hajob.

It lives beside the MindIO controller, not in rank 0, so that every rank is a client and rank 0 can be lost like the
others. It is no kinder than torch's: it forgets everything when its process ends, knows neither ranks nor incarnations,
answers no `set`, and ends the connection of a client that says what it does not understand or asks for what is not
there. Of torch's, each speaks its own version only; this one takes a client's first bytes for its version.
docs/internals/toy-trainer.md, "Store"
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from e2e.trainer import store_wire as wire

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable


class _EndedError(Exception):
    """The client has gone, or says what is not understood."""


class _Link:
    """One client: what it says, and the keys it waits for."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._unread = b""
        self.awaited: set[bytes] = set()

    async def greet(self) -> wire.Version:
        """The version it speaks; the first byte of torch 1.13's most frequent request is that of a greeting, too."""
        self._unread = await self._read(1)
        if self._unread == wire.NEW.greeting[:1]:
            self._unread += await self._reader.readexactly(len(wire.NEW.greeting) - 1)
            if version := wire.GREETINGS.get(self._unread):
                self._unread = b""
                return version
        return wire.OLD

    async def operation(self) -> int:
        """Number of the next one."""
        return (await self._read(1))[0]

    async def string(self) -> bytes:
        """A string it sends."""
        return await self._read(await self.length())

    async def strings(self) -> list[bytes]:
        """A list it sends."""
        return [await self.string() for _ in range(await self.length())]

    async def length(self) -> int:
        """How much of something follows."""
        (length,) = wire.LENGTH.unpack(await self._read(wire.LENGTH.size))
        return int(length)

    async def number(self) -> int:
        """A number it sends."""
        (number,) = wire.NUMBER.unpack(await self._read(wire.NUMBER.size))
        return int(number)

    async def nonce(self) -> bytes:
        """What a ping is to bring back."""
        return await self._read(wire.NONCE.size)

    async def answer(self, data: bytes) -> None:
        """Send, and wait while it does not read."""
        self._writer.write(data)
        await self._writer.drain()

    def tell(self, data: bytes) -> None:
        """Send."""
        self._writer.write(data)

    def close(self) -> None:
        """End it."""
        self._writer.close()

    async def _read(self, size: int) -> bytes:
        known, self._unread = self._unread[:size], self._unread[size:]
        return known + await self._reader.readexactly(size - len(known))


class _Server:
    """Keys, values, and who waits for which key."""

    def __init__(self) -> None:
        self._content: dict[bytes, bytes] = {}
        self._waiting: dict[bytes, set[_Link]] = {}

    async def serve(self, listener: socket.socket) -> None:
        """Serve until cancelled."""
        import asyncio

        server = await asyncio.start_server(self._client, sock=listener)
        async with server:
            await server.serve_forever()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(reader, writer)
        with contextlib.suppress(OSError, EOFError, KeyError, ValueError, _EndedError):
            await self._converse(link)
        self._forget(link)
        link.close()

    async def _converse(self, link: _Link) -> None:
        version = await link.greet()
        known = {number: getattr(self, f"_{name}", None) for name, number in version.numbers.items()}
        operations: dict[int, Callable[[_Link], Awaitable[None]] | None] = known
        while True:
            operation = operations.get(await link.operation())
            if operation is None:
                raise _EndedError
            await operation(link)

    async def _set(self, link: _Link) -> None:
        self._write(await link.string(), await link.string())

    async def _compare_set(self, link: _Link) -> None:
        """A key that is not there is equal to nothing at all; else what was expected is answered, as if it were."""
        key, expected, desired = await link.string(), await link.string(), await link.string()
        if self._content.get(key, b"") == expected:
            self._write(key, desired)
        await link.answer(wire.string(self._content.get(key, expected)))

    async def _get(self, link: _Link) -> None:
        await link.answer(wire.string(self._content[await link.string()]))

    async def _add(self, link: _Link) -> None:
        key, more = await link.string(), await link.number()
        number = int(self._content.get(key, b"0")) + more
        self._write(key, b"%d" % number)
        await link.answer(wire.NUMBER.pack(number))

    async def _check(self, link: _Link) -> None:
        keys = await link.strings()
        await link.answer(wire.READY if all(key in self._content for key in keys) else wire.NOT_READY)

    async def _wait(self, link: _Link) -> None:
        link.awaited = {key for key in await link.strings() if key not in self._content}
        for key in link.awaited:
            self._waiting.setdefault(key, set()).add(link)
        if not link.awaited:
            await link.answer(wire.ARRIVED)

    async def _cancel_wait(self, link: _Link) -> None:
        self._forget(link)
        await link.answer(wire.CANCELED)

    async def _num_keys(self, link: _Link) -> None:
        await link.answer(wire.NUMBER.pack(len(self._content)))

    async def _delete(self, link: _Link) -> None:
        was_there = self._content.pop(await link.string(), None) is not None
        await link.answer(wire.NUMBER.pack(was_there))

    async def _append(self, link: _Link) -> None:
        key, more = await link.string(), await link.string()
        self._write(key, self._content.get(key, b"") + more)

    async def _multi_get(self, link: _Link) -> None:
        await link.answer(b"".join([wire.string(self._content[key]) for key in await link.strings()]))

    async def _multi_set(self, link: _Link) -> None:
        for _ in range(await link.length()):
            self._write(await link.string(), await link.string())

    @staticmethod
    async def _ping(link: _Link) -> None:
        await link.answer(await link.nonce())

    def _write(self, key: bytes, value: bytes) -> None:
        self._content[key] = value
        for link in self._waiting.pop(key, ()):
            link.awaited.discard(key)
            if not link.awaited:
                link.tell(wire.ARRIVED)

    def _forget(self, link: _Link) -> None:
        for key in link.awaited:
            waiting = self._waiting.get(key, set())
            waiting.discard(link)
            if not waiting:
                self._waiting.pop(key, None)
        link.awaited = set()


def serve(host: str, port: int) -> None:
    """Serve the store on an address of this machine; blocks. Raises OSError when the address is taken."""
    serve_at(socket.create_server((host, port), backlog=1024))


def serve_at(listener: socket.socket) -> None:
    """Serve the store on a socket that listens; blocks."""
    import asyncio

    asyncio.run(_Server().serve(listener))
