"""The part of torch's TCPStore protocol that is needed to keep written keys and to move a client to another store.

Two dialects are known: that of torch 1.12 to 2.0, and the one whose clients begin with a magic number. The bytes of a
client with any other dialect pass unread. So do those of MindSpore's workers, who dial another scheduler by themselves.
docs/protocols/launcher.md#the-store
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

LENGTH = struct.Struct("<Q")
INTEGER = struct.Struct("<q")
MAGIC = struct.pack("<BI", 0, 0x3C85F7CE)
SCHEDULER_MAGIC = b"RPC0"
"""What each message between a worker of MindSpore and its scheduler begins with (2.7 to 2.10). To torch's stores it is
an operation that does not exist."""
LARGEST = 64 * 1024 * 1024
WAIT_ENDED, WAIT_CANCELED = 0, 1


@dataclass(frozen=True, slots=True)
class Operation:
    """Operation of the store: the layout of its request, after the operation's byte, and of its reply.

    `s`: a length of 8 bytes, then the bytes; `n`: a count of the items after it; `i`: 8 bytes, `h`: 4, `b`: 1.
    """

    name: str
    request: str
    reply: str


_OPERATIONS = (
    Operation("set", "ss", ""),
    Operation("compare_set", "sss", "s"),
    Operation("get", "s", "s"),
    Operation("add", "si", "i"),
    Operation("check", "ns", "b"),
    Operation("wait", "ns", "b"),
    Operation("num_keys", "", "i"),
    Operation("delete", "s", "i"),
    Operation("append", "ss", ""),
    Operation("multi_get", "ns", "*s"),
    Operation("multi_set", "nss", ""),
    Operation("cancel_wait", "", "b"),
    Operation("ping", "h", "h"),
    Operation("queue_push", "ss", ""),  # from here on torch 2.8
    Operation("queue_pop", "s", "ns"),  # an empty queue has no item to answer with
    Operation("queue_len", "s", "i"),
    Operation("list_keys", "", "ns"),  # from here on torch 2.15
    Operation("barrier", "si", "b"),
)
_WAITS = ("wait", "barrier")
"""Operations that are answered when other processes have done their part, or taken back by `cancel_wait`."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Dialect of a range of torch versions. `greeting`: the client's first bytes, which the store does not answer."""

    name: str
    greeting: bytes
    operations: Mapping[int, Operation]

    def set_request(self, key: bytes, value: bytes) -> bytes:
        """Return the request that writes a value."""
        return self._request_with_key("set", key) + LENGTH.pack(len(value)) + value

    def get_request(self, key: bytes) -> bytes:
        """Return the request that reads a value, which must exist."""
        return self._request_with_key("get", key)

    def _request_with_key(self, name: str, key: bytes) -> bytes:
        number = next(number for number, one in self.operations.items() if one.name == name)
        return bytes([number]) + LENGTH.pack(len(key)) + key


EARLIER = Dialect("earlier", b"", {**dict(enumerate(_OPERATIONS[:7])), 8: _OPERATIONS[7]})  # 7: watch a key
LATER = Dialect("later", MAGIC, dict(enumerate(_OPERATIONS, start=1)))
DIALECTS = {one.name: one for one in (EARLIER, LATER)}


