"""How long the machine stood still while a test measured the product.

A bound of the product is about a machine that runs. Where the test's own process got no turn for more than half a
second, nobody's did: that time is no part of what was measured, as it is none of the coordinator's own waiting
(trainer_sidecar/coordinator/state/leases.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from trainer_sidecar.coordinator.shell import clock
from trainer_sidecar.coordinator.state.leases import LAG_SECONDS

TICK_SECONDS = 0.01


class Standstill:
    """The times between two ticks that were far longer than a tick, by the boot-time clock."""

    def __init__(self, now: float) -> None:
        self._last = now
        self._spans: list[tuple[float, float]] = []

    def tick(self, now: float) -> None:
        """A turn of this process, a tick after the last one if the machine runs."""
        due = self._last + TICK_SECONDS
        if now - due > LAG_SECONDS:
            self._spans.append((due, now))
        self._last = now

    def seconds(self, begin: float, end: float) -> float:
        """How much of the time between these two was no time of a machine that runs."""
        return sum(max(0.0, min(end, stop) - max(begin, start)) for start, stop in self._spans)


@asynccontextmanager
async def watched() -> AsyncIterator[Standstill]:
    """Watch for standstills until the end of the block."""
    standstill = Standstill(clock.now())

    async def watch() -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            standstill.tick(clock.now())

    task = asyncio.create_task(watch())
    try:
        yield standstill
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        standstill.tick(clock.now())
