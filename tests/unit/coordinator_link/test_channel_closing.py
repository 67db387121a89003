"""Hanging up must not be lost when the coordinator speaks at that very moment: a deleted job would stay for ever."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from hajob.coordinator_link.channel import Channel, CoordinatorCredentials
from hajob.protocol import sidecar_pb2 as wire
from tests.rigs.channel_listeners import DeafListener
from tests.rigs.fake_clock import FakeClock


class Stream:
    def __init__(self) -> None:
        self.next: asyncio.Future[wire.CoordinatorMessage] = asyncio.get_running_loop().create_future()

    async def read(self) -> wire.CoordinatorMessage:
        message = await self.next
        self.next = asyncio.get_running_loop().create_future()
        return message


async def test_closing_is_not_lost_when_a_message_comes_with_it() -> None:
    stream = Stream()
    credentials = CoordinatorCredentials(b"", b"", b"")
    channel = Channel("127.0.0.1:1", "uid", credentials, DeafListener(), fence=lambda: 1, clock=FakeClock())
    reading = asyncio.create_task(channel._read(stream))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    stream.next.set_result(wire.CoordinatorMessage(hello=wire.Hello(version=1)))
    for _ in range(5):  # until it waits for the next message
        await asyncio.sleep(0)
    assert channel.up
    stream.next.set_result(wire.CoordinatorMessage(report=wire.Report()))
    reading.cancel()
    await asyncio.wait({reading}, timeout=60)
    assert reading.cancelled()


async def test_a_conversation_in_which_nothing_can_be_said_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports would go on arriving, and no order would ever leave."""
    stream = Stream()
    credentials = CoordinatorCredentials(b"", b"", b"")
    channel = Channel("127.0.0.1:1", "uid", credentials, DeafListener(), fence=lambda: 1, clock=FakeClock())

    async def fail(*_: object) -> None:
        raise ValueError("this order cannot be sent")

    monkeypatch.setattr(channel, "_dial", contextlib.nullcontext)
    monkeypatch.setattr(
        "hajob.coordinator_link.channel.CoordinatorStub", lambda _: SimpleNamespace(Converse=lambda: stream)
    )
    monkeypatch.setattr(channel, "_speak", fail)
    async with asyncio.timeout(60):
        assert await channel._converse() == "this order cannot be sent"
