"""What verbs about bytes need: what a rank sends, what a controller answers (docs/protocols/mindio.md §9.1).

The layouts are written down a second time here on purpose: a gate relies on them, so the simulator's own code must not
be what they are compared with.
"""

from __future__ import annotations

import asyncio
import struct

from e2e.mindio.conformance.gate import CONNECT, HEADER
from e2e.mindio.conformance.serials import ANSWER_BYTES, serial
from e2e.mindio.conformance.world import ADDRESS, World

HEARTBEAT = struct.Struct("<iiq4b4xqq16s")


def frames(data: bytes) -> list[tuple[int, bytes]]:
    """Type and body of each whole message."""
    found = []
    while len(data) >= HEADER.size:
        kind, _, length, _, _ = HEADER.unpack_from(data)
        if len(data) < HEADER.size + length:
            break
        found.append((kind, data[HEADER.size : HEADER.size + length]))
        data = data[HEADER.size + length :]
    return found


def wrong_with(data: bytes, rank: int) -> str | None:
    """What is wrong with the bytes that a rank has sent since it connected, None when nothing is."""
    if len(data) < CONNECT.size or CONNECT.unpack_from(data) != (0, 1, rank):
        return f"connect frame {data[:16].hex()}"
    messages = frames(data[CONNECT.size :])
    if not messages or messages[0] != (0, struct.pack("<i", rank)):
        return f"first message {messages[:1]}"
    beats = [body for kind, body in messages if kind == 3]
    if not beats or any(len(b) != HEARTBEAT.size for b in beats):
        return f"heartbeats of {[len(b) for b in beats]} bytes"
    fields = [HEARTBEAT.unpack(b) for b in beats]
    steps = [f[2] for f in fields]
    if any(f[0] != rank for f in fields) or steps != sorted(steps) or steps[-1] < 1:
        return f"heartbeats {fields}"
    return None


def exchange_problem(received: bytes, sent: bytes, wanted: list[list[int]]) -> str | None:
    """What is wrong with the actions that a rank got (type, bytes) and its answers (type): None when nothing is."""
    actions = [(kind, body) for kind, body in frames(received[2:]) if kind > 3]
    answers = [(kind, body) for kind, body in frames(sent[CONNECT.size :]) if kind > 3]
    if [(kind, len(body)) for kind, body in actions] != [(kind, length) for kind, length, _ in wanted]:
        return f"actions {[(kind, len(body)) for kind, body in actions]}"
    if [(kind, len(body)) for kind, body in answers] != [(reply, ANSWER_BYTES.get(reply, 12)) for *_, reply in wanted]:
        return f"answers {[(kind, len(body)) for kind, body in answers]}"
    told = [serial(kind, body, answers=False) for kind, body in actions]
    answered = [serial(kind, body, answers=True) for kind, body in answers]
    if told != answered or told != sorted(set(told)):
        return f"serials {told} are answered by {answered}"
    return None


def collected(sent: bytes) -> list[int]:
    """Serials of the answers to collect."""
    return [serial(kind, body, answers=True) for kind, body in frames(sent[CONNECT.size :]) if kind == 10]


def collect(number: int) -> bytes:
    """The action "collect" with a serial."""
    return HEADER.pack(9, 0, 2, 0, 0) + struct.pack("<H", number)


async def greet(world: World, frame: bytes) -> bytes:
    """The controller's first bytes to somebody who connects and sends `frame`; empty when it closes."""
    reader, writer = await asyncio.open_connection(ADDRESS, world.port)
    writer.write(frame)
    try:
        return await asyncio.wait_for(reader.read(16), 10.0)
    except (TimeoutError, ConnectionError):
        return b""
    finally:
        writer.close()
