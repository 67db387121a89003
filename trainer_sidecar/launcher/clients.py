"""The connections to the launcher's socket: one agent, the newest, and the shims of the start script."""

from __future__ import annotations

from typing import Any, Callable, Dict

from . import protocol
from .loop import Loop
from .output import Terminal

DROPPABLE_ABOVE_BYTES = 1024 * 1024


class Clients:
    """The connections: `take` gets each message and may refuse it by an error, `gone` each connection at its end."""

    def __init__(
        self,
        loop: Loop,
        directory: str,
        terminal: Terminal,
        take: Callable[[protocol.Connection, Dict[str, Any]], None],
        gone: Callable[[protocol.Connection], None],
    ) -> None:
        self._loop, self._terminal, self._take, self._gone = loop, terminal, take, gone
        self._server = protocol.listen(directory)
        self.agent: protocol.Connection | None = None

    def open(self) -> None:
        """Begin to listen for clients."""
        self._loop.watch(self._server.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            peer, _ = self._server.accept()
        except OSError:
            return
        connection = protocol.Connection(peer)
        self._loop.watch(peer.fileno(), lambda: self._receive(connection))

    def _receive(self, connection: protocol.Connection) -> None:
        try:
            messages, is_open = connection.receive()
            for message in messages:
                self._take(connection, message)
        except (protocol.ProtocolError, KeyError, TypeError, ValueError) as problem:
            self._terminal.say("a connection to the launcher is closed, it sent {!r}".format(problem))
            is_open = False
        if not is_open:
            self._drop(connection)

    def _drop(self, connection: protocol.Connection) -> None:
        if connection.socket.fileno() < 0:
            return
        self._loop.forget(connection.socket.fileno())
        if connection is self.agent:
            self.agent = None
        self._gone(connection)
        connection.close()

    def send(self, connection: protocol.Connection, message: Dict[str, Any]) -> None:
        """Queue a message; it is sent as fast as the peer reads."""
        connection.send(message)
        self._watch_for_room(connection)

    def _watch_for_room(self, connection: protocol.Connection) -> None:
        if connection.socket.fileno() < 0:
            return

        def room() -> None:
            connection.flush()
            self._watch_for_room(connection)

        self._loop.watch(
            connection.socket.fileno(), lambda: self._receive(connection), room if connection.unsent else None
        )

    def agent_is(self, connection: protocol.Connection) -> None:
        """Make this connection the agent's; notify and drop the one before."""
        former, self.agent = self.agent, connection
        if former is not None and former is not connection:
            self.send(former, {"kind": "replaced"})
            self._drop(former)

    def tell(self, message: Dict[str, Any], droppable: bool = False) -> None:
        """Send to the agent, if one is connected; a later agent gets the whole state."""
        if self.agent is not None and not (droppable and self.agent.unsent > DROPPABLE_ABOVE_BYTES):
            self.send(self.agent, message)

    def hear_agent(self) -> None:
        """Read the messages that the agent has sent until now."""
        if self.agent is not None:
            self._receive(self.agent)
