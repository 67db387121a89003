"""Telling an empty rendezvous store what the one before it held."""

from __future__ import annotations

import asyncio

from hajob.protocol import addresses
from trainer_sidecar.coordinator.state.store_keeping import Fill
from trainer_sidecar.store_protocol import LENGTH

# All ranks wait meanwhile: a store that has stopped reading must not keep them for ever.
FILL_SECONDS = 30.0


async def fill_store(address: str, fill: Fill) -> str:
    """Write everything and read the last key back: requests of one client are carried out in order.

    Returns why it could not be done; empty: it is.
    """
    try:
        async with asyncio.timeout(FILL_SECONDS):
            reader, writer = await asyncio.open_connection(*addresses.split(address))
            try:
                writer.write(fill.dialect.greeting)
                for key, value in fill.entries:
                    writer.write(fill.dialect.set_request(key, value))
                    await writer.drain()
                if not fill.entries:
                    return ""
                key, expected = fill.entries[-1]
                writer.write(fill.dialect.get_request(key))
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                return "" if await reader.readexactly(length) == expected else f"it answers something else for {key!r}"
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as problem:
        return f"the new one cannot be filled: {problem!r}"
