"""Jobs whose journal or spec this operator cannot read: they are announced and left untouched.

No pod is created or deleted and no coordinator is dialled: a training goes on under the coordinator's standing orders.
Such a job is opened when what could not be read changes, or when an operator leads that can read it.
"""

from __future__ import annotations

import asyncio
import logging

from hajob import metrics
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.conditions import Reason
from hajob.api.job import HATrainingJob, Metadata
from hajob.backoff import Backoff
from hajob.job.ports import Ports
from hajob.job.status.build import build_on_hold
from hajob.job.status.unread import patch_for_unread
from hajob.job.status_writer import StatusWriter
from hajob.kube.client import ApiError, PatchKind

log = logging.getLogger(__name__)


class UnservedJob:
    """One job that is left as it is.

    Attributes:
        name: of the job.
        unreadable: identifies what could not be read.
    """

    def __init__(
        self, metadata: Metadata, ports: Ports, reason: Reason, why: str, unreadable: tuple[object, ...]
    ) -> None:
        self.name, self.unreadable = metadata.name, unreadable
        self._ports, self._why = ports, why
        self._count = metrics.JOBS_ON_HOLD.labels(reason.word)
        self._count.inc()
        log.error("%s/%s is left as it is: %s", metadata.namespace, metadata.name, why)
        ports.announcer.queue_event(metadata, reason.word, f"{reason.sentence} {why}", warning=True)
        self._writing = asyncio.create_task(self._write_status(), name=f"status of {metadata.name}")

    async def _write_status(self) -> None:
        raise NotImplementedError

    async def stop_managing(self) -> None:
        """Stop announcing it."""
        self._count.dec()
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)


class JobOnHold(UnservedJob):
    """A job whose journal, or a value of whose spec, cannot be used: its status is known, and written as a whole."""

    def __init__(self, job: HATrainingJob, ports: Ports, reason: Reason, why: str) -> None:
        self._job, self._reason = job, reason
        super().__init__(job.metadata, ports, reason, why, what_was_read(job))

    async def _write_status(self) -> None:
        job, ports = self._job, self._ports
        writer = StatusWriter(ports.kube, ports.clock, job.metadata, job.status.to_json(), ports.leadership)
        message, now_ms = f"{self._reason.sentence} {self._why}", ports.clock.now_milliseconds()
        writer.hand_over_status(build_on_hold(job, self._reason, message, ports.leadership.fence, now_ms))
        await writer.write_for_ever()


def what_was_read(job: HATrainingJob) -> tuple[object, ...]:
    """Return what a job is opened from: while that stays the same, opening it fails in the same way."""
    return job.status.journal, job.status.journal_version, job.metadata.generation


def what_is_unread(raw: Json, why: str) -> tuple[object, ...]:
    """Return what identifies a spec that cannot be read: `why` names its fields."""
    return raw["metadata"].get("generation"), why


class JobUnread(UnservedJob):
    """A job that cannot be read at all: its raw status says so, and nothing else of it is touched."""

    def __init__(self, raw: Json, ports: Ports, why: str) -> None:
        self._raw = raw
        metadata = Metadata.model_validate(raw["metadata"])
        super().__init__(metadata, ports, Reason.SPEC_NOT_READ, why, what_is_unread(raw, why))

    async def _write_status(self) -> None:
        """Say it once, whatever becomes of the status meanwhile; the server's refusals are repeated for ever."""
        ports, raw, metadata, backoff = self._ports, self._raw, self._raw["metadata"], Backoff()
        namespace = metadata["namespace"]
        while raw["metadata"]["uid"] == metadata["uid"]:
            patch = patch_for_unread(raw, self._why, ports.leadership.fence, ports.clock.now_milliseconds())
            if not patch:
                return
            try:
                await ports.kube.patch_object(
                    names.PLURAL, namespace, self.name, patch, kind=PatchKind.JSON, subresource="status"
                )
            except ApiError as error:
                log.warning("the status of %s cannot be written yet: %s", self.name, error)
            else:
                return
            await ports.clock.sleep(backoff.next_delay())
            try:
                raw = await ports.kube.get_object(names.PLURAL, namespace, self.name)
            except ApiError as error:
                if error.status == 404:
                    return
