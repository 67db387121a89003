"""An HTTP proxy on this machine that tunnels (CONNECT) to one server, whatever host it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

_CHUNK: Final = 65_536


@dataclass
class ConnectProxy:
    """A proxy.

    Attributes:
        host: where it leads.
        port: of that host.
        asked: `host:port` of each tunnel that was asked for.
        url: its own.
    """

    host: str
    port: int
    asked: list[str] = field(default_factory=list)
    url: str = ""

    async def serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Tunnel for one client until either side ends."""
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split(maxsplit=2)
            assert method == "CONNECT", head
            self.asked.append(target)
            upstream, towards = await asyncio.open_connection(self.host, self.port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pump(reader, towards), _pump(upstream, writer))
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def open_proxy(server: str) -> AsyncIterator[ConnectProxy]:
    """Serve a proxy that leads to the server of this URL."""
    host, _, port = server.partition("://")[2].rpartition(":")
    proxy = ConnectProxy(host, int(port))
    listening = await asyncio.start_server(proxy.serve_client, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listening.close()
