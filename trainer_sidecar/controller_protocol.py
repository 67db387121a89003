"""The protocol between coordinator and controller host: lines of JSON, their unix socket, the kinds of a problem.

Part of the archive of the controller host: standard library, Python >= 3.7.

A socket's path may have 107 bytes; the directory of an `emptyDir` on a node is easily longer. So both sides open the
directory and name the socket through `/proc/self/fd`, which is short whatever the directory is called.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from typing import Any, Dict, List, Optional

log = logging.getLogger(__name__)

Message = Dict[str, Any]
SOCKET_NAME = "controller.sock"
VERSION = 1
RESULT = "report_result"
"""MindIO's callback that ends an incident, with code 0: it is at rest again."""
# An incident leaves some ten entries, so this holds dozens since MindIO last was at rest. A refused call is not kept.
LOG_LIMIT = 512
PACKAGE, ADDRESS, PORT, LOST, HUNG, OTHER = "package", "address", "port", "lost", "hung", "other"
"""Kinds of a problem in the host's state (docs/protocols/sidecar.md, "The controller host")."""
UNHEARD = "unheard"
"""One more, with `launcher: TaskD`: the manager in whose process the controller is has not subscribed yet."""


def now_nanoseconds() -> int:
    """Return the time of this machine's clock that counts suspended time; the same for all processes of a pod."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def encode_message(message: Message) -> bytes:
    """Return the message as one line, newline included."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def state_without_controller(attempt: int) -> Message:
    """Return the host's state where no controller was started."""
    state = {"attempt": attempt, "controller": "none", "store": "none", "problem": "", "kind": ""}
    return dict(state, world_size=0, instance="", takes_over=False, unfilled=False)


def log_message(log: List[Message], message: Message) -> None:
    """Add a message to the log since MindIO last was at rest; a success report begins it anew, with its order."""
    if message.get("event") == RESULT and message["arguments"][0] == 0:
        message["order"] = max([entry.get("order") or 0 for entry in log], default=0)
        log.clear()
    log.append(message)
    del log[:-LOG_LIMIT]


class LineBuffer:
    """Buffer that joins the pieces of a stream into lines."""

    def __init__(self) -> None:
        self._rest: List[bytes] = []  # pieces of a line: a long one arrives in many, joined once

    def cut_messages(self, data: bytes) -> List[Message]:
        """Return every message that `data` completes; log and drop a line that is not a JSON object."""
        self._rest.append(data)
        if b"\n" not in data:
            return []
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest = [rest]
        messages = []
        for line in lines:
            message = self._decode_line(line)
            if message is not None:
                messages.append(message)
        return messages

    def _decode_line(self, line: bytes) -> Optional[Message]:
        try:
            message = json.loads(line.decode())
        except ValueError:
            message = None
        if isinstance(message, dict):
            return message
        log.warning("a line that is no JSON object is left out: %.80r", line)
        return None


def listen_on_socket(directory: str, name: str) -> socket.socket:
    """Listen on the unix socket `name` in `directory`, open to every user; replace an older file of that name."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        path = "/proc/self/fd/%d/%s" % (descriptor, name)
        if os.path.lexists(path):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        os.chmod(path, 0o666)  # the other end runs as another container's user; the directory is the pod's own
        listener.listen(4)
        listener.setblocking(False)
        return listener
    finally:
        os.close(descriptor)


def connect_to_socket(directory: str, name: str) -> socket.socket:
    """Connect to the unix socket `name` in `directory`; `OSError` while no process listens there."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect("/proc/self/fd/%d/%s" % (descriptor, name))
    except OSError:
        connection.close()
        raise
    finally:
        os.close(descriptor)
    return connection
