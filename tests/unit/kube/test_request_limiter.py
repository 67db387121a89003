"""A server that is short of processor time: what is asked of it at once, and that nothing is asked twice."""

from __future__ import annotations

import asyncio

from hajob.kube.request_limiter import RequestLimiter
from tests.rigs.fake_clock import FakeClock, settle

LEAST, MOST = 8, 60
GIVEN_UP_SECONDS = 2.5
"""What is left of a Lease in the worst case, or nearly."""


class Server:
    """Serves so many requests a second, however many are under way."""

    def __init__(self, clock: FakeClock, turns: RequestLimiter, rate: float) -> None:
        self.clock, self.turns, self.rate = clock, turns, rate
        self.free_at, self.under_way, self.most = 0.0, 0, 0
        self.took: list[float] = []

    async def ask(self) -> None:
        async with self.turns.hold_turn():
            began = self.clock.monotonic()
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            self.free_at = max(self.free_at, began) + 1 / self.rate
            await self.clock.sleep(self.free_at - began)
            self.under_way -= 1
            self.took.append(self.clock.monotonic() - began)

    async def serve(self, count: int, seconds: float) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self.ask()) for _ in range(count)]
        for _ in range(int(seconds / 0.05)):
            await self.clock.advance(0.05)
        return tasks


async def test_a_slow_server_is_asked_for_less_and_gives_nothing_up() -> None:
    clock = FakeClock()
    server = Server(clock, RequestLimiter(clock, LEAST, MOST), rate=15.0)
    tasks = await server.serve(300, 25.0)
    assert all(task.done() for task in tasks)  # as fast as it can: 20 s
    assert max(server.took) < GIVEN_UP_SECONDS
    assert max(server.took[100:]) < 1.5


async def test_a_fast_server_is_asked_for_more() -> None:
    clock = FakeClock()
    server = Server(clock, RequestLimiter(clock, LEAST, MOST), rate=300.0)
    await server.serve(1000, 10.0)
    assert server.most == MOST


async def test_who_leaves_the_row_keeps_nobody_waiting() -> None:
    clock = FakeClock()
    turns = RequestLimiter(clock, 1, 1)
    server = Server(clock, turns, rate=1.0)
    first, second, third = (asyncio.create_task(server.ask()) for _ in range(3))
    await settle()
    second.cancel()
    await clock.advance(1.0)
    assert (first.done(), second.cancelled(), third.done()) == (True, True, False)
    third.cancel()
    await settle()
    last = asyncio.create_task(server.ask())
    await clock.advance(2.5)
    assert last.done()
