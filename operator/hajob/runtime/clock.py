"""The clock as a port: everything in the runtime that asks for the time or waits asks one of these.

Wall time is for people and for other machines; whatever is measured or awaited goes by the monotonic clock, which no
correction of the wall clock bends and which counts the time that the machine was suspended. `JobTime` joins the two
for one job. Tests put a clock of their own here and run hours in milliseconds. No other module of the operator reads
a clock or sets a timer (docs/decisions/0011-one-clock.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final, Protocol

_COUNTS_SUSPENSION: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Timer(Protocol):
    """A call that is still to come."""

    def cancel(self) -> None:
        """It shall not come."""


class Clock(Protocol):
    """Time, in the two kinds that the runtime needs, and waiting."""

    def now_milliseconds(self) -> int:
        """Wall time since the epoch; may jump either way."""

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps, and stands still for nothing."""

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: object) -> Timer:
        """Call this in the running loop, not before so many seconds have passed."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class Alarm:
    """One call that is still to come, or none: set anew, it replaces the one before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timer: Timer | None = None

    @property
    def is_set(self) -> bool:
        """Whether a call is to come; no longer while it is made."""
        return self._timer is not None

    def set(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        """Make this call, not before so many seconds have passed."""
        self.cancel()
        self._timer = self._clock.call_later(seconds, self._ring, call, arguments)

    def cancel(self) -> None:
        """Make none."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self, call: Callable[..., object], arguments: tuple[object, ...]) -> None:
        self._timer = None
        call(*arguments)


class SystemClock:
    """The machine's clock."""

    def now_milliseconds(self) -> int:
        """Wall time since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since the machine was started."""
        return time.clock_gettime(_COUNTS_SUSPENSION)

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: object) -> Timer:
        """By the loop's timers, which stand still with the machine: what is due after a suspension comes late."""
        return asyncio.get_running_loop().call_later(seconds, call, *arguments)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class JobTime:
    """Milliseconds by which one job lives: begun at the wall clock, carried on by the monotonic one.

    Inside a process no step of the wall clock changes it, and from leader to leader it never runs backwards: it begins
    no earlier than the journal that it goes on with was written.

    Args:
        clock: the machine's.
        written_ms: job time at which the journal was written; 0 where there is none.
    """

    def __init__(self, clock: Clock, written_ms: int = 0) -> None:
        self._clock = clock
        self._began_ms = max(clock.now_milliseconds(), written_ms)
        self._began = clock.monotonic()

    def now(self) -> int:
        """Milliseconds since the epoch, about."""
        return self._began_ms + round((self._clock.monotonic() - self._began) * 1000)


@asynccontextmanager
async def timeout(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """End what is awaited inside with `TimeoutError` after so many seconds of this clock.

    `asyncio.wait_for` would lose a cancellation that meets a result.
    """
    async with asyncio.timeout(None) as scope:
        timer = clock.call_later(seconds, scope.reschedule, 0.0)
        try:
            yield
        finally:
            timer.cancel()


async def give_way() -> None:
    """Let the loop do what else it has to do."""
    await asyncio.sleep(0)


def timestamp(milliseconds: int) -> str:
    """RFC 3339 with six places, the only form that `metav1.MicroTime` reads: 2026-11-21T09:00:00.123000Z."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"
