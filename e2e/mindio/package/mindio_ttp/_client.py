"""A rank's side of its link: connect, reconnect, read, beat.

Three threads use it: the reader (also the one that reconnects), the heart, and whoever answers. What ends the
protection of a rank for good, without an exception anywhere, is here: no controller for 15 seconds, a peer that
accepts a connection and closes it, and a heart that could not send three times (docs/protocols/mindio.md §9).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

from . import _settings as settings
from . import _wire as wire
from ._tls import Material, SecureSocket
from ._wire import Message

Socket = socket.socket | SecureSocket
BACK_OFF = (1.0, 2.0, 4.0, 8.0, 10.0)
HEART_TRIES = 3
TLS_SECONDS = 10.0


class ClosedInGreetingError(OSError):
    """The peer accepted the connection and closed it without a word."""


class Client:
    """The link of one rank."""

    def __init__(self, rank: int, take: Callable[[int, bytes], None], beat: Callable[[], bytes]) -> None:
        self.rank = rank
        self._take = take
        self._beat = beat
        self._condition = threading.Condition()
        self._sending = threading.Lock()
        self._socket: Socket | None = None
        self._stopped = False
        self._beat_now = False
        self._where = ("", 0, "")
        self.tls: Material | None = None

    # ---- connecting

    def connect(self, address: str, port: int, local: str) -> bool:
        """The first connect, with back-off; False when every attempt failed."""
        self._where = (address, port, local)
        for attempt in range(settings.connect_attempts()):
            if attempt:
                time.sleep(BACK_OFF[min(attempt - 1, len(BACK_OFF) - 1)])
            with contextlib.suppress(OSError):
                self._socket = self._dial()
                threading.Thread(target=self._read, name="mindio-reader", daemon=True).start()
                return True
        return False

    def start_heart(self) -> None:
        """Begin to send heartbeats."""
        threading.Thread(target=self._heart, name="mindio-heart", daemon=True).start()

    def _dial(self) -> Socket:
        address, port, local = self._where
        sock = socket.create_connection((address, port), 10.0, (local, 0) if local else None)
        try:
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(wire.CONNECT.pack(wire.MAGIC, wire.VERSION, self.rank))
            link: Socket = self._handshake(sock) if self.tls is not None else sock
            reply = b""
            while len(reply) < wire.CONNECT_REPLY.size:
                data = link.recv(wire.CONNECT_REPLY.size - len(reply))
                if not data:
                    raise ClosedInGreetingError
                reply += data
        except ConnectionResetError as error:
            sock.close()
            raise ClosedInGreetingError from error
        except OSError:
            sock.close()
            raise
        return link

    def _handshake(self, sock: socket.socket) -> Socket:
        """TLS begins behind the connect frame, which goes in the clear."""
        assert self.tls is not None
        sock.settimeout(TLS_SECONDS)
        secure = SecureSocket(sock, self.tls)
        secure.settimeout(None)
        return secure

    def _reconnect(self) -> Socket | None:
        lost = time.monotonic()
        for after in settings.RECONNECT_SECONDS:
            time.sleep(max(0.0, lost + after - time.monotonic()))
            if self._stopped:
                return None
            try:
                return self._dial()
            except ClosedInGreetingError:
                if settings.on("closing_gate_ends_protection"):
                    return None
            except OSError:
                pass
        return None if settings.on("reconnects_for_15_seconds") else self._reconnect()

    # ---- reading

    def _read(self) -> None:
        sock = self._socket
        while sock is not None and not self._stopped:
            self._read_link(sock)
            with self._condition:
                self._socket = None
            sock.close()
            if self._stopped or not settings.on("reconnects"):
                return
            sock = self._reconnect()
            with self._condition:
                self._socket = sock
                self._beat_now = True
                if sock is None:
                    self._stopped = settings.on("unprotected_without_controller")
                self._condition.notify_all()
        if sock is None and not settings.on("unprotected_without_controller"):
            os._exit(2)

    def _read_link(self, sock: Socket) -> None:
        reader = wire.FrameReader()
        while not self._stopped:
            try:
                data = sock.recv(65536)
            except OSError:
                return
            if not data:
                return
            for kind, _, _, body in reader.feed(data):
                self._take(kind, body)

    # ---- sending

    def send(self, data: bytes) -> bool:
        """Send on the link as it is now; False when there is none or it breaks."""
        sock = self._socket
        if sock is None:
            return False
        try:
            with self._sending:
                sock.sendall(data)
        except OSError:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            return False
        return True

    def beat(self) -> bool:
        """Send a heartbeat at once."""
        return self.send(wire.frame(Message.HEARTBEAT, self._beat()))

    @contextlib.contextmanager
    def beating_aside(self) -> Iterator[None]:
        """Beat from another process while native code holds Python's lock here; MindIO's heart is a native thread."""
        assert self._socket is not None
        link, beat = self._socket.fileno(), wire.frame(Message.HEARTBEAT, self._beat())
        watched, held = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(held)
            while not select.select([watched], [], [], settings.HEARTBEAT_SECONDS)[0]:
                os.write(link, beat)
            signal.raise_signal(signal.SIGKILL)  # the parent has closed its end, or is gone: no exit hook of its runs
        os.close(watched)
        try:
            yield
        finally:
            os.close(held)
            os.waitpid(child, 0)

    def _heart(self) -> None:
        failures = 0
        while not self._stopped:
            with self._condition:
                while self._socket is None and not self._stopped:
                    self._condition.wait()
                self._beat_now = False
            if self._stopped:
                return
            failures = 0 if self.beat() else failures + 1
            if failures >= HEART_TRIES:
                settings.log(f"rank {self.rank}: the heart has stopped for good")
                return
            with self._condition:
                end = time.monotonic() + settings.HEARTBEAT_SECONDS
                while not (self._stopped or (self._beat_now and not failures)):
                    left = end - time.monotonic()
                    if left <= 0:
                        break
                    self._condition.wait(left)

    def stop(self) -> None:
        """No heartbeat and no reconnecting from here on; the link is closed."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
