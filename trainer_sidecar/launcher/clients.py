"""The connections to the launcher's socket: one agent, the newest, and the shims of the start script."""

from __future__ import annotations

from typing import Any, Callable, Dict

from . import protocol
from .loop import Loop
from .output import Terminal

# An agent that leaves so much unread is stopped or gone; what counts, such as an exit, is kept for it all the same.
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
        self._server = protocol.listen_on_socket(directory)
        self.agent: protocol.Connection | None = None

    def open_socket(self) -> None:
        """Begin to listen for clients."""
        self._loop.watch_descriptor(self._server.fileno(), self._accept_client)

    def _accept_client(self) -> None:
        try:
            peer, _ = self._server.accept()
        except OSError:
            return
        connection = protocol.Connection(peer)
        self._loop.watch_descriptor(peer.fileno(), lambda: self._receive_messages(connection))

    def _receive_messages(self, connection: protocol.Connection) -> None:
        try:
            messages, is_open = connection.receive_messages()
            for message in messages:
                self._take(connection, message)
        except (protocol.ProtocolError, KeyError, TypeError, ValueError) as problem:
            self._terminal.print_message("a connection to the launcher is closed, it sent {!r}".format(problem))
            is_open = False
        if not is_open:
            self._drop_client(connection)

    def _drop_client(self, connection: protocol.Connection) -> None:
        if connection.socket.fileno() < 0:
            return
        self._loop.forget_descriptor(connection.socket.fileno())
        if connection is self.agent:
            self.agent = None
        self._gone(connection)
        connection.close()

    def send_message(self, connection: protocol.Connection, message: Dict[str, Any]) -> None:
        """Queue a message; it is sent as fast as the peer reads."""
        connection.send_message(message)
        self._watch_for_room(connection)

    def _watch_for_room(self, connection: protocol.Connection) -> None:
        if connection.socket.fileno() < 0:
            return

        def room() -> None:
            connection.flush_unsent()
            self._watch_for_room(connection)

        self._loop.watch_descriptor(
            connection.socket.fileno(),
            lambda: self._receive_messages(connection),
            room if connection.unsent_bytes else None,
        )

    def set_agent(self, connection: protocol.Connection) -> None:
        """Make this connection the agent's; notify and drop the one before."""
        former, self.agent = self.agent, connection
        if former is not None and former is not connection:
            self.send_message(former, {"kind": "replaced"})
            self._drop_client(former)

    def tell_agent(self, message: Dict[str, Any], droppable: bool = False) -> None:
        """Send to the agent, if one is connected; a later agent gets the whole state."""
        if self.agent is not None and not (droppable and self.agent.unsent_bytes > DROPPABLE_ABOVE_BYTES):
            self.send_message(self.agent, message)

    def read_agent_messages(self) -> None:
        """Read the messages that the agent has sent until now."""
        if self.agent is not None:
            self._receive_messages(self.agent)
