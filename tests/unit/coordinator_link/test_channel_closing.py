"""Hanging up must not be lost when the coordinator speaks at that very moment: a deleted job would stay for ever."""

import asyncio

import pytest

from hajob.coordinator_link.channel import Channel, CoordinatorCredentials, Dialer
from hajob.leader.leadership import Leadership
from hajob.protocol import sidecar_pb2 as wire
from tests.rigs.channel_listeners import DeafListener, NotingListener, ScriptedStream, put_at_every_address
from tests.rigs.fake_clock import FakeClock, settle

CREDENTIALS = CoordinatorCredentials(b"", b"", b"")


class Stream:
    """It has said hello; its next word is given by the test."""

    def __init__(self) -> None:
        self.next: asyncio.Future[wire.CoordinatorMessage] = asyncio.get_running_loop().create_future()
        self.next.set_result(wire.CoordinatorMessage(hello=wire.Hello(version=1)))

    async def read(self) -> wire.CoordinatorMessage:
        message = await self.next
        self.next = asyncio.get_running_loop().create_future()
        return message

    async def write(self, _: wire.OperatorMessage) -> None:
        """Take everything."""


async def test_closing_is_not_lost_when_a_message_comes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    put_at_every_address(monkeypatch, stream)
    channel = Channel("127.0.0.1:1", "uid", CREDENTIALS, DeafListener(), Dialer(Leadership(), FakeClock()))
    channel.start_dialling()
    await settle()  # until it waits for the next message
    assert channel.up
    stream.next.set_result(wire.CoordinatorMessage(report=wire.Report()))
    async with asyncio.timeout(60):
        await channel.close_channel()


class Unwritable(ScriptedStream):
    """It can be written to until an order comes."""

    async def write(self, message: wire.OperatorMessage) -> None:
        if message.WhichOneof("body") == "order":
            raise ValueError("this order cannot be sent")


async def test_a_conversation_in_which_nothing_can_be_said_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports would go on arriving, and no order would ever leave."""
    put_at_every_address(monkeypatch, Unwritable())
    listener = NotingListener()
    channel = Channel("127.0.0.1:1", "uid", CREDENTIALS, listener, Dialer(Leadership(), FakeClock()))
    channel.start_dialling()
    await settle()
    channel.send_order(wire.Order(revision=1))
    await settle()
    assert listener.news == [(True, ""), (False, "this order cannot be sent")]
    await channel.close_channel()
