"""The rendezvous store of the toy training: where ranks leave their addresses.

It lives beside the MindIO controller, not in rank 0, so that every rank is a client and rank 0 can be lost like the
others. Two rules make recoveries safe. Entries of different attempts never meet, and a write is refused when the same
rank has already written with a higher incarnation: a process that comes back after its successor has taken over cannot
put its own address there again. Nobody polls: `wait` is answered when the value comes, `gather` when all values do.

Requests and answers are lines of JSON over TCP: `{"op", "key", "value", "attempt", "incarnation", "rank", "timeout"}`.
The address is used directly; proxies in the environment play no part.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:
    import asyncio

Value = str | int | list[str | int] | None
Fence = tuple[int, int]  # attempt, incarnation
NOBODY: Final = -1  # rank of a client that is not a training process; it is never fenced
_LOST_SECONDS: Final = 2.0
"""So long a store that once answered is looked for; it moves with the controller, so it rarely comes back."""


class Request(TypedDict):
    """What a client sends: an operation on a key, who asks, and how long a wait may last."""

    op: str
    key: str
    value: Value
    attempt: int
    incarnation: int
    rank: int
    timeout: float


class Answer(TypedDict, total=False):
    """What comes back: the value, or the reason for a refusal."""

    value: Value
    error: str


class StoreError(RuntimeError):
    """The store refused a request or did not answer in time."""


class StoreLostError(StoreError):
    """Nobody answers where the store was."""


class Entries:
    """Keys, values and the highest (attempt, incarnation) that wrote for each rank. Pure; no I/O."""

    def __init__(self) -> None:
        self._values: dict[tuple[int, str], Value] = {}
        self._highest: dict[int, Fence] = {}

    def write(self, key: str, value: Value, rank: int, fence: Fence, *, keep_larger: bool = False) -> Value:
        """Store a value and return what is stored now; `keep_larger` keeps the larger of two numbers.

        Raises StoreError when `rank` has written with a higher attempt or incarnation before.
        """
        highest = self._highest.get(rank, fence)
        if rank != NOBODY and fence < highest:
            raise StoreError(
                f"rank {rank}, attempt {fence[0]}, incarnation {fence[1]} may not write {key!r}: attempt {highest[0]}, "
                f"incarnation {highest[1]} of this rank has taken over; end this process"
            )
        self._highest[rank] = fence
        place = (fence[0], key)
        stored = self._values.get(place)
        if keep_larger and isinstance(stored, int) and isinstance(value, int):
            value = max(value, stored)
        self._values[place] = value
        return value

    def read(self, key: str, attempt: int) -> Value:
        """Value of a key, None when there is none."""
        return self._values.get((attempt, key))


class _Server:
    """Connections of the store: one task each, and one event per key somebody waits for."""

    def __init__(self) -> None:
        self._entries = Entries()
        self._arrivals: dict[tuple[int, str], asyncio.Event] = {}

    async def serve(self, listener: socket.socket) -> None:
        """Serve until cancelled."""
        import asyncio

        server = await asyncio.start_server(self._client, sock=listener)
        async with server:
            await server.serve_forever()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                answer: Answer
                try:
                    answer = {"value": await self._answer(json.loads(line))}
                except (StoreError, ValueError, KeyError, TypeError) as error:
                    answer = {"error": str(error) or repr(error)}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _answer(self, request: Request) -> Value:
        operation, key, attempt = request["op"], str(request["key"]), int(request["attempt"])
        if operation in {"set", "maximum"}:
            fence = (attempt, int(request["incarnation"]))
            larger = operation == "maximum"
            stored = self._entries.write(key, request["value"], int(request["rank"]), fence, keep_larger=larger)
            if arrival := self._arrivals.pop((attempt, key), None):
                arrival.set()
            return stored
        if operation == "wait":
            await self._wait(key, attempt, float(request["timeout"]))
        elif operation == "gather":
            return await self._gather(key, request["value"], attempt, float(request["timeout"]))
        elif operation != "get":
            raise StoreError(f"unknown operation {operation!r}; known are set, maximum, get, wait, gather")
        return self._entries.read(key, attempt)

    async def _gather(self, key: str, numbers: Value, attempt: int, timeout: float) -> Value:
        if not isinstance(numbers, list):
            raise StoreError(f"gather wants a list of numbers, not {numbers!r}")
        gathered: list[str | int] = []
        for number in numbers:
            await self._wait(f"{key}/{number}", attempt, timeout)
            value = self._entries.read(f"{key}/{number}", attempt)
            if not isinstance(value, list):
                return None
            gathered += value
        return gathered

    async def _wait(self, key: str, attempt: int, timeout: float) -> None:
        import asyncio

        if self._entries.read(key, attempt) is None:
            arrival = self._arrivals.setdefault((attempt, key), asyncio.Event())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(arrival.wait(), timeout)


def serve(host: str, port: int) -> None:
    """Serve the store on an address of this machine; blocks. Raises OSError when the address is taken."""
    serve_at(socket.create_server((host, port)))


def serve_at(listener: socket.socket) -> None:
    """Serve the store on a socket that listens; blocks."""
    import asyncio

    asyncio.run(_Server().serve(listener))


class Client:
    """One rank's connection to the store; threads take turns, one request each."""

    def __init__(self, host: str, port: int, rank: int = NOBODY, fence: Fence = (0, 0), timeout: float = 60.0) -> None:
        self._address = (host, port)
        self._rank = rank
        self._fence = fence
        self._timeout = timeout
        self._turn = threading.Lock()
        self._connection: socket.socket | None = None
        self._rest = b""
        self._answered = False

    def set(self, key: str, value: Value) -> None:
        """Store a JSON value; raises StoreError when this rank's incarnation is over."""
        self._request("set", key, value=value)

    def maximum(self, key: str, value: int) -> int:
        """Store the larger of `value` and what is there; returns it."""
        stored = self._request("maximum", key, value=value)
        if not isinstance(stored, int):
            raise StoreError(f"{key!r} holds {stored!r}, which is not a number")
        return stored

    def get(self, key: str) -> Value:
        """Value of a key, None when there is none."""
        return self._request("get", key)

    def wait(self, key: str, timeout: float) -> Value:
        """Value of a key as soon as it is there, None after `timeout` seconds without."""
        return self._request("wait", key, timeout=timeout)

    def gather(self, key: str, numbers: list[int], timeout: float) -> list[str | int] | None:
        """The lists stored as key/<number>, put together; None when one is missing for `timeout` seconds."""
        found = self._request("gather", key, value=[*numbers], timeout=timeout)
        return found if isinstance(found, list) else None

    def close(self) -> None:
        """Drop the connection; the next request opens a new one."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._rest = None, b""

    def _request(self, operation: str, key: str, value: Value = None, timeout: float = 0.0) -> Value:
        request: Request = {
            "op": operation,
            "key": key,
            "value": value,
            "timeout": timeout,
            "rank": self._rank,
            "attempt": self._fence[0],
            "incarnation": self._fence[1],
        }
        try:
            with self._turn:
                answer = self._exchange(json.dumps(request).encode() + b"\n", timeout)
        except OSError as error:
            self.close()
            raise StoreLostError(f"store at {self._address[0]}:{self._address[1]}: {error}") from error
        if "error" in answer:
            raise StoreError(answer["error"])
        return answer["value"]

    def _exchange(self, line: bytes, extra: float) -> Answer:
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        connection.settimeout(self._timeout + extra)
        connection.sendall(line)
        while b"\n" not in self._rest:
            chunk = connection.recv(65536)
            if not chunk:
                raise ConnectionResetError("closed the connection")
            self._rest += chunk
        answer, _, self._rest = self._rest.partition(b"\n")
        result: Answer = json.loads(answer)
        self._answered = True
        return result

    def _connect(self) -> socket.socket:
        """Connect; a store that is not there yet is tried again until the time is up."""
        patience = min(self._timeout, _LOST_SECONDS) if self._answered else self._timeout
        deadline = time.monotonic() + patience
        while True:
            try:
                connection = socket.create_connection(self._address, timeout=patience)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection
