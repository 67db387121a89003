"""A clock that moves only when told to."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from hajob.clock import Cancel

START_MILLISECONDS = 1_795_255_200_000
"""What the wall clock shows at first, 21 November 2026 at ten: a date of today, as those in the tests' objects are."""


class FakeClock:
    """Time stands still until `advance`; timers come in order. Wall clock and monotonic clock may move apart."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.wall_ahead = 0.0
        self._timers: list[tuple[float, int, Call]] = []
        self._count = itertools.count()

    def now_milliseconds(self) -> int:
        return START_MILLISECONDS + round((self.seconds + self.wall_ahead) * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: object) -> Cancel:
        timer = Call(call, arguments)
        heapq.heappush(self._timers, (self.seconds + seconds, next(self._count), timer))
        return timer.cancel

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.Future()
        self.call_later(seconds, _wake, future)
        await future

    async def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due on the way."""
        end = self.seconds + seconds
        await settle()
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self.seconds = max(self.seconds, due)
            timer.come()
            await settle()
        self.seconds = end

    @property
    def awaited(self) -> list[float]:
        """The times at which timers are still to come."""
        return sorted(due for due, _, timer in self._timers if timer.awaited)

    def freeze(self, seconds: float) -> None:
        """Let time pass while nothing runs, as for a process that is stopped."""
        self.seconds += seconds

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock; nothing else moves."""
        self.wall_ahead += seconds


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Call:
    """A timer of the fake clock."""

    def __init__(self, call: Callable[..., object], arguments: tuple[object, ...]) -> None:
        self._call: Callable[..., object] | None = call
        self._arguments = arguments

    @property
    def awaited(self) -> bool:
        """Whether it is still to come."""
        return self._call is not None

    def cancel(self) -> None:
        self._call = None

    def come(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call(*self._arguments)


async def settle() -> None:
    """Let every task run until it waits for something outside."""
    for _ in range(20):
        await asyncio.sleep(0)
