"""The way between manager and agents: lines of JSON over TCP, in the place of TaskD's own TaskNet at port 9601."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

PORT: Final = 9601
Message = dict[str, Any]


def messages_of(connection: socket.socket) -> Iterator[Message]:
    """Yield what the other side says, until it ends."""
    with contextlib.suppress(OSError), connection.makefile("r", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def send(connection: socket.socket, message: Message) -> bool:
    """Say something; False: the other side is gone."""
    try:
        connection.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        return False
    return True


class Hub:
    """The manager's side; `take` gets each message with the agent's node rank, in a thread of its own."""

    def __init__(self, address: str, take: Callable[[str, Message], None]) -> None:
        self._listener = socket.create_server((address, PORT))
        self._take = take
        self._agents: dict[str, socket.socket] = {}
        threading.Thread(target=self._accept_for_ever, daemon=True).start()

    def _accept_for_ever(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        node = ""
        for message in messages_of(connection):
            if message["kind"] == "register":
                node = str(message["node"])
                self._agents[node] = connection  # the newest one counts
            self._take(node, message)

    def tell_agent(self, node: str, message: Message) -> bool:
        """Say something to one agent; False: it is not known, or gone."""
        connection = self._agents.get(node)
        return connection is not None and send(connection, message)
