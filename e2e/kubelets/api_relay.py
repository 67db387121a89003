"""The API server at the cluster IP of Service kubernetes: a relay of bytes, in the place of kube-proxy.

python -m e2e.kubelets.api_relay ADDRESS:PORT TARGET:PORT
"""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _serve(place: str, target: str) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = target.rpartition(":")
        try:
            inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pass_on(reader, inner_writer), _pass_on(inner_reader, writer))

    host, _, port = place.rpartition(":")
    server = await asyncio.start_server(connected, host, int(port))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
