"""Plays one side of a kept conversation (tests/integration/sidecar/record.py) to a peer of today, byte by byte.

Nothing here parses what it says with today's descriptors: it says the bytes that the old program said. It keeps the
order of things: before it says something that answered a peer's order, the peer must have given that order now.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from e2e.cluster.loopback import own_address, own_port
from hajob.protocol import sidecar_pb2 as pb

RECORDINGS = Path(__file__).parent / "recordings"
JOB = "3f1d2c3e-job"
TYPES: dict[str, Any] = {"operator": pb.OperatorMessage, "coordinator": pb.CoordinatorToAgent}
PATIENCE = 90.0


@dataclass(frozen=True)
class Line:
    """One message of a recording."""

    sender: str
    message: bytes


def recording(version: str, name: str) -> list[Line]:
    """A kept conversation, as it went."""
    lines = [json.loads(line) for line in (RECORDINGS / version / f"{name}.jsonl").read_text().splitlines()]
    return [Line(line["from"], base64.b64decode(line["message"])) for line in lines]


def asks_for(message: Any) -> str:
    """What a peer's message wants done, where an answer depends on it."""
    body = message.WhichOneof("body")
    if body == "order":
        return f"order {pb.Action.Name(message.order.action)}"
    if body == "node_order":
        running = sorted((rank.rank, rank.incarnation, rank.admitted) for rank in message.node_order.ranks if rank.run)
        return f"node order {running}"
    return ""


class KeptServer:
    """The answering side: a coordinator, or an agent."""

    def __init__(self, service: str, lines: list[Line], tls: grpc.ServerCredentials) -> None:
        self._lines, self._tls = lines, tls
        self._dialler = lines[0].sender
        self._service = f"hajob.sidecar.v1.{service}"
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        self._asked: set[str] = set()
        self._news = asyncio.Event()
        self.heard: list[Any] = []
        self.over = asyncio.Event()
        self.address = f"{own_address()}:{own_port()}"

    async def start(self) -> None:
        """Listen."""
        handler: Any = grpc.stream_stream_rpc_method_handler(self._converse, None, None)
        service = grpc.method_handlers_generic_handler(self._service, {"Converse": handler})
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_secure_port(self.address, self._tls)
        await self._server.start()

    async def stop(self) -> None:
        """Hang up."""
        await self._server.stop(None)

    async def _converse(self, requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        reader = asyncio.create_task(self._read(requests))
        try:
            for line in self._lines:
                if line.sender != self._dialler:
                    yield line.message
                elif asked := asks_for(TYPES[self._dialler].FromString(line.message)):
                    await self._until_asked(asked)
            self.over.set()
            await reader
        finally:
            reader.cancel()

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        async for message in requests:
            self.heard.append(TYPES[self._dialler].FromString(message))
            self._asked.add(asks_for(self.heard[-1]))
            self._news.set()

    async def _until_asked(self, what: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while what not in self._asked:
                self._news.clear()
                await self._news.wait()


async def speak(lines: list[Line], service: str, address: str, tls: grpc.ChannelCredentials, name: str) -> Any:
    """The dialling side, as a stream of what the server answers, in bytes; all its words are said, then it listens."""
    options = (("grpc.ssl_target_name_override", name), ("grpc.enable_http_proxy", 0))
    async with grpc.aio.secure_channel(address, tls, options=options) as channel:
        call: Any = channel.stream_stream(f"/hajob.sidecar.v1.{service}/Converse")()
        for line in lines:
            if line.sender == lines[0].sender:
                await call.write(line.message)
        while (answer := await call.read()) is not grpc.aio.EOF:
            yield answer
