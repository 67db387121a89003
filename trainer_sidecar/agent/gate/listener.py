"""A port that the agent keeps for the processes of its own pod, and for nobody else.

When the agent is killed, its sockets are closed one after the other, and a rank that lost its link connects again
within microseconds: were the listener still open then, the kernel would accept that connection and close it. Linux
closes a dying process's descriptors from the highest down (measured: a listener below its links accepted and closed
135 of 300 such connections, one above them none), so the listener has a higher one than any link will get.

Who connects from an address that this pod does not have is held and counted, never read: another could say that it
is any rank. docs/protocols/launcher.md#the-gate
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import ipaddress
import logging
import resource
import socket
from abc import ABC, abstractmethod
from collections import deque

from trainer_sidecar.agent.gate.rules import Rules

CHUNK = 65536
# After a change of controller all processes of the pod connect in one moment; the kernel drops connections beyond the
# backlog, and a client that was dropped waits a second before it tries again.
BACKLOG = 512
# Above the links of a pod: each of its ranks has two here, and one or two for each process at the store's port.
LISTENER_DESCRIPTOR = 4000
# Refused connections cost a rank nothing up to 6 s; after 12 s MindIO loses every rank (docs/protocols/mindio.md).
BIND_RETRY_SECONDS = 1.0
HELD_CONNECTIONS = 64
"""So many foreign ones are held; for one more the oldest is let go, or they would use up the agent's descriptors."""

log = logging.getLogger(__name__)


@functools.lru_cache(maxsize=1024)
def is_of_this_pod(host: str) -> bool:
    """Return whether `host` is an address of the network namespace that all containers of a pod share."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    zone = host if address.is_link_local else str(address)
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(socket.getaddrinfo(zone, 0, family, socket.SOCK_DGRAM)[0][4])
    except OSError:
        return False
    return True


class Listener(ABC):
    """Listens at one address; every connection of the pod itself is served by a task of its own.

    Attributes:
        port: Where it listens.
        rules: of the agent.
    """

    def __init__(self, address: str, port: int, rules: Rules) -> None:
        self._address = address
        self.port = port
        self.rules = rules
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._held: deque[asyncio.StreamWriter] = deque()

    async def listen_at_port(self) -> None:
        """Listen; while the port is somebody else's, say so and try again every second."""
        while self._server is None:
            try:
                self._server = await asyncio.start_server(
                    self._accept_connection,
                    sock=self._bind_socket(),
                    limit=CHUNK,
                    backlog=BACKLOG,  # it listens again, by default to 100
                )
            except OSError as problem:
                self.rules.report_taken_port(self.port, problem)
                await asyncio.sleep(BIND_RETRY_SECONDS)

    def _bind_socket(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._address, self.port))
            listener.listen(BACKLOG)
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            highest = min(LISTENER_DESCRIPTOR, limit - 16)
            return socket.socket(fileno=fcntl.fcntl(listener.fileno(), fcntl.F_DUPFD_CLOEXEC, highest))

    async def close_port(self) -> None:
        """Stop listening and end every connection."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        for writer in self._held:
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @abstractmethod
    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end; what it raises is logged, and the connection closed."""

    def _accept_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        host = str(peer[0]) if peer else "an unknown address"
        if not is_of_this_pod(host):
            self._hold_connection(host, writer)
            return
        task: asyncio.Task[None] = asyncio.ensure_future(self._serve_and_log_errors(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_and_log_errors(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve_connection(reader, writer)
        except Exception:
            log.exception("a connection at port %d ended by an error of the agent's own", self.port)
        finally:
            writer.close()

    def _hold_connection(self, host: str, writer: asyncio.StreamWriter) -> None:
        self.rules.report_foreign_connection(self.port, host)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        self._held.append(writer)
        if len(self._held) > HELD_CONNECTIONS:
            self._held.popleft().close()
