"""The controller's side of the network: one listener, one thread, one link per rank.

A new connection for a rank closes the link that the rank had: this is how a stale process and its successor steal the
link from each other for ever, and the buffers of a link that was taken away are never given back
(docs/protocols/mindio.md §9).
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Protocol

from . import _settings as settings
from . import _wire as wire
from ._tls import Material, SecureSocket

GREETING_SECONDS = 1800.0
"""So long the listener waits for a rank's hello."""
THEFT_SECONDS = 1.0


class Owner(Protocol):
    """What the server tells of; every call comes from the server's thread."""

    def admit(self, rank: int) -> bool:
        """Whether a rank of that number may connect at all."""

    def opened(self, link: Link) -> None:
        """A rank's link is open."""

    def received(self, link: Link, kind: int, body: bytes) -> None:
        """A whole message has come."""

    def closed(self, link: Link) -> None:
        """A link is gone."""


class Link:
    """One accepted connection; `rank` is -1 until its connect frame has come."""

    def __init__(self, sock: socket.socket | SecureSocket) -> None:
        self.sock = sock
        self.rank = -1
        self.reader = wire.FrameReader()
        self.greeting = bytearray()
        self.open = True
        self.dropped = False
        self.since = time.monotonic()
        self.stolen = False
        self._from_a_thief = False
        self._sending = threading.Lock()

    @property
    def young(self) -> bool:
        """Whether it was opened just now."""
        return time.monotonic() - self.since < THEFT_SECONDS

    @property
    def contested(self) -> bool:
        """Whether two processes are stealing this rank from each other: no order gets through to either."""
        return self._from_a_thief and self.young

    def take_over(self, old: Link) -> None:
        """This link is the rank's now; the old one was stolen when it had only just been opened itself."""
        if settings.on("theft_blinds"):
            old.stolen, self._from_a_thief = True, old.young

    def send(self, data: bytes) -> bool:
        """Send whole or close; False when the link is not open (any more)."""
        with self._sending:
            view = memoryview(data)
            try:
                while view and self.open:
                    try:
                        view = view[self.sock.send(view) :]
                    except BlockingIOError:
                        if not select.select([], [self.sock], [], 2.0)[1]:
                            raise TimeoutError from None
            except (OSError, ValueError):
                self.shut()
            return self.open

    def shut(self) -> None:
        """End the connection; the server's thread sees it and cleans up."""
        self.open = False
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


class Greeter:
    """The one thread that takes connections where TLS is on: a rank that begins none keeps it, and all behind it."""

    def __init__(self, tls: Material, take: Callable[[SecureSocket, bytes], None]) -> None:
        self._tls, self._take = tls, take
        self._waiting: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        threading.Thread(target=self._greet_for_ever, name="mindio-listener", daemon=True).start()

    def put(self, sock: socket.socket) -> None:
        """Add a connection that was accepted."""
        self._waiting.put(sock)

    def _greet_for_ever(self) -> None:
        while True:
            sock = self._waiting.get()
            try:
                sock.settimeout(GREETING_SECONDS)
                greeting = sock.recv(wire.CONNECT.size)
                if len(greeting) != wire.CONNECT.size:
                    raise ConnectionResetError("no connect frame")
                self._take(SecureSocket(sock, self._tls), greeting)
            except OSError as problem:
                settings.log(f"a connection is closed: {problem}")
                sock.close()


