"""The agent's end of the launcher's socket: what the launcher said is heard to its end, orders wait for room."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.rigs.rank_pod import until
from trainer_sidecar.agent.supervise.launcher_client import LauncherClient
from trainer_sidecar.launcher import protocol


@dataclass
class Scene:
    """A client and the launcher's end of its connection, which the test plays."""

    client: LauncherClient
    launcher: socket.socket
    events: list[str] = field(default_factory=list)


@asynccontextmanager
async def connected(directory: Path) -> AsyncIterator[Scene]:
    server = protocol.listen_on_socket(str(directory))
    events: list[str] = []
    client = LauncherClient(
        directory, {}, lambda message: events.append(message["kind"]), lambda: events.append("lost")
    )
    running = asyncio.ensure_future(client.connect_for_ever())
    launcher, _ = await asyncio.get_running_loop().sock_accept(server)
    server.close()
    (directory / protocol.SOCKET_NAME).unlink()
    launcher.setblocking(False)
    hello = await asyncio.get_running_loop().sock_recv(launcher, 1000)
    assert protocol.decode_message(hello)["kind"] == "agent"
    try:
        yield Scene(client, launcher, events)
    finally:
        running.cancel()
        await asyncio.wait([running])
        launcher.close()


async def test_last_words_are_heard_although_an_order_fails(tmp_path: Path) -> None:
    async with connected(tmp_path) as scene:
        scene.launcher.sendall(protocol.encode_message({"kind": "rank"}) + protocol.encode_message({"kind": "script"}))
        scene.launcher.close()
        scene.client.send_message({"kind": "end"})  # before the client had a turn to read
        await until(lambda: "lost" in scene.events, "the launcher's end")
        assert scene.events == ["rank", "script", "lost"]


async def test_an_order_never_read_drops_no_last_words(tmp_path: Path) -> None:
    async with connected(tmp_path) as scene:
        scene.client.send_message({"kind": "end"})
        scene.launcher.sendall(protocol.encode_message({"kind": "rank"}))
        scene.launcher.close()  # with something unread: its peer is reset
        await until(lambda: "lost" in scene.events, "the launcher's end")
        assert scene.events == ["rank", "lost"]


async def test_orders_wait_for_a_launcher_that_is_busy(tmp_path: Path) -> None:
    async with connected(tmp_path) as scene:
        text = "x" * 100_000
        for number in range(20):
            scene.client.send_message({"kind": "start", "number": number, "text": text})
        reader, writer = await asyncio.open_unix_connection(sock=scene.launcher, limit=protocol.MAXIMUM_LINE_BYTES)
        for number in range(20):
            assert protocol.decode_message(await reader.readline()) == {"kind": "start", "number": number, "text": text}
        writer.close()
        await until(lambda: scene.events == ["lost"], "the launcher's end")
