"""A job that this operator cannot read and has never read: its status says so, and nothing else of it is touched.

Its training, if it has one, goes on under the coordinator's standing orders. It is opened as soon as it can be read.
"""

from __future__ import annotations

import asyncio
import logging

from hajob import metrics
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.conditions import Reason
from hajob.api.event_reasons import EventReason
from hajob.api.job import Metadata
from hajob.backoff import Backoff
from hajob.job.ports import Ports
from hajob.job.status.unread import patch_for_unread
from hajob.kube.client import ApiError, PatchKind

log = logging.getLogger(__name__)


class JobUnread:
    """One job that cannot be read."""

    def __init__(self, raw: Json, ports: Ports, why: str) -> None:
        self.name: str = raw["metadata"]["name"]
        self._generation, self._why, self._ports = raw["metadata"].get("generation"), why, ports
        self._count = metrics.JOBS_ON_HOLD.labels(Reason.SPEC_NOT_READ.word)
        self._count.inc()
        log.error("%s/%s is left as it is: %s", raw["metadata"].get("namespace"), self.name, why)
        told, metadata = f"{Reason.SPEC_NOT_READ.sentence} {why}", Metadata.model_validate(raw["metadata"])
        ports.announcer.queue_event(metadata, EventReason.SPEC_NOT_READ, told, warning=True)
        self._writing = asyncio.create_task(self._write_condition(raw), name=f"unread status of {self.name}")

    def is_still_unreadable(self, raw: Json, why: str) -> bool:
        """Return whether this is still what cannot be read."""
        return (raw["metadata"].get("generation"), why) == (self._generation, self._why)

    async def stop_managing(self) -> None:
        """Stop saying it."""
        self._count.dec()
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)

    async def _write_condition(self, raw: Json) -> None:
        """Say it once, whatever becomes of the status meanwhile; the server's refusals are repeated for ever."""
        kube, metadata, backoff = self._ports.kube, raw["metadata"], Backoff()
        namespace = metadata["namespace"]
        while raw["metadata"]["uid"] == metadata["uid"]:
            patch = patch_for_unread(raw, self._why, self._ports.leadership.fence, self._ports.clock.now_milliseconds())
            if not patch:
                return
            try:
                await kube.patch_object(
                    names.PLURAL, namespace, self.name, patch, kind=PatchKind.JSON, subresource="status"
                )
            except ApiError as error:
                log.warning("the status of %s cannot be written yet: %s", self.name, error)
            else:
                return
            await self._ports.clock.sleep(backoff.next_delay())
            try:
                raw = await kube.get_object(names.PLURAL, namespace, self.name)
            except ApiError as error:
                if error.status == 404:
                    return
