"""A job whose journal or spec this operator cannot read: it is announced and left untouched.

No pod is created or deleted and no coordinator is dialled: its training goes on under the coordinator's standing
orders. It is opened when its journal or spec changes, or when an operator leads that can read them.
"""

from __future__ import annotations

import asyncio
import logging

from hajob import metrics
from hajob.api.conditions import Reason
from hajob.api.job import HATrainingJob
from hajob.job.ports import Ports
from hajob.job.status.build import build_on_hold
from hajob.job.status_writer import StatusWriter

log = logging.getLogger(__name__)


class JobOnHold:
    """One job on hold."""

    def __init__(self, job: HATrainingJob, ports: Ports, reason: Reason, why: str) -> None:
        self.job, self.name = job, job.metadata.name
        self._count = metrics.JOBS_ON_HOLD.labels(reason.word)
        self._count.inc()
        log.error("%s/%s is left as it is: %s", job.metadata.namespace, job.metadata.name, why)
        message = f"{reason.sentence} {why}"
        ports.announcer.queue_event(job.metadata, reason.word, message, warning=True)
        writer = StatusWriter(ports.kube, ports.clock, job.metadata, job.status.to_json(), ports.leadership)
        writer.hand_over_status(
            build_on_hold(job, reason, message, ports.leadership.fence, ports.clock.now_milliseconds())
        )
        self._writing = asyncio.create_task(writer.write_for_ever(), name=f"status of {job.metadata.name}")

    def is_still_unreadable(self, job: HATrainingJob) -> bool:
        """Return whether journal and spec are still those that cannot be read."""
        return _what_was_read(self.job) == _what_was_read(job)

    async def stop_managing(self) -> None:
        """Stop announcing it."""
        self._count.dec()
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)


def _what_was_read(job: HATrainingJob) -> tuple[object, ...]:
    return job.status.journal, job.status.journal_version, job.metadata.generation
