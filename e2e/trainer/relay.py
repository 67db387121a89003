"""A relay between one rank and MindIO's controller that can swallow the rank's heartbeats.

A rank whose heart has stopped while its link still answers was seen with the real package (docs/protocols/mindio.md,
9.2) and cannot be ordered of it. This makes one with whichever package is on the path: it knows no more than the frames
of 9.1, which is what Hajob's gate relies on, too. Only `TOY_RELAY=1` puts it into the way.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

_CONNECT_BYTES: Final = 16
_HEADER: Final = struct.Struct("<hhIII")  # type, result, length, sequence, checksum
_HEARTBEAT: Final = 3
_CHUNK: Final = 65536


class Relay:
    """Listens at `own` and forwards every connection to the controller at (`host`, `port`)."""

    def __init__(self, own: str, host: str, port: int) -> None:
        self._controller = (host, port)
        self._muted = threading.Event()
        self._listener = socket.create_server((own, 0))
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        """Where the rank is to look for the controller."""
        name = self._listener.getsockname()
        return str(name[0]), int(name[1])

    def mute(self) -> None:
        """From here on no heartbeat passes; everything else does."""
        self._muted.set()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), name="relay-link", daemon=True).start()

    def _serve(self, rank: socket.socket) -> None:
        with rank, contextlib.suppress(OSError), socket.create_connection(self._controller) as controller:
            back = copy_back(rank, controller)
            with rank.makefile("rb") as frames:
                self._forward(frames, controller)
            controller.shutdown(socket.SHUT_RDWR)
            back.join()

    def _forward(self, frames: BinaryIO, controller: socket.socket) -> None:
        controller.sendall(frames.read(_CONNECT_BYTES))
        while len(header := frames.read(_HEADER.size)) == _HEADER.size:
            kind, _, length, _, _ = _HEADER.unpack(header)
            body = frames.read(length)
            if kind != _HEARTBEAT or not self._muted.is_set():
                controller.sendall(header + body)


def forward(near: socket.socket, target: tuple[str, int], hold: Callable[[], None] = lambda: None) -> None:
    """All bytes of both directions between a connection and `target`, until one side ends; closes the connection.

    Args:
        near: a connection that was taken.
        target: address and port.
        hold: called before each piece is sent on; may wait.
    """
    with near, contextlib.suppress(OSError), socket.create_connection(target) as far:
        back = copy_back(near, far, hold)
        _copy(near, far, hold)
        back.join()


def copy_back(near: socket.socket, far: socket.socket, hold: Callable[[], None] = lambda: None) -> threading.Thread:
    """A thread that brings what `far` says to `near`; neither link waits to fill a packet."""
    for one in (near, far):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    back = threading.Thread(target=_copy, args=(far, near, hold), name="relay-back", daemon=True)
    back.start()
    return back


def _copy(source: socket.socket, target: socket.socket, hold: Callable[[], None]) -> None:
    """All bytes of one direction; its end is the end of the link."""
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            hold()
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
