"""JSON lines over the launcher's unix socket, and how to reach that socket.

Launcher and agent may have different Pythons, so the protocol uses only what both standard libraries have: one JSON
object a line. The launcher listens; agent and shims dial it, since it lives as long as the ranks. Messages and
their fields are listed in docs/protocols/launcher.md.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import struct
import time
from typing import Any, Dict, List, Mapping, NamedTuple

VERSION = 1
SOCKET_NAME = "launcher.sock"
# The largest message is a shim's call with its whole environment: at most two megabytes, as Linux limits it.
MAXIMUM_LINE_BYTES = 8 * 1024 * 1024
# A shim passes two, its stdout and stderr; what a peer sends beyond these is closed by the kernel.
MAXIMUM_DESCRIPTORS = 4

Message = Dict[str, Any]


class ProtocolError(Exception):
    """The peer sent bytes that are not a message; the text says what, for a log."""


class ProcessName(NamedTuple):
    """The name of one process of a rank; names of one rank are ordered by age."""

    incarnation: int
    start: int


def read_process_name(message: Mapping[str, Any]) -> ProcessName:
    """Return which process of its rank a message is about. KeyError, TypeError, ValueError: it does not say."""
    return ProcessName(int(message["incarnation"]), int(message["start"]))


def boottime_nanoseconds() -> int:
    """Return the time of the clock of this protocol: it counts suspended time, the same in all containers."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def encode_message(message: Message) -> bytes:
    """Return the message as one line; preserve bytes that are not UTF-8 (surrogates in environment, arguments)."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def decode_message(line: bytes) -> Message:
    """Return the object of one line. ProtocolError: not JSON, not an object, or without a kind."""
    try:
        message = json.loads(line.decode("utf-8", "replace"))
    except ValueError as problem:
        raise ProtocolError("not JSON: {!r}".format(line[:80])) from problem
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise ProtocolError("not a message: {!r}".format(line[:80]))
    return message


class SocketPath:
    """Path of a unix socket by its directory's descriptor, since a socket's path may have no more than 107 bytes."""

    def __init__(self, directory: str, name: str = SOCKET_NAME) -> None:
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        self._name = name

    def __enter__(self) -> str:
        """Return a short path, valid within this process until the end of the block."""
        return "/proc/self/fd/{}/{}".format(self._directory, self._name)

    def __exit__(self, *_: object) -> None:
        os.close(self._directory)


def listen_on_socket(directory: str, name: str = SOCKET_NAME) -> socket.socket:
    """Listen on a socket below `directory`, open to every user of the pod; replace an old file of that name."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with SocketPath(directory, name) as path:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        server.bind(path)
        os.chmod(path, 0o666)
    server.listen(16)
    server.setblocking(False)
    return server


class Connection:
    """One dialled peer, without blocking: received bytes become messages, sent messages wait until the peer reads."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self.socket = peer
        self.descriptors: list[int] = []
        self._received = b""
        self._unsent = b""

    @property
    def unsent_bytes(self) -> int:
        """Return the number of bytes that wait for the peer to read."""
        return len(self._unsent)

    def receive_messages(self) -> tuple[list[Message], bool]:
        """Return new messages, and whether the connection is still open. ProtocolError: bytes are no message."""
        try:
            data, ancillary, _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(4 * MAXIMUM_DESCRIPTORS))
        except BlockingIOError:
            return [], True
        except OSError:
            return [], False
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                passed = array.array("i")
                passed.frombytes(payload[: len(payload) - len(payload) % passed.itemsize])
                self.descriptors.extend(passed)
        lines = (self._received + data).split(b"\n")
        self._received = lines.pop()
        if len(self._received) > MAXIMUM_LINE_BYTES:
            raise ProtocolError("a line of more than {} bytes".format(MAXIMUM_LINE_BYTES))
        return [decode_message(line) for line in lines if line], bool(data)

    def send_message(self, message: Message) -> None:
        """Queue a message and write as much as the peer takes now."""
        self._unsent += encode_message(message)
        self.flush_unsent()

    def flush_unsent(self) -> None:
        """Write as much as the peer takes now; `receive_messages` notices a peer that has disconnected."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""

    def process_of_peer(self) -> int:
        """Return the process at the other end, which keeps its number when it becomes another program."""
        credentials = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[0])

    def take_descriptors(self) -> List[int]:
        """Return the descriptors that came through the socket; the caller owns them from now on."""
        taken, self.descriptors = self.descriptors, []
        return taken

    def close(self) -> None:
        """Close the socket and every descriptor that came through it."""
        self.socket.close()
        while self.descriptors:
            os.close(self.descriptors.pop())
