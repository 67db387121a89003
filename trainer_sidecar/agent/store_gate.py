"""The rendezvous store's port on this pod: every process of the pod meets the others through it.

A rank has one address for its store as long as its pod lives, wherever the store is. Like MindIO's gate it serves its
own pod only, holds while the lease does not hold or no store is known, and never accepts a connection to close it: a
client of torch's store connects once and never again. docs/protocols/launcher.md#the-store
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from trainer_sidecar.agent.listener import CHUNK, Listener, ListenerRules

CONNECT_TIMEOUT_SECONDS = 5.0
FIRST_RETRY_SECONDS = 0.05
LAST_RETRY_SECONDS = 1.0

log = logging.getLogger(__name__)


class StoreRules(ListenerRules, Protocol):
    """What this gate asks, and tells, the rest of the agent."""

    def may_meet(self) -> bool:
        """Whether the processes of this pod may reach the store now."""

    def store_address(self) -> str:
        """host:port of the rendezvous store, empty while there is none."""


class StoreGate:
    """The listener and what it forwards."""

    def __init__(self, address: str, port: int, rules: StoreRules) -> None:
        self.rules = rules
        self.listener = Listener(address, port, self._serve, rules)
        self._change = asyncio.Event()

    async def listen(self) -> None:
        """Listen; while the port is somebody else's, say so and try again every second."""
        await self.listener.listen()

    async def close(self) -> None:
        """Stop listening and end every connection."""
        await self.listener.close()

    def changed(self) -> None:
        """Order or lease has changed: whatever waits looks again."""
        self._change.set()
        self._change = asyncio.Event()

    async def _until_open(self) -> None:
        while not self.rules.may_meet():
            await self._change.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Nothing is read before the store is there: a process that leaves meanwhile is noticed then."""
        upstream, store = await self._connect()
        pumps = [
            asyncio.ensure_future(self._pump(reader, store)),
            asyncio.ensure_future(self._pump(upstream, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            store.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the store as often as it takes, only while that is allowed."""
        delay = FIRST_RETRY_SECONDS
        while True:
            await self._until_open()
            address = self.rules.store_address()
            host, _, port = address.rpartition(":")
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                    return await asyncio.open_connection(host.strip("[]"), int(port), limit=CHUNK)
            except (OSError, TimeoutError, ValueError) as problem:
                log.info("a process of this pod waits for the store at %s: %r", address, problem)
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_RETRY_SECONDS)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            await self._until_open()
            writer.write(data)
            await writer.drain()
