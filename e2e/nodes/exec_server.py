"""``kubectl exec``: a command in a running container, its streams over one WebSocket.

The protocol is Kubernetes' ``v5.channel.k8s.io``: the first byte of each message is a channel. The API server hands
WebSockets through to nodes that declare ``ExtendWebSocketsToKubelet`` (since 1.36; to others it speaks SPDY, which is
not served here).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import struct
import termios
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import WSMsgType, web

from e2e.nodes.config import JsonObject
from e2e.nodes.container import LiveContainer
from e2e.nodes.processes import Process, StartError, Streams
from e2e.nodes.tasks import end_tasks, start_task

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
_CHUNK = 32 * 1024


@dataclass
class Ends:
    """Our ends of a command's streams: ``outputs`` are (channel, file descriptor) to read from."""

    stdin: int
    outputs: tuple[tuple[int, int], ...]
    terminal: bool
    closed: bool = False

    def close_input(self) -> None:
        """Close standard input, once: the number may be somebody else's descriptor afterwards."""
        if not self.closed:
            self.closed = True
            os.close(self.stdin)


async def serve_exec(request: web.Request, container: LiveContainer) -> web.WebSocketResponse:
    """Run the command of the request and carry its streams until it has ended."""
    socket = web.WebSocketResponse(protocols=PROTOCOLS)
    await socket.prepare(request)
    command = request.query.getall("command", [])
    try:
        process, ends = _start(container, command, terminal=request.query.get("tty") in {"1", "true"})
    except StartError as error:
        await _finish(socket, failure("InternalError", str(error)))
        return socket
    feeding = start_task(_feed(socket, ends))
    try:
        async with asyncio.TaskGroup() as group:
            for channel, descriptor in ends.outputs:
                group.create_task(_carry(socket, channel, descriptor))
        await _finish(socket, outcome(await process.exited))
    finally:
        await end_tasks(feeding)
        ends.close_input()
    return socket


def outcome(code: int) -> JsonObject:
    """The last word on the error channel: the ``Status`` that tells the exit code."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    told = failure("NonZeroExitCode", f"command terminated with non-zero exit code: exit status {code}")
    return told | {"details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}


def failure(reason: str, message: str) -> JsonObject:
    """A ``Status`` of a command that failed or could not be started."""
    return {"metadata": {}, "status": "Failure", "reason": reason, "message": message}


def _start(container: LiveContainer, command: Sequence[str], *, terminal: bool) -> tuple[Process, Ends]:
    if terminal:
        ours, theirs = pty.openpty()
        return _launch(container, command, [theirs] * 3, Ends(ours, ((STDOUT, os.dup(ours)),), terminal=True))
    stdin, ours_in = os.pipe()
    ours_out, stdout = os.pipe()
    ours_error, stderr = os.pipe()
    ends = Ends(ours_in, ((STDOUT, ours_out), (STDERR, ours_error)), terminal=False)
    return _launch(container, command, [stdin, stdout, stderr], ends)


def _launch(container: LiveContainer, command: Sequence[str], theirs: list[int], ends: Ends) -> tuple[Process, Ends]:
    try:
        return container.execute(command, Streams(*theirs)), ends
    except StartError:
        for descriptor in (ends.stdin, *(descriptor for _, descriptor in ends.outputs)):
            os.close(descriptor)
        raise
    finally:
        for descriptor in set(theirs):
            os.close(descriptor)


async def _carry(socket: web.WebSocketResponse, channel: int, descriptor: int) -> None:
    """Send what the command writes until it closes the stream or the client has gone."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    try:
        with contextlib.suppress(OSError):  # a terminal that is closed, a client that has gone
            while chunk := await reader.read(_CHUNK):
                await socket.send_bytes(bytes([channel]) + chunk)
    finally:
        transport.close()


async def _feed(socket: web.WebSocketResponse, ends: Ends) -> None:
    """Give the command what the client sends, the size of its window and the end of its input included."""
    async for message in socket:
        if message.type is not WSMsgType.BINARY or not message.data:
            continue
        channel, content = message.data[0], message.data[1:]
        if channel == STDIN:
            await asyncio.to_thread(_write_all, ends.stdin, content)
        elif channel == RESIZE and ends.terminal:
            size = json.loads(content)
            fcntl.ioctl(ends.stdin, termios.TIOCSWINSZ, struct.pack("HHHH", size["Height"], size["Width"], 0, 0))
        elif channel == CLOSE and content[:1] == bytes([STDIN]) and not ends.terminal:
            ends.close_input()
            return


def _write_all(descriptor: int, content: bytes) -> None:
    with contextlib.suppress(OSError):
        while content:
            content = content[os.write(descriptor, content) :]


async def _finish(socket: web.WebSocketResponse, status: JsonObject) -> None:
    with contextlib.suppress(ConnectionError):
        await socket.send_bytes(bytes([ERROR]) + json.dumps(status).encode())
        await socket.close()
