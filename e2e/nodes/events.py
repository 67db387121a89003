"""Kubernetes Events of a node about its pods, so that ``kubectl describe pod`` tells what happened.

Best effort and never in the way: an Event is posted in the background, and one that cannot be posted is dropped.
"""

from __future__ import annotations

import asyncio
import itertools
import time

from e2e.nodes.api import NodeApiClient, NodeApiError
from e2e.nodes.config import JsonObject
from e2e.nodes.states import timestamp


class EventPoster:
    """Posts Events in the name of a node."""

    def __init__(self, client: NodeApiClient, node: str, address: str) -> None:
        self._client = client
        self._node = node
        self._address = address
        self._numbers = itertools.count(time.time_ns())
        self._last: dict[tuple[str, str, str], float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def post(self, pod: JsonObject, reason: str, message: str, *, warning: bool = False) -> None:
        """Tell something about ``pod``; the same words are posted again after a minute only."""
        key = (pod["metadata"]["uid"], reason, message)
        now = time.monotonic()
        if now - self._last.get(key, -60.0) < 60.0:
            return
        self._last = {old: when for old, when in self._last.items() if now - when < 60.0} | {key: now}
        task = asyncio.get_running_loop().create_task(self._post(event(pod, reason, message, self._node, warning)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _post(self, body: JsonObject) -> None:
        body["metadata"]["name"] += f".{next(self._numbers):x}"
        try:
            await self._client.request("POST", f"/api/v1/namespaces/{body['metadata']['namespace']}/events", body)
        except NodeApiError:
            return


def event(pod: JsonObject, reason: str, message: str, node: str, warning: bool) -> JsonObject:
    """The Event object; its name still needs a unique ending."""
    metadata = pod["metadata"]
    now = timestamp(time.time())
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "reason": reason,
        "message": message,
        "type": "Warning" if warning else "Normal",
        "source": {"component": "kubelet", "host": node},
        "reportingComponent": "kubelet",
        "reportingInstance": node,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
