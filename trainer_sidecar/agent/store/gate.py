"""The rendezvous store's port on this pod: every process of the pod meets the others through it.

A rank has one address for its store as long as its pod lives, wherever the store is. Like MindIO's gate it serves its
own pod only, holds while the lease does not hold or no store is known, and never accepts a connection to close it: a
client of torch's store connects once and never again. So a connection outlives the store, where its client's dialect is
known: another store is told what was not answered, and the client notices nothing. docs/protocols/launcher.md#the-store
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.clock import Clock
from trainer_sidecar.agent.gate.listener import CHUNK, Listener
from trainer_sidecar.agent.gate.rules import Rules
from trainer_sidecar.agent.gate.upstream import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, open_upstream
from trainer_sidecar.agent.store.journal import StoreJournal
from trainer_sidecar.store_protocol import Request, StoreConversation

# Of a process that is killed the kernel closes the sockets one after the other: milliseconds, on a busy node more.
DYING_SECONDS = 0.5

SCHEDULER_FORGETS = (
    "MindSpore's workers do not tell another scheduler how they are reached, so no later process meets them"
)
"""Seen with MindSpore 2.10 on CPU: they register anew, and a new process's `init()` waits a minute in vain."""

log = logging.getLogger(__name__)


class StoreLink:
    """The link of one client, over any number of successive stores."""

    def __init__(self, gate: StoreGate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._gate = gate
        self._reader = reader
        self._writer = writer
        self._talk = StoreConversation()
        self._outward: deque[Request | bytes] = deque()  # read from the client, not sent yet
        self._inward: deque[bytes] = deque()  # for the client
        self._upstream: asyncio.StreamWriter | None = None
        self._has_greeted = self._is_given_up = False
        self.bound = ""  # the store that the connection of now goes to

    async def forward_until_end(self) -> None:
        """Run until the client disconnects, or no store is left for it."""
        while True:
            reader, self._upstream, store = await self._gate.connect_to_store()
            former, self.bound = self.bound, store.name
            try:
                if former and former != self.bound and not self._gate.rules.is_store_kept():
                    return  # what it has written is lost, and it must not take the new one for the old one
                self._has_greeted = self._is_given_up = False
                has_left = await self._forward_both_ways(reader)
            finally:
                self._upstream.close()
            if has_left or not self.bound or not self._talk.can_move or await self._gate.is_still_serving(store):
                return
            log.info("the store %s is lost; a process of this pod waits for another one", self.bound)
            await self._gate.wait_for_another_store(self.bound)

    def redirect_to_store(self) -> None:
        """Redirect the link to another store."""
        if self.bound and self.bound != self._gate.rules.store_name():
            self.give_up_store()

    def give_up_store(self) -> None:
        """Drop the connection to this store: its late words do not count, the client is to hear another store."""
        if self._upstream is not None and self.bound:
            self._is_given_up = True
            self._upstream.transport.abort()

    async def _forward_both_ways(self, store: asyncio.StreamReader) -> bool:
        """Forward in both directions until one of them ends; return whether the client has disconnected."""
        client = asyncio.ensure_future(self._forward_to_store(self._talk.unanswered_requests()))
        pumps = [client, asyncio.ensure_future(self._forward_to_client(store))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            return client.done() and not self._upstream_is_lost(client)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    @staticmethod
    def _upstream_is_lost(client: asyncio.Future[None]) -> bool:
        return isinstance(client.exception(), _UpstreamLostError)

    async def _forward_to_store(self, again: Iterable[bytes]) -> None:
        for raw in again:
            await self._gate.wait_until_open(self.bound)
            await self._write_to_store(raw)
        await self._send_requests()
        while data := await self._reader.read(CHUNK):
            self._outward.extend(self._talk.cut_requests(data))
            self._gate.note_conversation(self._talk)
            await self._send_requests()

    async def _send_requests(self) -> None:
        while self._outward:
            await self._gate.wait_until_open(self.bound)
            piece = self._outward.popleft()
            if isinstance(piece, Request):
                at = self._gate.clock.now()
                self._talk.note_sent_request(piece, at)
                self._gate.journal.note_request(piece, at)
                piece = piece.raw
            await self._write_to_store(piece)

    async def _write_to_store(self, raw: bytes) -> None:
        assert self._upstream is not None
        if not self._has_greeted and self._talk.dialect is not None:
            self._has_greeted = True
            self._upstream.write(self._talk.dialect.greeting)
        self._upstream.write(raw)
        try:
            await self._upstream.drain()
        except ConnectionError as problem:
            raise _UpstreamLostError from problem

    async def _forward_to_client(self, store: asyncio.StreamReader) -> None:
        await self._deliver_replies()
        while (data := await store.read(CHUNK)) and not self._is_given_up:
            for raw, answers in self._talk.cut_replies(data):
                self._inward.append(raw)
                for answer in answers:
                    self._gate.journal.note_answer(answer)
            self._gate.note_conversation(self._talk)
            await self._deliver_replies()

    async def _deliver_replies(self) -> None:
        while self._inward:
            await self._gate.wait_until_open(self.bound)
            self._writer.write(self._inward.popleft())
            await self._writer.drain()


class _UpstreamLostError(Exception):
    """The store's side of a connection has ended."""


@dataclass(frozen=True, slots=True)
class Store:
    """The store that a connection leads to. `name`: by the coordinator; empty: not told."""

    address: str
    name: str


async def _is_store_alive(address: str) -> bool:
    """Whether a store lives there: a dying one's connections end before its listener, which accepts meanwhile."""
    await asyncio.sleep(DYING_SECONDS)
    try:
        reader, writer = await open_upstream(address)
        try:
            async with asyncio.timeout(DYING_SECONDS):
                await reader.read(1)
        except TimeoutError:
            return True  # it waits for a word of ours
        finally:
            writer.close()
    except (OSError, TimeoutError, ValueError):
        pass
    return False


class StoreGate(Listener):
    """The listener and its clients.

    Attributes:
        journal: What they have written.
        links: Connections of its clients that have not ended.
    """

    def __init__(
        self, address: str, port: int, rules: Rules, clock: Clock, journal: StoreJournal | None = None
    ) -> None:
        super().__init__(address, port, rules)
        self.clock = clock
        self.journal = journal if journal is not None else StoreJournal()
        self.links: set[StoreLink] = set()
        self._store = ""
        self._change = asyncio.Event()

    def follow_changed_order(self) -> None:
        """Let every waiting link check order and lease again; end connections to a former store."""
        self._follow_store()
        self._change.set()
        self._change = asyncio.Event()
        for link in list(self.links):
            link.redirect_to_store()

    def _follow_store(self) -> None:
        former, store = self._store, self.rules.store_name()
        if not store or store == former:
            return
        self._store = store
        if former and not self.rules.is_store_kept():
            is_new = former.partition("/")[0] != store.partition("/")[0]
            self.journal.begin_store("" if is_new else "the store was lost with all that was in it")

    def note_conversation(self, talk: StoreConversation) -> None:
        """Note what a client has said; a client that cannot be read may have written anything."""
        if talk.lost:
            self.journal.give_up_content("a client speaks to the store in a way that is not known")
        elif talk.dials_again:
            self.journal.problem = SCHEDULER_FORGETS
        elif talk.dialect is not None:
            self.journal.dialect = talk.dialect.name

    def take_content(self, wanted: str) -> Iterator[pb.StoreContent]:
        """Return what this pod's processes have written, for the coordinator, which has lost the store.

        What the lost store still says is not passed on to the clients, because it would be missing in this account.
        """
        for link in self.links:
            link.give_up_store()
        return self.journal.content_messages(wanted, self.clock)

    async def wait_until_open(self, bound: str = "") -> None:
        """Wait until processes may meet; at another one than `bound` it ends."""
        while not self.rules.may_reach_store():
            await self._change.wait()
        if bound and bound != self.rules.store_name():
            raise _UpstreamLostError

    async def wait_for_another_store(self, store: str) -> None:
        """Wait until the order names another store."""
        while self.rules.store_name() == store or not self.rules.may_reach_store():
            await self._change.wait()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Nothing is read before the store is there: a process that leaves meanwhile is noticed then."""
        link = StoreLink(self, reader, writer)
        self.links.add(link)
        try:
            await link.forward_until_end()
        finally:
            self.links.discard(link)

    async def connect_to_store(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Store]:
        """Connect to the store as often as it takes, only while that is allowed."""
        delay = FIRST_RETRY_SECONDS
        while True:
            await self.wait_until_open()
            store = self._current_store()
            try:
                reader, writer = await open_upstream(store.address)
            except (OSError, TimeoutError, ValueError) as problem:
                log.info("a process of this pod waits for the store at %s: %r", store.address, problem)
            else:
                if store == self._current_store():
                    return reader, writer, store
                writer.close()
                continue
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_RETRY_SECONDS)

    def _current_store(self) -> Store:
        return Store(self.rules.store_address(), self.rules.store_name())

    async def is_still_serving(self, store: Store) -> bool:
        """Return whether this store still answers, so that it was it that ended the connection.

        False, too, when the order names another one by now.
        """
        await self.wait_until_open()
        return (
            store == self._current_store() and await _is_store_alive(store.address) and store == self._current_store()
        )