class Server:
    """Listens on one address and reads from every link in a thread of its own."""

    def __init__(self, owner: Owner, address: str, port: int, tls: Material | None = None) -> None:
        """Bind and listen; `OSError` when that fails."""
        self.owner = owner
        self._greeter = Greeter(tls, self._take_greeted) if tls is not None else None
        self._greeted: queue.SimpleQueue[tuple[Link, int]] = queue.SimpleQueue()
        self.links: dict[int, Link] = {}
        self.abandoned: list[bytearray] = []
        self._listener = _listen(address, port)
        self._shadow = _outlive(self._listener) if settings.on("dying_backlog") else None
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="mindio-server", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Close everything and wait for the thread, unless it is the caller."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._wake_write.send(b"x")
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, Link):
                    self._read(key.data)
                elif self._greeter is not None and not self._stopping:
                    self._admit_greeted()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Link):
                self._drop(key.data)
        self._selector.close()
        for sock in (self._listener, self._wake_read, self._wake_write):
            sock.close()
        if self._shadow is not None:
            pid, told = self._shadow
            os.write(told, b"x")
            os.close(told)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._greeter is not None:
            self._greeter.put(sock)
            return
        sock.setblocking(False)
        self._selector.register(sock, selectors.EVENT_READ, Link(sock))

    def _take_greeted(self, sock: SecureSocket, greeting: bytes) -> None:
        """From the greeter's thread: a connection has its TLS."""
        link = Link(sock)
        link.greeting += greeting
        self._greeted.put((link, sock.fileno()))
        with contextlib.suppress(OSError):
            self._wake_write.send(b"x")

    def _admit_greeted(self) -> None:
        self._wake_read.recv(4096)
        while not self._greeted.empty():
            link, descriptor = self._greeted.get()
            link.sock.setblocking(False)
            if not self._greet(link):
                self._drop(link)
                continue
            self._selector.register(descriptor, selectors.EVENT_READ, link)
            self._read(link)  # what came with the last bytes of the handshake wakes nobody

    def _read(self, link: Link) -> None:
        while True:
            try:
                data = link.sock.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._drop(link)
                return
            self._feed(link, data)
            if not isinstance(link.sock, SecureSocket) or link.dropped:
                return  # else there may be more, of which the selector knows nothing

    def _feed(self, link: Link, data: bytes) -> None:
        if link.rank < 0:
            link.greeting += data
            if len(link.greeting) < wire.CONNECT.size:
                return
            data = bytes(link.greeting[wire.CONNECT.size :])
            if not self._greet(link):
                self._drop(link)
                return
        try:
            for kind, _, _, body in link.reader.feed(data):
                self.owner.received(link, kind, body)
        except (ValueError, struct.error) as error:
            settings.log(f"rank {link.rank} sent what cannot be read: {error}")
            self._drop(link)

    def _greet(self, link: Link) -> bool:
        magic, version, rank = wire.CONNECT.unpack_from(link.greeting)
        if magic != wire.MAGIC or version != wire.VERSION or not self.owner.admit(rank):
            return False
        link.rank = rank
        old = self.links.get(rank)
        if old is not None:
            if not settings.on("link_theft") or (old.young and not settings.on("theft_is_mutual")):
                return False
            link.take_over(old)
            if settings.on("theft_grows"):
                self.abandoned.append(bytearray(3072))
            self.links[rank] = link
            self._drop(old)
        self.links[rank] = link
        link.send(wire.CONNECT_REPLY.pack(0))
        self.owner.opened(link)
        return True

    def keep_beside(self, rank: int) -> Link | None:
        """Set a rank's link aside, so that a second process may connect for the same rank."""
        return self.links.pop(rank, None)

    def _drop(self, link: Link) -> None:
        if link.dropped:
            return
        link.open, link.dropped = False, True
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(link.sock)
        link.sock.close()
        if self.links.get(link.rank) is link:
            del self.links[link.rank]
        if link.rank >= 0:
            self.owner.closed(link)


def _outlive(listener: socket.socket) -> tuple[int, int]:
    """A process that keeps the listener a moment longer than this one, and the pipe that tells it of the end.

    The kernel takes a dying process apart piece by piece: ranks that lost their link connect once more before their
    listener is closed, and are reset (docs/protocols/mindio.md §9.3). An end in order writes a byte, and nobody stays.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(read_end)
        return pid, write_end
    try:
        kept = {listener.fileno(), read_end}
        low = 0
        for number in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
            os.closerange(low, number)
            low = number + 1
        if not os.read(read_end, 1):
            time.sleep(settings.DYING_SECONDS)
    finally:
        os._exit(0)


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(1024)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
