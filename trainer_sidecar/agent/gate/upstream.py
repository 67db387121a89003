"""Connect to the server behind a gate: MindIO's controller, or the rendezvous store."""

from __future__ import annotations

import asyncio

from hajob.protocol import addresses
from trainer_sidecar.agent.gate.listener import CHUNK

# A node without power answers nothing, and the kernel alone would try for two minutes.
CONNECT_TIMEOUT_SECONDS = 5.0
# Short at first: a start, or a recovery behind another controller, waits for it.
FIRST_RETRY_SECONDS = 0.05
# Of a job with thousands of ranks all gates try at once, so a controller that stays away is asked seldom.
LAST_RETRY_SECONDS = 1.0


async def open_upstream(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to host:port, an IPv6 host in brackets. OSError, TimeoutError: it cannot be had; ValueError: no port."""
    host, port = addresses.split(address)
    async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
        return await asyncio.open_connection(host, port, limit=CHUNK)
