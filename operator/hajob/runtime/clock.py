"""The clock as a port: everything in the runtime that asks for the time or waits asks one of these.

Wall time is for people and for the status; intervals are measured by the monotonic clock, which a correction of the
wall clock cannot bend. Tests put a clock of their own here and run hours in milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Time, in the two kinds that the runtime needs."""

    def now_milliseconds(self) -> int:
        """Wall time since the epoch."""

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clock."""

    def now_milliseconds(self) -> int:
        """Wall time since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


def timestamp(milliseconds: int) -> str:
    """RFC 3339 with six places, the only form that `metav1.MicroTime` reads: 2026-11-21T09:00:00.123000Z."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"
