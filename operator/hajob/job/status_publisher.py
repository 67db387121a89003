"""When the status of a job is computed and handed to its writer.

Never in the call in which something happened: an order that was just given must leave first. An urgent status is
written at once after it, others wait a little to be merged; an unchanged status is not written.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from hajob.api.status import HATrainingJobStatus
from hajob.clock import Alarm, Clock
from hajob.job.status.build import is_worth_a_write
from hajob.job.status.freshness import (
    OFTEN_SECONDS,
    RARELY_SECONDS,
    Refreshes,
    is_older_than,
    longest_age_of_progress,
    waits_for_nodes,
)
from hajob.job.status_writer import JobGoneError, StatusRefusedError, StatusWriter
from hajob.kube.batches import AT_ONCE

LAZY_SECONDS: Final = 3.0
"""A change that nobody waits for is written after so long, together with what comes meanwhile."""
GAP_SECONDS: Final = 0.1
"""Between such writes, of all jobs: what a hundred that start together have to tell goes into fewer ones."""
LONGEST_SECONDS: Final = 30.0
"""However many jobs there are, it is written after so long."""
SOON_SECONDS: Final = 0.001
"""Long enough for what was just said to leave."""


Draft: TypeAlias = tuple[HATrainingJobStatus, Callable[[], None]]


class WritePace:
    """The pace of pods and non-urgent statuses of all jobs.

    Attributes:
        creations: so many pods are made at a time: what is not sent yet is not built yet, and statuses wait for it.
        refreshes: of values that move by themselves.
    """

    def __init__(self) -> None:
        self._last = -math.inf
        self.creations = asyncio.Semaphore(AT_ONCE)
        self.refreshes = Refreshes()

    def next_delay(self, now: float) -> float:
        """Return the seconds to wait with the next one; `now` is monotonic."""
        at = min(max(now + LAZY_SECONDS, self._last + GAP_SECONDS), now + LONGEST_SECONDS)
        self._last = max(self._last, at)
        return at - now


class StatusPublisher:
    """The status of one job, as it was last handed over.

    Args:
        clock: for what may wait for company.
        writer: of the job.
        known: the status that the server has.
        draft: computes the status as it is now, from the one before, and what to call once the server has it.
        pace: of all jobs together.

    Attributes:
        writer: to be run for as long as the job is managed.
    """

    def __init__(
        self,
        clock: Clock,
        writer: StatusWriter,
        known: HATrainingJobStatus,
        draft: Callable[[HATrainingJobStatus], Draft],
        pace: WritePace,
    ) -> None:
        self.current = known
        self._clock = clock
        self.writer = writer
        self._draft = draft
        self._pace = pace
        self._confirming: set[asyncio.Task[None]] = set()
        self._version = 0
        self._alarm, self._refreshing = Alarm(clock), Alarm(clock)
        self._urgent = False
        self._closed = False

    def publish_status(self, *, lazy: bool = False) -> None:
        """Publish a change; `lazy`: it may wait."""
        if self._closed:
            return
        if self._alarm.is_set and (lazy or self._urgent):
            return
        self._urgent = not lazy
        if lazy:
            self._put_when_idle(self._clock.monotonic() + LONGEST_SECONDS)
        else:
            self._alarm.set_alarm(SOON_SECONDS, self._put_status)

    async def wait_until_written(self) -> None:
        """Wait until the server has the current status.

        Raises:
            StatusRefusedError: it does not take it.
        """
        await self.writer.wait_until_written(self._put_status())

    def stop_publishing(self) -> None:
        """Stop publishing."""
        self._closed = True
        self._alarm.cancel()
        self._refreshing.cancel()

    def stop_waiting(self) -> None:
        """Wait for nothing any more."""
        self.stop_publishing()
        for task in self._confirming:
            task.cancel()

    def _put_when_idle(self, at_the_latest: float) -> None:
        delay = self._pace.next_delay(self._clock.monotonic())
        self._alarm.set_alarm(delay, self._put_or_wait, at_the_latest)

    def _put_or_wait(self, at_the_latest: float) -> None:
        if self._pace.creations.locked() and self._clock.monotonic() < at_the_latest:
            self._put_when_idle(at_the_latest)
        else:
            self._put_status()

    def _put_status(self) -> int:
        self._alarm.cancel()
        status, then = self._draft(self.current)
        if is_older_than(self.current, status, RARELY_SECONDS):
            self._may_refresh(always=True)
        if is_worth_a_write(self.current, status) or self._is_stale(status):
            self.current = status
            self._version = self.writer.hand_over_status(status)
        task = asyncio.create_task(self._confirm_version(self._version, then))
        self._confirming.add(task)
        task.add_done_callback(self._confirming.discard)
        self._refresh_later()
        return self._version

    def _is_stale(self, status: HATrainingJobStatus) -> bool:
        """Whether what moves by itself is too old for a watched job, and all jobs together leave room for a write."""
        if waits_for_nodes(status):
            return status.conditions != self.current.conditions and self._may_refresh()
        if not is_older_than(self.current, status, longest_age_of_progress(status)):
            return False
        return self._may_refresh()

    def _may_refresh(self, *, always: bool = False) -> bool:
        return self._pace.refreshes.take_refresh(self._clock.monotonic(), always=always)

    def _refresh_later(self) -> None:
        """Look at a watched job again soon: one that stands has no news by which it would be looked at."""
        watched = longest_age_of_progress(self.current) < RARELY_SECONDS or waits_for_nodes(self.current)
        if watched and not self._closed:
            self._refreshing.set_alarm(OFTEN_SECONDS - LAZY_SECONDS, partial(self.publish_status, lazy=True))

    async def _confirm_version(self, version: int, then: Callable[[], None]) -> None:
        """Call `then` once the server has this version; if it never will, the next leader hears the reports again."""
        with contextlib.suppress(StatusRefusedError, JobGoneError):
            await self.writer.wait_until_written(version)
            then()
