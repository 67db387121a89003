"""Making ranks known to a controller in their place: what a rank says after its connect frame.

A rank without a process is made known, too, or the controller would refuse to be told that it is dead; its link may go
at once, and nothing is said of how it is. docs/protocols/launcher.md#another-controller
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from trainer_sidecar.agent.gate import frames
from trainer_sidecar.agent.gate.passage import Passage
from trainer_sidecar.agent.gate.registrations import TAKEN, Registration
from trainer_sidecar.agent.gate.upstream import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, open_upstream

# After a change of controller all ranks of the job register in one moment, and are answered one after the other.
REPLY_TIMEOUT_SECONDS = 30.0

log = logging.getLogger(__name__)

UntilOpen = Callable[[], Awaitable[None]]


async def register_rank(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    kept: Registration,
    until_open: UntilOpen,
    answer: Callable[[bytes], None] | None = None,
) -> set[int]:
    """Register a rank with the controller, message by message, and return the types of the messages.

    The former controller may have gone before it had replied to a message. The reply to such a message is given to the
    rank with `answer`. Raises `ValueError` when the controller does not take the rank.
    """
    said: set[int] = set()
    for kind, message in kept.registration_messages():
        said.add(kind)
        await until_open()
        writer.write(message)
        async with asyncio.timeout(REPLY_TIMEOUT_SECONDS):
            reply = await reader.readexactly(frames.HEADER.size)
            reply += await reader.readexactly(frames.HEADER.unpack(reply)[2])
        if frames.parse_registration_reply(reply)[0] not in TAKEN:
            raise ValueError(f"the controller refuses the rank: {reply.hex()}")
        if answer is not None and kind in kept.unanswered:
            kept.unanswered.discard(kind)
            answer(reply)
    return said


class StandIns:
    """Short connections that register ranks without a process: one for each such rank, to each controller once."""

    def __init__(self, passage: Passage) -> None:
        self._passage = passage
        self._rules, self._registrations = passage.rules, passage.registrations
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._done: set[tuple[str, int]] = set()

    def follow_changed_order(self) -> None:
        """Begin and end stand-ins as the changed order or lease demands."""
        controller, ranks = self._rules.controller_name(), self._rules.ranks_to_stand_in_for()
        for rank in self._tasks.keys() - ranks:
            self._tasks.pop(rank).cancel()
        for rank in ranks - self._tasks.keys():
            if (controller, rank) not in self._done:
                self._tasks[rank] = asyncio.ensure_future(self._stand_in_for_rank(rank, controller))

    def registered_ranks(self) -> set[int]:
        """Return the ranks that the current controller knows."""
        return {rank for controller, rank in self._done if controller == self._rules.controller_name()}

    def end_stand_ins(self) -> None:
        """End all stand-ins."""
        for task in self._tasks.values():
            task.cancel()

    async def _stand_in_for_rank(self, rank: int, controller: str) -> None:
        delay = FIRST_RETRY_SECONDS
        while rank in self._rules.ranks_to_stand_in_for() and self._rules.controller_name() == controller:
            try:
                await self._register_rank(rank)
            except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as problem:
                log.info("the controller does not know the dead rank %d yet: %r", rank, problem)
                await asyncio.sleep(delay)
                delay = min(2 * delay, LAST_RETRY_SECONDS)
                continue
            log.info("the controller knows rank %d, which has no process", rank)
            self._done.add((controller, rank))
            self._rules.note_link_change(rank)
            break
        self._tasks.pop(rank, None)

    async def _register_rank(self, rank: int) -> None:
        reader, writer = await open_upstream(self._rules.controller_address())
        try:
            frame = frames.CONNECT.pack(frames.CONNECT_MAGIC, frames.CONNECT_VERSION, rank)
            await self._passage.greet_controller(writer, frame)
            async with asyncio.timeout(REPLY_TIMEOUT_SECONDS):
                if frames.REPLY.unpack(await reader.readexactly(frames.REPLY.size))[0] != 0:
                    raise ValueError("it does not take the connection")
            await register_rank(reader, writer, self._registrations.made_up_registration(rank, ""), _never_wait)
        finally:
            writer.close()


async def _never_wait() -> None:
    """A rank without a process has no gate that could hold it; the order is looked at before each attempt."""
