"""The controller's side of a rank's link: connect, make the rank known, redirect to another controller.

docs/protocols/launcher.md#another-controller
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from trainer_sidecar.agent.gate import frames
from trainer_sidecar.agent.gate.passage import Passage
from trainer_sidecar.agent.gate.rank_messages import LinkedRank
from trainer_sidecar.agent.gate.registering import REPLY_TIMEOUT_SECONDS, register_rank
from trainer_sidecar.agent.gate.registrations import Registration
from trainer_sidecar.agent.gate.upstream import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, open_upstream

log = logging.getLogger(__name__)


class ControllerSide:
    """The controller's side of one rank's link.

    Attributes:
        bound: the controller of the present connection; None: there is none.
        is_taken: the controller has taken the rank.
    """

    def __init__(self, passage: Passage, whose: LinkedRank, answer: Callable[[bytes], None]) -> None:
        self._passage, self._whose, self._answer = passage, whose, answer
        self._writer: asyncio.StreamWriter | None = None
        self._attempt: asyncio.Future[asyncio.StreamReader] | None = None
        self._address = ""
        self._has_answered = False  # the rank has its reply, and must not get another one
        self._said: set[int] | None = None  # types that it was told in the rank's place
        self.bound: str | None = None
        self.is_taken = False

    async def wait_until_open(self) -> None:
        """Wait until bytes may pass to this controller."""
        await self._passage.wait_until_open(self._whose.rank, self.bound)

    async def connect_rank(self, frame: bytes) -> asyncio.StreamReader:
        """Connect with the rank's own frame as often as it takes, only while that is allowed."""
        delay = FIRST_RETRY_SECONDS
        while True:
            await self.wait_until_open()
            self._attempt = asyncio.ensure_future(self._connect_once(frame))
            try:
                await asyncio.wait({self._attempt})
                if not self._attempt.cancelled():
                    return self._attempt.result()
            except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as problem:
                log.info("rank %s waits at the gate: controller %s: %r", self._whose.rank, self._address, problem)
            finally:
                self._attempt.cancel()
            self.close_connection()
            await asyncio.sleep(delay)
            delay = min(2 * delay, LAST_RETRY_SECONDS)

    async def _connect_once(self, frame: bytes) -> asyncio.StreamReader:
        rules, whose, self._said = self._passage.rules, self._whose, None
        self._address, self.bound = rules.controller_address(), rules.controller_name()
        whose.process = whose.process or rules.process_name(whose.rank)  # known by now, or it might not pass
        reader, self._writer = await open_upstream(self._address)
        await self.wait_until_open()
        await self._passage.greet_controller(self._writer, frame)
        async with asyncio.timeout(REPLY_TIMEOUT_SECONDS):
            reply = await reader.readexactly(frames.REPLY.size)
        await self.wait_until_open()
        self.is_taken = frames.REPLY.unpack(reply)[0] == 0
        if self._has_answered and not self.is_taken:
            raise ValueError(f"the rank is not taken again: {reply.hex()}")
        kept = self._passage.registrations.registration_of(whose.rank, whose.process)
        if kept is not None and kept.controller != self.bound and self.is_taken:
            await self._register_rank_again(reader, self._writer, kept, self.bound)
        if not self._has_answered:
            self._has_answered = True
            self._answer(reply)
        return reader

    async def _register_rank_again(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: Registration, controller: str
    ) -> None:
        """Tell another controller what the one before knew; pass to the rank only replies that it still waits for."""
        answer = self._answer if self._has_answered else None
        self._said = await register_rank(reader, writer, kept, self.wait_until_open, answer)
        if kept.heartbeat:
            writer.write(kept.heartbeat)
        log.info("rank %d is known to another controller, %s", self._whose.rank, controller)
        self._passage.registrations.note_known_to(self._whose.rank, kept, controller)

    def unsent_registration_messages(self) -> list[bytes]:
        """Return the rank's registration messages that came after this controller was told the others."""
        kept = self._passage.registrations.registration_of(self._whose.rank, self._whose.process)
        if kept is None or self._said is None:
            return []
        return [message for kind, message in kept.registration_messages() if kind in kept.unanswered - self._said]

    def write(self, data: bytes) -> None:
        """Write to the controller; requires a connection."""
        assert self._writer is not None
        self._writer.write(data)

    async def drain_writes(self) -> None:
        """Wait until the connection takes more."""
        assert self._writer is not None
        await self._writer.drain()

    @property
    def is_congested(self) -> bool:
        """Whether the controller does not read."""
        return self._writer is not None and self._writer.transport.get_write_buffer_size() > 0

    def is_bound_to(self, address: str, controller: str) -> bool:
        """Return whether the link is connected to this controller, or about to be."""
        return (self._address, self.bound) == (address, controller)

    def cancel_attempt(self) -> None:
        """Give up a connection in progress: the controller has changed."""
        if self._attempt is not None:
            self._attempt.cancel()

    def abort_connection(self) -> None:
        """End the connection at once."""
        if self._writer is not None:
            self._writer.transport.abort()

    def close_connection(self) -> None:
        """End the connection once all written bytes are sent."""
        if self._writer is not None:
            self._writer.close()
        self._writer = self.bound = None
