"""A rank's client of the rendezvous store, with the manners of torch's.

It connects once: when that connection ends, the store is lost to this process for ever. It has no time-out but that of
a wait: a store that is there and says nothing is waited for. The address is used directly; proxies in the environment
play no part. Keys have what torch 1.13 to 2.5 put before them in a rank of an elastic launcher: a stroke, the attempt.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time

from e2e.trainer import store_wire as wire

Value = str | int | list[str | int] | None
_CHUNK = 65536
_LOOK_SECONDS = 0.05
"""How often a client that cannot give up a wait looks instead."""


class StoreLostError(RuntimeError):
    """There is no connection to the store, and there will be none."""


class Client:
    """One rank's connection; threads take turns, one request each."""

    def __init__(
        self, host: str, port: int, attempt: int = 0, version: wire.Version = wire.NEW, timeout: float = 60.0
    ) -> None:
        """`timeout`: so long a store that does not listen yet is waited for, in seconds."""
        self._address = (host, port)
        self._prefix = f"//worker/attempt_{attempt}/"
        self._version = version
        self._timeout = timeout
        self._turn = threading.Lock()
        self._connection: socket.socket | None = None
        self._lost = ""
        self._rest = b""

    def set(self, key: str, value: Value) -> None:
        """Write a JSON value; returns when it is there, which nobody answers: it is looked for."""
        name = self._key(key)
        with self._turn:
            self._send("set", wire.string(name) + wire.string(json.dumps(value).encode()))
            self._is_there([name])

    def highest(self, key: str, value: int) -> int:
        """Write a number unless a higher one is there; returns the one that is there."""
        expected, desired = b"", b"%d" % value
        while True:
            with self._turn:
                self._send("compare_set", b"".join(map(wire.string, (self._key(key), expected, desired))))
                found = self._string()
            if int(found) >= value:
                return int(found)
            expected = found

    def get(self, key: str) -> Value:
        """Value of a key, None when there is none."""
        name = self._key(key)
        with self._turn:
            return self.values([name])[0] if self._is_there([name]) else None

    def wait(self, key: str, timeout: float) -> Value:
        """Value of a key as soon as it is there, None after `timeout` seconds without."""
        name = self._key(key)
        with self._turn:
            return self.values([name])[0] if self._comes([name], timeout) else None

    def gather(self, key: str, numbers: list[int], timeout: float) -> list[Value] | None:
        """The values of key/<number>, in this order; None when one is missing for `timeout` seconds."""
        names = [self._key(f"{key}/{number}") for number in numbers]
        with self._turn:
            return self.values(names) if self._comes(names, timeout) else None

    def close(self) -> None:
        """End the connection; there is no other one."""
        self._lose("closed")

    def _key(self, key: str) -> bytes:
        return f"{self._prefix}{key}".encode()

    def values(self, names: list[bytes]) -> list[Value]:
        """Values of keys that are there; a store cuts off who asks for others."""
        if "multi_get" in self._version.numbers:
            self._send("multi_get", wire.strings(names))
        else:
            for name in names:
                self._send("get", wire.string(name))
        return [json.loads(self._string()) for _ in names]

    def _is_there(self, names: list[bytes]) -> bool:
        self._send("check", wire.strings(names))
        return self._read(1) == wire.READY

    def _comes(self, names: list[bytes], timeout: float) -> bool:
        """Whether these keys are all there before `timeout` seconds are over."""
        if self._version.cancels:
            return self._wait(names, timeout)
        deadline = time.monotonic() + timeout
        while not self._is_there(names):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _wait(self, names: list[bytes], timeout: float) -> bool:
        self._send("wait", wire.strings(names))
        if self._is_silent(timeout):
            self._send("cancel_wait", b"")
            answer = self._read(1)
            return answer == wire.ARRIVED and self._read(1) == wire.CANCELED  # that was on its way
        return self._read(1) == wire.ARRIVED

    def _is_silent(self, seconds: float) -> bool:
        """Whether nothing comes for so long; an end of the connection is something."""
        poll = select.poll()
        poll.register(self._connected(), select.POLLIN)
        return not self._rest and not poll.poll(seconds * 1000)

    def _string(self) -> bytes:
        (length,) = wire.LENGTH.unpack(self._read(wire.LENGTH.size))
        return self._read(length)

    def _send(self, operation: str, content: bytes) -> None:
        connection = self._connected()
        try:
            connection.sendall(bytes([self._version.numbers[operation]]) + content)
        except OSError as error:
            raise self._lose(str(error)) from error

    def _read(self, size: int) -> bytes:
        connection = self._connected()
        while len(self._rest) < size:
            try:
                chunk = connection.recv(_CHUNK)
            except OSError as error:
                raise self._lose(str(error)) from error
            if not chunk:
                raise self._lose("it has closed the connection")
            self._rest += chunk
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def _connected(self) -> socket.socket:
        if self._lost:
            raise StoreLostError(self._lost)
        if self._connection is None:
            try:
                self._connection = self._connect()
                self._connection.sendall(self._version.greeting)
            except OSError as error:
                raise self._lose(str(error)) from error
        return self._connection

    def _lose(self, why: str) -> StoreLostError:
        """For ever."""
        self._lost = self._lost or f"store at {self._address[0]}:{self._address[1]}: {why}"
        if self._connection is not None:
            self._connection.close()
        return StoreLostError(self._lost)

    def _connect(self) -> socket.socket:
        """A store that is not there yet is tried again until the time is up; what was there once is not."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                connection = socket.create_connection(self._address, timeout=self._timeout)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_SECONDS)
            else:
                connection.settimeout(None)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection
