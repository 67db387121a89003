"""Brings a pod's record to the API server: the latest state, one write at a time, again until it is there."""

from __future__ import annotations

import asyncio
import logging
import time

from e2e.nodes.api import STRATEGIC, NodeApiClient, NodeApiError
from e2e.nodes.config import JsonObject
from e2e.nodes.states import PodRecord, conditions_by_type, status

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.2


def pod_path(pod: JsonObject) -> str:
    """The path of a pod object."""
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def is_gone(error: NodeApiError) -> bool:
    """Whether a request with the pod's UID failed because that pod is gone; another conflict is worth a retry.

    A deletion with another UID is a 409, a patch of an object with another UID a 422.
    """
    return error.status == 404 or (error.status in {409, 422} and "uid" in str(error).lower())


class PodWriter:
    """Writes the status of one pod."""

    def __init__(self, client: NodeApiClient, record: PodRecord) -> None:
        self._client = client
        self._record = record
        self._dirty = asyncio.Event()
        self._idle = asyncio.Event()
        self._last: JsonObject = {}
        self._conditions = conditions_by_type((record.pod.get("status") or {}).get("conditions") or [])
        self._task: asyncio.Task[None] | None = None
        self._gone = False

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._write_all())
        self.changed()

    def stop(self) -> None:
        """The object is gone or the node ends: write no more."""
        self._gone = True
        self._idle.set()
        if self._task:
            self._task.cancel()

    def restart(self) -> None:
        """After a power failure: whatever was on its way may be lost, so write again."""
        if self._gone:
            return
        if self._task:
            self._task.cancel()
        self._last = {}
        self.start()

    def changed(self) -> None:
        """The record has changed."""
        self._idle.clear()
        self._dirty.set()

    async def flush(self) -> None:
        """Wait until the server has the record as it is now, or the object is gone."""
        if not self._gone:
            await self._idle.wait()

    async def remove(self) -> None:
        """Remove the object for good, as a node does when nothing of the pod runs any more."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._record.pod["metadata"]["uid"]}}
        while not self._gone:
            try:
                await self._client.request("DELETE", pod_path(self._record.pod), body)
                self._gone = True
            except NodeApiError as error:
                if is_gone(error):
                    self._gone = True
                else:
                    log.warning("%s", error)
                    await asyncio.sleep(_RETRY_SECONDS)

    async def _write_all(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            current = status(self._record, self._conditions, time.time())
            if current != self._last and not await self._write(current):
                continue
            if self._gone:
                self._idle.set()
                return
            if not self._dirty.is_set():
                self._idle.set()

    async def _write(self, current: JsonObject) -> bool:
        body = {"metadata": {"uid": self._record.pod["metadata"]["uid"]}, "status": current}
        path = pod_path(self._record.pod) + "/status"
        try:
            await self._client.request("PATCH", path, body, content_type=STRATEGIC)
        except NodeApiError as error:
            if is_gone(error):
                self._gone = True
                return True
            log.warning("%s", error)
            await asyncio.sleep(_RETRY_SECONDS)
            self._dirty.set()
            return False
        self._last = current
        self._conditions = conditions_by_type(current["conditions"])
        return True
