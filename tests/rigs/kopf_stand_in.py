"""kopf as the frontend calls it, without a cluster: it notes how it was begun, and ends when a test wants it to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest


class KopfStandIn:
    """What the frontend runs in its thread instead of kopf.

    Attributes:
        begun: one entry for each time it was begun: with what.
        life: what it does until it ends; at first it ends at once.
        seen: the handler of events that the frontend has registered last.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.life: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)
        self.seen: Callable[..., Awaitable[None]] | None = None
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr("kopf.operator", self._operator)
        monkeypatch.setattr("kopf.on.event", self._event)

    async def _operator(self, **arguments: Any) -> None:
        self._loop.call_soon_threadsafe(self.begun.put_nowait, arguments)
        await self.life()

    def _event(self, **_: object) -> Callable[[Callable[..., Awaitable[None]]], None]:
        def register(handler: Callable[..., Awaitable[None]]) -> None:
            self.seen = handler

        return register

    async def next_begin(self) -> dict[str, Any]:
        """Wait until it is begun; return its arguments."""
        async with asyncio.timeout(90):
            return await self.begun.get()
