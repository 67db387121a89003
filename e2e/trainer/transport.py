"""Messages between ranks over TCP: whoever waits, reads.

A reader thread per connection would cost a change of threads per message, which is most of a step of a few milliseconds
on a small machine. So the thread that waits for a message polls all connections itself; a second waiting thread (a
handler of MindIO's beside the training thread) sleeps until the first hands over. A slow service thread polls when
nobody waits, so that questions are answered while the training thread is held inside MindIO.

A lost peer is no error here. Messages to it are dropped and its own never come: the receiver waits, as a collective on
the device does, until the stop handler breaks the wait. Raising a connection error would turn every survivor into a
faulty rank (docs/internals/toy-trainer.md, "Lost peers").

A connection carries messages one way, from the rank that opened it. Every message names its generation, the number of
regroupings its sender has seen; older ones than the receiver's are dropped.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_HEADER = struct.Struct("<IIHI")  # generation, sender's rank, bytes of the tag, bytes of the payload
_SERVICE_SECONDS = 0.2  # many ranks on few processors: each look costs a change of threads
_CHUNK = 1 << 18
_NEVER = b""
"""A tag nobody sends."""
_GONE = select.EPOLLERR | select.EPOLLHUP | select.EPOLLRDHUP

Buffer = bytes | bytearray | memoryview
Address = tuple[str, int]
Message = tuple[int, int, bytes, bytes]  # generation, sender's rank, tag, payload


class Inbound:
    """Bytes of one incoming connection and the messages they make."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._pending = bytearray()

    def read(self, buffer: memoryview) -> tuple[bool, list[Message]]:
        """Read what is there, by way of `buffer`: whether the connection is still open, and complete messages."""
        try:
            size = self.connection.recv_into(buffer)
        except BlockingIOError:
            return True, []
        except ConnectionError:
            size = 0
        self._pending += buffer[:size]
        return bool(size), self._messages()

    def _messages(self) -> list[Message]:
        found = []
        start, length = 0, len(self._pending)
        with memoryview(self._pending) as pending:
            while length - start >= _HEADER.size:
                generation, sender, tag_size, size = _HEADER.unpack_from(pending, start)
                payload = start + _HEADER.size + tag_size
                if length < payload + size:
                    break
                tag = bytes(pending[payload - tag_size : payload])
                start = payload + size
                found.append((generation, sender, tag, bytes(pending[payload:start])))
        del self._pending[:start]
        return found


