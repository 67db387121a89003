"""Who listens to a coordinator's channel, and who is found where it dials."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from hajob.protocol import sidecar_pb2 as wire

CHANNEL = "hajob.coordinator_link.channel"


class DeafListener:
    """A listener that welcomes every coordinator and does nothing with what it says."""

    async def check_hello(self, _hello: wire.Hello) -> bool:
        return True

    def apply_report(self, _report: wire.Report) -> None:
        pass

    def note_connection_change(self, up: bool, reason: str) -> None:
        pass


class NotingListener(DeafListener):
    """A listener that notes when the channel came up or went down, and why."""

    def __init__(self) -> None:
        self.news: list[tuple[bool, str]] = []

    def note_connection_change(self, up: bool, reason: str) -> None:
        """Note it."""
        self.news.append((up, reason))


class ScriptedStream:
    """A coordinator's stream that says what a test hands it, and takes what the operator writes."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[wire.CoordinatorMessage] = asyncio.Queue()
        self.heard: list[wire.OperatorMessage] = []
        self.say(hello=wire.Hello(version=1))

    def say(self, *, hello: wire.Hello | None = None, report: wire.Report | None = None) -> None:
        """Let the operator read a message."""
        self.said.put_nowait(wire.CoordinatorMessage(hello=hello, report=report))

    async def read(self) -> wire.CoordinatorMessage:
        """Return the next message as soon as there is one."""
        return await self.said.get()

    async def write(self, message: wire.OperatorMessage) -> None:
        """Take a message of the operator."""
        self.heard.append(message)


def put_at_every_address(monkeypatch: pytest.MonkeyPatch, stream: object) -> None:
    """Have channels find this stream wherever they dial; no port is asked, and no certificate is needed."""

    async def answers(*_: object) -> bool:
        return True

    monkeypatch.setattr(f"{CHANNEL}.accepts_connection", answers)
    monkeypatch.setattr("hajob.wire.tls.secure_channel", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(f"{CHANNEL}.CoordinatorStub", lambda _: SimpleNamespace(Converse=lambda: stream))
