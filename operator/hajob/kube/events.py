"""Kubernetes Events, as `kubectl describe` shows them.

They are best effort: posting never delays or fails a decision, and an Event that cannot be posted after a few tries is
dropped with a log line. The authoritative account is the status.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json, format_time
from hajob.api.job import Metadata
from hajob.backoff import Backoff
from hajob.clock import Clock, format_microtime
from hajob.domain.text import harmless_text
from hajob.kube.client import ApiError, Kube

log = logging.getLogger(__name__)

# What a leader that takes over a large cluster may post at once; beyond it Events are dropped, as they are best effort.
_QUEUE_LENGTH: Final = 1000
# A few seconds with their pauses: an Event that is older tells nobody anything that the status does not say by then.
_TRIES: Final = 4
_NOTE_BYTES: Final = 1024  # the API's own limit
_CUT: Final = "…"


class EventType(StrEnum):
    """The two types of Events in Kubernetes."""

    NORMAL = "Normal"
    WARNING = "Warning"


def build_event(
    job: Metadata, now_milliseconds: int, reason: str, note: str, *, type_: EventType, instance: str
) -> Json:
    """Build an Event about a job; the same words in the same millisecond make the same name."""
    # The time is part of the name, so that the same words later make another Event, and a repeated request does not.
    key = f"{job.uid}/{now_milliseconds}/{reason}/{note}"
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    # kubectl sorts by the times in whole seconds, which only the core group's Events may have.
    second = format_time(datetime.fromtimestamp(now_milliseconds // 1000, UTC))
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{job.name}.{digest}", "namespace": job.namespace},
        "eventTime": format_microtime(now_milliseconds),
        "firstTimestamp": second,
        "lastTimestamp": second,
        "count": 1,
        "type": str(type_),
        "reason": reason,
        "action": reason,
        "message": _shorten_note(harmless_text(note)),
        "source": {"component": names.OPERATOR_NAME},
        "reportingComponent": names.MANAGED_BY,
        "reportingInstance": instance,
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
        },
    }


def _shorten_note(note: str) -> str:
    """Shorten a text to the bytes that the API takes, in whole characters."""
    if len(note.encode()) <= _NOTE_BYTES:
        return note
    return note.encode()[: _NOTE_BYTES - len(_CUT.encode())].decode(errors="ignore") + _CUT


class Announcer:
    """Posts Events one after the other, in the background."""

    def __init__(self, kube: Kube, clock: Clock, instance: str) -> None:
        self._kube = kube
        self._clock = clock
        # The API takes no more characters of `reportingInstance`.
        self._instance = instance[:128]
        self._queue: asyncio.Queue[Json] = asyncio.Queue(_QUEUE_LENGTH)

    def queue_event(self, job: Metadata, reason: str, message: str, *, warning: bool = False) -> None:
        """Queue an Event; never wait, never fail.

        Args:
            job: metadata of the object of the Event.
            reason: one CamelCase word.
            message: the sentence.
            warning: an admin may have to look at it.
        """
        type_ = EventType.WARNING if warning else EventType.NORMAL
        now = self._clock.now_milliseconds()
        try:
            self._queue.put_nowait(build_event(job, now, reason, message, type_=type_, instance=self._instance))
        except asyncio.QueueFull:
            log.warning("%s: Event %s is dropped, too many wait", job.name, reason)

    async def post_queued(self) -> None:
        """Post until cancelled."""
        while True:
            made = await self._queue.get()
            try:
                await self._post_event(made)
            except Exception:  # a failed Event must not end the process
                log.exception("Event %s is dropped", made["reason"])

    async def _post_event(self, made: Json) -> None:
        backoff = Backoff(first=0.5)
        for _ in range(_TRIES):
            try:
                await self._kube.create_object("events", made["metadata"]["namespace"], made)
            except ApiError as error:
                # The name is made of the content, so it is this Event, posted by a try whose answer was lost.
                if error.status == 409:
                    return
                problem: ApiError = error
                if not error.may_pass:
                    break
                await self._clock.sleep(backoff.next_delay())
            else:
                return
        log.warning("Event %s about %s is not posted: %s", made["reason"], made["involvedObject"]["name"], problem)