@dataclass(frozen=True, slots=True)
class Request:
    """One whole request. `strings`: its keys and values, in order; `number`: the number to add."""

    operation: Operation
    raw: bytes
    strings: tuple[bytes, ...] = ()
    number: int = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that was sent at `at`, with the value or number that the store answered."""

    request: Request
    at: int
    value: bytes = b""
    number: int = 0


class UnreadableError(ValueError):
    """Bytes that belong to no known dialect."""


class StoreConversation:
    """The bytes between one client and the store, cut into whole requests and whole replies.

    Attributes:
        dialect: The client's dialect; None: it has not sent enough, or cannot be read.
        lost: The bytes cannot be read: they pass unchanged, and the client cannot move to another store.
        dials_again: It is a worker of MindSpore, which dials its scheduler again by itself and registers anew: the
            bytes pass unchanged.
    """

    def __init__(self) -> None:
        self.dialect: Dialect | None = None
        self.lost = self.dials_again = False
        self._asked, self._heard = b"", b""
        self._open: deque[tuple[Request, int]] = deque()  # sent requests without an answer, and when they were sent

    @property
    def can_move(self) -> bool:
        """Whether another store can take the client over without its noticing."""
        return not self.lost and not self.dials_again

    def cut_requests(self, data: bytes) -> list[Request | bytes]:
        """Return the requests that these bytes complete, without the greeting; raw bytes once they are unreadable."""
        if self.lost or self.dials_again:
            return [data]
        self._asked += data
        try:
            return list(self._read_requests())
        except UnreadableError:
            self.lost = True
            rest, self._asked = self._asked, b""
            return [rest]

    def _read_requests(self) -> list[Request | bytes]:
        found: list[Request | bytes] = []
        if self.dialect is None:
            if any(
                len(self._asked) < len(magic) and magic.startswith(self._asked) for magic in (MAGIC, SCHEDULER_MAGIC)
            ):
                return found  # the first five bytes tell the dialects apart
            if self._asked.startswith(SCHEDULER_MAGIC):
                self.dials_again = True
                found, self._asked = [self._asked], b""
                return found
            self.dialect = LATER if self._asked.startswith(MAGIC) else EARLIER
            self._asked = self._asked[len(self.dialect.greeting) :]
        position = 0
        while position < len(self._asked):
            operation = self.dialect.operations.get(self._asked[position])
            if operation is None:
                self._asked, self.lost = self._asked[position:], True
                found.append(self._asked)
                break
            read = _read_layout(self._asked, position + 1, operation.request)
            if read is None:
                break
            end, strings, number = read
            found.append(Request(operation, self._asked[position:end], strings, number))
            position = end
        self._asked = b"" if self.lost else self._asked[position:]
        return found

    def note_sent_request(self, request: Request, at: int) -> None:
        """Note that the request is on its way to the store."""
        if not request.operation.reply:
            return
        if self._open and self._open[-1][0].operation.name in _WAITS and request.operation.name != "cancel_wait":
            self.lost = True  # the client has given up waiting, and an answer will come that it does not expect
        self._open.append((request, at))

    def cut_replies(self, data: bytes) -> list[tuple[bytes, tuple[Answered, ...]]]:
        """Return the replies that these bytes complete, each with its requests; the raw bytes when unreadable."""
        if self.dials_again:
            return [(data, ())]
        self._heard += data
        found: list[tuple[bytes, tuple[Answered, ...]]] = []
        try:
            while self._heard and not self.lost and (reply := self._read_reply()) is not None:
                found.append(reply)
        except UnreadableError:
            self.lost = True
        if self.lost and self._heard:
            found.append((self._heard, ()))
            self._heard = b""
        return found

    def _read_reply(self) -> tuple[bytes, tuple[Answered, ...]] | None:
        if not self._open:
            raise UnreadableError("an answer to nothing")
        request, at = self._open[0]
        layout = request.operation.reply
        read = _read_layout(self._heard, 0, layout[1:] * len(request.strings) if layout[0] == "*" else layout)
        if read is None:
            return None
        end, strings, number = read
        raw, self._heard = self._heard[:end], self._heard[end:]
        self._open.popleft()
        if request.operation.name in _WAITS and number == WAIT_CANCELED and self._open:
            request, at = self._open.popleft()  # the store answers the wait itself no more
        return raw, (Answered(request, at, strings[0] if strings else b"", number),)

    def unanswered_requests(self) -> list[bytes]:
        """Return the unanswered requests: another store gets them after the greeting, before anything new."""
        self._heard = b""
        return [request.raw for request, _ in self._open]


def _read_layout(data: bytes, position: int, layout: str) -> tuple[int, tuple[bytes, ...], int] | None:
    """Return the end of data with this layout, its strings and its number; None: it is incomplete."""
    strings: list[bytes] = []
    number, left, repeated = 0, layout, 0
    while left:
        kind, left = left[0], left[1:]
        if kind in "sn":
            if len(data) < position + LENGTH.size:
                return None
            (length,) = LENGTH.unpack_from(data, position)
            position += LENGTH.size
            if length > LARGEST:
                raise UnreadableError(f"{length} bytes or keys")
            if kind == "n":
                repeated = length
                left = left * repeated
                continue
            if len(data) < position + length:
                return None
            strings.append(data[position : position + length])
            position += length
            continue
        size = {"i": 8, "h": 4, "b": 1}[kind]
        if len(data) < position + size:
            return None
        number = int.from_bytes(data[position : position + size], "little", signed=kind == "i")
        position += size
    return position, tuple(strings), number
