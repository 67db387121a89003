"""Limits concurrent requests: fewer where the server is slow.

An API server that is short of processor time serves sixty requests no faster than eight, only each of them later. A
leader has to abort a write when its Lease runs out, and the server executes it all the same: with too many
under way most of its work is for nothing, and all of it is asked for again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from hajob.clock import Clock
from hajob.metrics import REQUESTS_WAITING

SLOW_SECONDS: Final = 0.8
"""An answer that took longer is a reason to ask for less at a time: well below what is left of a Lease at any time."""
# Quick to give way and slow to take again, as TCP does: one slow answer takes back what dozens of quick ones have won.
SHRINK: Final = 0.9
GROW: Final = 0.2


class RequestLimiter:
    """A limit that lets requests begin in the order in which they came.

    Args:
        clock: by which answers are slow.
        least, most: bounds of the number of those that are under way.

    Attributes:
        limit: how many may be under way now.
    """

    def __init__(self, clock: Clock, least: int, most: int) -> None:
        self._clock, self._least, self._most = clock, float(least), float(most)
        self.limit = (self._least + self._most) / 2
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def hold_turn(self) -> AsyncIterator[None]:
        """Hold one request's place, once it may begin."""
        await self._wait_for_turn()
        began = self._clock.monotonic()
        try:
            yield
        finally:
            slow = self._clock.monotonic() - began > SLOW_SECONDS
            self.limit = max(self.limit * SHRINK, self._least) if slow else min(self.limit + GROW, self._most)
            self._end_turn()

    async def _wait_for_turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.Future()
        self._waiting.append(turn)
        self._start_waiting()
        try:
            with REQUESTS_WAITING.track_inprogress():
                await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn came in the moment in which it left
                self._end_turn()
            raise

    def _end_turn(self) -> None:
        self._running -= 1
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Start waiting requests as the limit permits."""
        while self._waiting and self._running < int(self.limit):
            turn = self._waiting.popleft()
            if not turn.done():
                self._running += 1
                turn.set_result(None)
