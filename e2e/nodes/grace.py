"""A grace period that can be cut short while it is waited for: a second ``kubectl delete --grace-period`` does that."""

from __future__ import annotations

import asyncio
from typing import Any


class GracePeriod:
    """Counts down from ``seconds`` on the loop's clock."""

    def __init__(self, seconds: float) -> None:
        self._end = asyncio.get_running_loop().time() + seconds
        self._shortened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - asyncio.get_running_loop().time())

    def shorten(self, seconds: float) -> None:
        """At most ``seconds`` from now; never longer than it was."""
        end = asyncio.get_running_loop().time() + seconds
        if end < self._end:
            self._end = end
            self._shortened.set_result(None)
            self._shortened = asyncio.get_running_loop().create_future()

    async def wait_for(self, event: asyncio.Future[int]) -> bool:
        """Wait until ``event`` is done (True) or the period is over (False)."""
        while not event.done() and self.remaining > 0:
            either: set[asyncio.Future[Any]] = {event, self._shortened}
            await asyncio.wait(either, timeout=self.remaining, return_when=asyncio.FIRST_COMPLETED)
        return event.done()
