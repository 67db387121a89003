"""Deletes a job some time after it has ended (spec.ttlSecondsAfterFinished).

The time counts from status.completionTime, so a new leader goes on counting, and the user may lengthen or
shorten it as long as the job exists. Only the object is deleted: its finalizer and its owner references do the rest,
as for anybody who deletes it.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

from hajob.api import constants as names
from hajob.api.job import HATrainingJob
from hajob.backoff import Backoff
from hajob.clock import Clock
from hajob.kube.client import ApiError, Kube

log = logging.getLogger(__name__)

GONE = frozenset({404, 409})
"""There is nothing of this name any more, or another job has it."""


class Expiry:
    """The timed deletion of one job's object."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._due_ms: int | None = None
        self._task: asyncio.Task[None] | None = None

    def follow(self, job: HATrainingJob, completed: datetime | None) -> None:
        """Take in the job as it is now, and when it ended; None while it has not."""
        seconds = job.spec.ttl_seconds_after_finished
        due_ms = None
        if seconds is not None and completed is not None:
            due_ms = int(completed.timestamp() * 1000) + 1000 * seconds
        if due_ms == self._due_ms:
            return
        self.close()
        self._due_ms = due_ms
        if due_ms is not None:
            self._task = asyncio.create_task(self._delete_at(job, due_ms), name="expiry")

    def close(self) -> None:
        """Cancel the deletion."""
        self._due_ms = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _delete_at(self, job: HATrainingJob, due_ms: int) -> None:
        await self._clock.sleep(max(0.0, (due_ms - self._clock.now_milliseconds()) / 1000))
        metadata, backoff = job.metadata, Backoff()
        while True:
            try:
                await self._kube.delete(names.PLURAL, metadata.namespace, metadata.name, uid=metadata.uid)
            except ApiError as error:
                if error.status not in GONE:
                    log.warning("%s/%s has expired and cannot be deleted: %s", metadata.namespace, metadata.name, error)
                    await self._clock.sleep(backoff.delay())
                    continue
            log.info("%s/%s has expired and is deleted", metadata.namespace, metadata.name)
            return
