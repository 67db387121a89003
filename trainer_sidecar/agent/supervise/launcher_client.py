"""The agent's end of the launcher's socket: dialled until it answers, and again after an agent was restarted.

The launcher starts after the agent (the trainer's container waits for its sidecars), so the socket is looked for every
tenth of a second; that is cheap and needs nothing but the shared directory.

The launcher's last words are how its ranks and its script ended, and it leaves as soon as it has sent them. An order
that is written at that moment fails; asyncio's transport would then drop what it has not read yet. So orders are
written through a descriptor of their own, and only the end of what can be read is the end of the launcher.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainer_sidecar.access import describe_refusal
from trainer_sidecar.launcher import protocol

# A look at a path of the pod costs microseconds; a rank may not be started before the agent is connected.
RETRY_SECONDS = 0.1
# Two agents that take the launcher from each other would do so for ever; a pause lets the one that is meant to stay
# win.
REPLACED_SECONDS = 5.0

log = logging.getLogger(__name__)


class LauncherClient:
    """Client that connects, passes messages on, and reports when the launcher has ended."""

    def __init__(
        self,
        directory: Path,
        hello: Mapping[str, Any],
        take: Callable[[Mapping[str, Any]], None],
        lost: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._hello = hello
        self._take = take
        self._lost = lost
        self._orders: protocol.Connection | None = None
        self._refusal = ""

    def send_message(self, message: dict[str, Any]) -> bool:
        """Send when connected, and say so; after a connect everything is decided anew, so nothing is queued."""
        if self._orders is None:
            return False
        self._orders.send_message(message)
        self._watch_for_room(self._orders)
        return True

    def _watch_for_room(self, orders: protocol.Connection) -> None:
        loop, descriptor = asyncio.get_running_loop(), orders.socket.fileno()
        if orders.unsent_bytes:
            loop.add_writer(descriptor, self._flush_orders, orders)
        else:
            loop.remove_writer(descriptor)

    def _flush_orders(self, orders: protocol.Connection) -> None:
        orders.flush_unsent()
        self._watch_for_room(orders)

    async def connect_for_ever(self) -> None:
        """Connect and listen, for ever."""
        while True:
            try:
                reader, writer = await self._connect_to_socket()
            except OSError as problem:
                self._log_refusal(problem)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._refusal = ""
            self._orders = protocol.Connection(writer.get_extra_info("socket").dup())
            self.send_message({"kind": "agent", "version": protocol.VERSION, **self._hello})
            try:
                replaced = await self._read_messages(reader)
            finally:
                self._close_orders(self._orders)
                writer.close()
            if replaced:
                log.error("another agent has connected to the launcher")
                await asyncio.sleep(REPLACED_SECONDS)
            else:
                self._lost()

    def _log_refusal(self, problem: OSError) -> None:
        """Log a refusal: a launcher that has not started yet is expected; a permission error stays."""
        if not isinstance(problem, PermissionError):
            return
        text = describe_refusal(self._directory / protocol.SOCKET_NAME, problem)
        if text != self._refusal:
            log.error("the launcher cannot be reached: %s", text)
        self._refusal = text

    def _close_orders(self, orders: protocol.Connection) -> None:
        self._orders = None
        asyncio.get_running_loop().remove_writer(orders.socket.fileno())
        orders.close()

    async def _connect_to_socket(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        with protocol.SocketPath(str(self._directory)) as path:
            return await asyncio.open_unix_connection(path, limit=protocol.MAXIMUM_LINE_BYTES)

    async def _read_messages(self, reader: asyncio.StreamReader) -> bool:
        """Read until the connection ends; True: another agent took over."""
        while True:
            try:
                line = await reader.readline()
                if not line:
                    return False
                message = protocol.decode_message(line)
                if message["kind"] == "replaced":
                    return True
                self._take(message)
                await asyncio.sleep(0)  # a stream with much in it is read without waiting, and leases are due meanwhile
            except OSError:
                return False
            except (ValueError, KeyError, TypeError, protocol.ProtocolError) as problem:
                log.warning("a message of the launcher is malformed and ignored: %r", problem)