class Outbound:
    """One outgoing connection: bytes that did not fit into the socket wait here."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.pending = bytearray()

    def write(self, data: bytes) -> None:
        """Send now what the socket takes; raises OSError when the peer is gone."""
        sent = 0
        if not self.pending:
            with contextlib.suppress(BlockingIOError):
                sent = self.connection.send(data)
        if sent < len(data):
            self.pending += data[sent:]

    def flush(self) -> None:
        """Send more of what waits; raises OSError when the peer is gone."""
        with contextlib.suppress(BlockingIOError):
            while self.pending:
                del self.pending[: self.connection.send(memoryview(self.pending)[:_CHUNK])]


class Transport:
    """Mailbox of one rank.

    `find` gives the address of a rank, or None while it is not known; `query` is called with (sender, tag, payload) for
    messages whose tag begins with `?`, from whichever thread reads.
    """

    def __init__(self, rank: int, host: str, find: Callable[[int], Address | None]) -> None:
        self.rank = rank
        self.generation = 0
        self.query: Callable[[int, bytes, bytes], None] = lambda _sender, _tag, _payload: None
        self._find = find
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._reading = False
        self._closed = False
        self._stopped: str | None = None
        self._mail: dict[bytes, tuple[int, bytes]] = {}
        self._lost: set[int] = set()
        self._out: dict[int, Outbound] = {}
        self._in: dict[int, Inbound] = {}
        self._buffer = memoryview(bytearray(_CHUNK))  # whoever reads uses it: a fresh one would be mapped for each read
        self._listener = socket.create_server((host, 0), backlog=1024)
        self._listener.setblocking(False)
        self.address: Address = self._listener.getsockname()[:2]
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)
        self._poll.register(self._wake_read, select.EPOLLIN)
        threading.Thread(target=self._serve, name="transport", daemon=True).start()

    def send(self, to: int, tag: bytes, payload: Buffer) -> None:
        """Send without waiting; a rank that is gone gets nothing, silently."""
        message = b"".join((_HEADER.pack(self.generation, self.rank, len(tag), len(payload)), tag, payload))
        if to in self._lost:
            return
        outbound = self._out.get(to) or self._connect(to)
        if outbound is None:
            return
        with self._lock:
            try:
                outbound.write(message)
            except OSError:
                self._lose(to)
            else:
                if outbound.pending:
                    self._poll.modify(outbound.connection, select.EPOLLOUT | select.EPOLLRDHUP)

    def receive(self, tag: bytes, timeout: float | None = None, *, from_handler: bool = False) -> bytes | None:
        """Wait for the message `tag` of this generation and take it; None when `timeout` seconds pass without.

        Raises RuntimeError("FORCE STOP …") when a stop is called, except in a handler, which works on after it.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                if not from_handler:
                    self.check()
                if (mail := self._mail.pop(tag, None)) is not None:
                    return mail[1]
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                if self._reading:
                    self._changed.wait(left)
                    continue
                self._reading = True
            self._read(left)

    def pause(self, seconds: float) -> None:
        """Let time pass; raises RuntimeError("FORCE STOP …") when a stop is called."""
        self.receive(_NEVER, seconds)

    def check(self) -> None:
        """Raise RuntimeError("FORCE STOP …") when a stop has been called."""
        if self._stopped:
            raise RuntimeError(f"FORCE STOP: {self._stopped}")

    def stop(self, reason: str) -> None:
        """Break every wait of the training thread, now and until `regroup`."""
        with self._lock:
            self._stopped = reason
            self._changed.notify_all()
        self._wake()

    def regroup(self, generation: int, lost: Iterable[int] = ()) -> None:
        """Begin a generation: forget older mail, connections to `lost` and to peers that were gone, and a stop."""
        with self._lock:
            self.generation = generation
            self._stopped = None
            self._mail = {tag: mail for tag, mail in self._mail.items() if mail[0] >= generation}
            for rank in {*lost, *self._lost}:
                self._lose(rank)
            self._lost.clear()

    def resume(self) -> None:
        """Take a stop back without a new generation."""
        with self._lock:
            self._stopped = None

    def is_lost(self, rank: int) -> bool:
        """Whether a connection to `rank` broke in this generation."""
        return rank in self._lost

    def close(self) -> None:
        """End the service thread; messages already handed to the kernel still arrive."""
        self._closed = True
        self._wake()

    def _read(self, seconds: float | None) -> None:
        """Poll once as the one reader, then hand over."""
        try:
            for descriptor, events in self._poll.poll(seconds):
                if inbound := self._in.get(descriptor):
                    self._take(descriptor, inbound)
                else:
                    self._handle(descriptor, events)
        finally:
            with self._lock:
                self._reading = False
                self._changed.notify_all()

    def _handle(self, descriptor: int, events: int) -> None:
        if descriptor == self._listener.fileno():
            self._accept()
        elif descriptor == self._wake_read.fileno():
            with contextlib.suppress(BlockingIOError):
                self._wake_read.recv(4096)
        else:
            self._continue(descriptor, gone=bool(events & _GONE))

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            with self._lock:
                self._in[connection.fileno()] = Inbound(connection)
                self._poll.register(connection, select.EPOLLIN)

    def _take(self, descriptor: int, inbound: Inbound) -> None:
        queries = []
        with self._lock:
            is_open, messages = inbound.read(self._buffer)
            for generation, sender, tag, payload in messages:
                if generation < self.generation:
                    continue
                if tag.startswith(b"?"):
                    queries.append((sender, tag, payload))
                else:
                    self._mail[tag] = (generation, payload)
            if not is_open and self._in.pop(descriptor, None) is not None:
                self._poll.unregister(descriptor)
                inbound.connection.close()
        for query in queries:
            self.query(*query)

    def _continue(self, descriptor: int, *, gone: bool) -> None:
        """Send what waits on an outgoing connection, or drop it when its peer is gone."""
        with self._lock:
            found = [rank for rank, out in self._out.items() if out.connection.fileno() == descriptor]
            for rank in found:
                outbound = self._out[rank]
                try:
                    outbound.flush()
                except OSError:
                    gone = True
                if gone:
                    self._lose(rank)
                elif not outbound.pending:
                    self._poll.modify(descriptor, select.EPOLLRDHUP)

    def _connect(self, to: int) -> Outbound | None:
        """Open the connection to a rank; waits for its address, can be stopped meanwhile."""
        while (address := self._find(to)) is None:
            self.check()
        try:
            connection = socket.create_connection(address, timeout=5.0)
        except OSError:
            with self._lock:
                self._lost.add(to)
            return None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        with self._lock:
            if other := self._out.get(to):  # a handler's thread was faster
                connection.close()
                return other
            outbound = self._out[to] = Outbound(connection)
            self._poll.register(connection, select.EPOLLRDHUP)
            return outbound

    def _lose(self, rank: int) -> None:
        """Drop the connection to a rank. Holds the lock."""
        self._lost.add(rank)
        if outbound := self._out.pop(rank, None):
            with contextlib.suppress(OSError):
                self._poll.unregister(outbound.connection)
            outbound.connection.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_write.send(b".")

    def _serve(self) -> None:
        """Read now and then when nobody waits for anything."""
        while not self._closed:
            time.sleep(_SERVICE_SECONDS)
            with self._lock:
                if self._reading:
                    continue
                self._reading = True
            self._read(0)
