"""The clock as a port: every module of the runtime takes the time and waits through it.

Wall time is for people and other machines. Durations and timeouts use the monotonic clock, which ignores corrections
of the wall clock and counts the time that the machine was suspended. `JobTime` joins the two for one job. Tests put
their own clock here and run hours in milliseconds. No other module of the operator reads a clock or sets a timer
(docs/decisions/0011-one-clock.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol, TypeAlias

_COUNTS_SUSPENSION: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


Cancel: TypeAlias = Callable[[], None]
"""Function that cancels a pending call."""


class Clock(Protocol):
    """Wall time, monotonic time, timers and sleep."""

    def now_milliseconds(self) -> int:
        """Return wall time in milliseconds since the epoch; may jump either way."""

    def monotonic(self) -> float:
        """Return seconds on a clock that never jumps and never stops, not even while the machine is suspended."""

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: object) -> Cancel:
        """Call this in the running loop, not before this many seconds have passed; return what cancels that."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class Alarm:
    """At most one pending call; setting it again replaces the call before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cancel: Cancel | None = None

    @property
    def is_set(self) -> bool:
        """Whether a call is pending; False already while the call runs."""
        return self._cancel is not None

    def set_alarm(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        """Make this call, not before this many seconds have passed."""
        self.cancel()
        self._cancel = self._clock.call_later(seconds, self._make_call, partial(call, *arguments))

    def cancel(self) -> None:
        """Cancel the pending call."""
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _make_call(self, call: Callable[[], object]) -> None:
        self._cancel = None
        call()


class SystemClock:
    """The machine's clock."""

    def now_milliseconds(self) -> int:
        """Return wall time in milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return seconds since the machine was started."""
        return time.clock_gettime(_COUNTS_SUSPENSION)

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: object) -> Cancel:
        """Use the loop's timers, which stop with the machine: a call that is due after a suspension comes late."""
        return asyncio.get_running_loop().call_later(seconds, call, *arguments).cancel

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class JobTime:
    """The time of one job, in milliseconds: begun at the wall clock, carried on by the monotonic one.

    Within a process no step of the wall clock changes it, and from leader to leader it never runs backwards: it
    begins no earlier than the time at which the journal it continues was written.

    Args:
        clock: the machine's.
        written_ms: job time at which the journal was written; 0 where there is none.
    """

    def __init__(self, clock: Clock, written_ms: int = 0) -> None:
        self._clock = clock
        self._began_ms = max(clock.now_milliseconds(), written_ms)
        self._began = clock.monotonic()

    def now(self) -> int:
        """Return milliseconds since the epoch, approximately."""
        return self._began_ms + round((self._clock.monotonic() - self._began) * 1000)


@asynccontextmanager
async def timeout(clock: Clock, seconds: float) -> AsyncIterator[None]:
    """Raise `TimeoutError` in the body after this many seconds of this clock.

    `asyncio.wait_for` would lose a cancellation that coincides with a result.
    """
    async with asyncio.timeout(None) as scope:
        cancel = clock.call_later(seconds, scope.reschedule, 0.0)
        try:
            yield
        finally:
            cancel()


async def give_way() -> None:
    """Yield to the other tasks of the loop."""
    await asyncio.sleep(0)


def format_microtime(milliseconds: int) -> str:
    """Format as RFC 3339 with six places, the only form that `metav1.MicroTime` reads: 2026-11-21T09:00:00.123000Z."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"
