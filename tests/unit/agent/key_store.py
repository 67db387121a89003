"""A rendezvous store as torch 1.13 has it, whose death can be ordered at any byte; its answers can be held and split.

Torch's own is asked in test_torch_at_the_store_gate.py; nobody can kill that one between a request's two halves.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from e2e.cluster.loopback import own_port
from tests.rigs.rank_pod import ADDRESS
from trainer_sidecar.coordinator.state.store_keeping import Fill
from trainer_sidecar.store_protocol import EARLIER, INTEGER, LENGTH, Dialect, Request, StoreConversation


class KeyStore:
    """One store.

    Attributes:
        content: What it holds.
        carried_out: How often each operation was, by name and first key; whole requests only.
        answers: Set: requests are answered; else they are carried out, and their answers wait.
        piece: So many bytes of an answer are sent at once, one turn of the loop apart; 0: all of them.
        reads: Set: it reads what clients say.

    To workers of MindSpore it is a scheduler that repeats what they say.
    """

    def __init__(self, dialect: Dialect = EARLIER, port: int = 0) -> None:
        self.dialect = dialect
        self.port = port or own_port()
        self.content: dict[bytes, bytes] = {}
        self.carried_out: Counter[tuple[str, bytes]] = Counter()
        self.answers, self.reads = asyncio.Event(), asyncio.Event()
        self.answers.set()
        self.reads.set()
        self.piece = 0
        self.half_answers = False
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.StreamWriter] = set()
        self._change = asyncio.Event()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{ADDRESS}:{self.port}"

    async def listen(self) -> None:
        """Serve."""
        self._server = await asyncio.start_server(self._serve, ADDRESS, self.port, limit=1 << 26)

    async def die(self) -> None:
        """As by SIGKILL: nothing listens any more, every connection is gone."""
        if self._server is not None:
            self._server.close()
        for link in list(self._links):
            link.transport.abort()
        self._links.clear()
        await asyncio.sleep(0)

    def fill(self, fill: Fill | None) -> None:
        """What the coordinator writes before anybody reaches it."""
        self.content.update(fill.entries if fill is not None else ())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._links.add(writer)
        talk = StoreConversation()
        try:
            while data := await reader.read(1 << 16):
                await self.reads.wait()
                for request in talk.cut_requests(data):
                    if talk.dials_again:
                        assert isinstance(request, bytes)
                        writer.write(request)
                        continue
                    assert isinstance(request, Request), "a client says what no store understands"
                    await self._answer(writer, await self._carry_out(request))
        except ConnectionError:
            pass
        finally:
            self._links.discard(writer)
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        if answer and self.half_answers:
            writer.write(answer[: len(answer) // 2])
            answer = answer[len(answer) // 2 :]
        await self.answers.wait()
        size = self.piece or len(answer) or 1
        for start in range(0, len(answer), size):
            writer.write(answer[start : start + size])
            await writer.drain()
            await asyncio.sleep(0)

    async def _carry_out(self, request: Request) -> bytes:
        name, strings = request.operation.name, request.strings
        key = strings[0] if strings else b""
        if name == "wait":
            while not all(one in self.content for one in strings):
                await self._change.wait()
        self.carried_out[name, key] += 1
        match name:
            case "set":
                self.content[key] = strings[1]
            case "add":
                self.content[key] = b"%d" % (int(self.content.get(key, b"0")) + request.number)
            case "compare_set":
                if self.content.get(key, b"") == strings[1]:
                    self.content[key] = strings[2]
        answer = self._reply(name, key, strings)
        if name == "delete":
            self.content.pop(key, None)
        self._change.set()
        self._change = asyncio.Event()
        return answer

    def _reply(self, name: str, key: bytes, strings: tuple[bytes, ...]) -> bytes:
        match name:
            case "get":
                return LENGTH.pack(len(self.content[key])) + self.content[key]
            case "compare_set":
                value = self.content.get(key, strings[1])
                return LENGTH.pack(len(value)) + value
            case "add":
                return INTEGER.pack(int(self.content[key]))
            case "check":
                return bytes([not all(one in self.content for one in strings)])
            case "wait":
                return b"\0"
            case "num_keys":
                return INTEGER.pack(len(self.content))
            case "delete":
                return INTEGER.pack(int(key in self.content))
        return b""


class StoreClient:
    """A client as torch has them: it connects once, and a connection that ends is its end."""

    def __init__(self, dialect: Dialect = EARLIER) -> None:
        self.dialect = dialect

    async def connect(self, port: int) -> None:
        """Dial the gate."""
        self.reader, self.writer = await asyncio.open_connection(ADDRESS, port, limit=1 << 26)
        self.writer.write(self.dialect.greeting)

    def say(self, name: str, *strings: bytes, number: int | None = None) -> None:
        """Send a request and go on."""
        self.writer.write(self.request(name, *strings, number=number))

    def request(self, name: str, *strings: bytes, number: int | None = None) -> bytes:
        """A request's bytes."""
        operation = next(code for code, one in self.dialect.operations.items() if one.name == name)
        count = LENGTH.pack(len(strings)) if name in ("wait", "check") else b""
        body = b"".join(LENGTH.pack(len(one)) + one for one in strings)
        return bytes([operation]) + count + body + (b"" if number is None else INTEGER.pack(number))

    async def value(self) -> bytes:
        """A string is answered."""
        (length,) = LENGTH.unpack(await self.reader.readexactly(LENGTH.size))
        return await self.reader.readexactly(length)

    async def number(self) -> int:
        """A number is answered."""
        (number,) = INTEGER.unpack(await self.reader.readexactly(INTEGER.size))
        return int(number)

    async def add(self, key: bytes, number: int = 1) -> int:
        """Count."""
        self.say("add", key, number=number)
        return await self.number()

    async def get(self, key: bytes) -> bytes:
        """As torch 1.13: it waits for the key, then asks for the value."""
        self.say("wait", key)
        assert await self.reader.readexactly(1) == b"\0"
        self.say("get", key)
        return await self.value()
