"""Why a pod that has a node does not start, where only an Event says so: a volume that cannot be mounted.

The status of such a pod says that its containers are being created, for as long as it lasts. The leader asks for the
newest warning about it, and the pod counts as one in trouble with these words. That decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from hajob.api.base import Json
from hajob.app.core import OperatorCore
from hajob.capacity.caches import Caches
from hajob.clock import Clock
from hajob.kube.client import ApiError, Kube
from hajob.sources.pod import PodView
from hajob.sources.reading import last_time_of_event, text

log = logging.getLogger(__name__)

_FORBIDDEN: Final = 403
LOOK_SECONDS: Final = 10.0
SILENT_MS: Final = 20_000
"""A pod whose image is there has started by then; one that pulls an image has no warning."""
MOST_PODS: Final = 8
"""Jobs of which a pod is asked about at a time."""
_TOLD_OTHERWISE: Final = frozenset({"BackOff", "FailedScheduling", "Unhealthy"})
"""Warnings about what the status of a pod says itself."""


class PodWarnings:
    """Looks for warnings about pods that do not start.

    Args:
        kube: of the leader.
        clock: the machine's.
        caches: have the pods.
        core: is told of what is found.
    """

    def __init__(self, kube: Kube, clock: Clock, caches: Caches, core: OperatorCore) -> None:
        self._kube, self._clock, self._caches, self._core = kube, clock, caches, core
        self._forbidden: set[str] = set()
        self._looks = 0

    async def look_for_ever(self) -> None:
        """Look now and then."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            await self.look_once()

    async def look_once(self) -> None:
        """Ask about a pod of each job that does not start."""
        for pod in list(self._silent_pods())[:MOST_PODS]:
            about = f"involvedObject.uid={pod.uid},type=Warning"
            try:
                pages = [page async for page in self._kube.list_pages("events", pod.namespace, field_selector=about)]
            except ApiError as error:
                self._note_refusal(pod.namespace, error)
                continue
            warnings = (event for page in pages for event in page.items if _explains_start(event))
            newest = max(warnings, key=last_time_of_event, default=None)
            current = self._caches.pods.get(pod.key)
            # It may have started, or gone, while the server was asked.
            if newest is not None and current is not None and current == pod:
                reason = text(newest.get("reason"))
                told = replace(pod, trouble=f"{reason}: {text(newest.get('message'))}", trouble_code=reason)
                self._core.handle_changed_pod(told, deleted=False)

    def _silent_pods(self) -> Iterator[PodView]:
        """Yield of each job one of the pods that have a node and do not start, another one at each look."""
        now_ms = self._clock.now_milliseconds()
        of_job: dict[str, list[PodView]] = {}
        for pod in self._caches.pods.values():
            is_silent = pod.phase == "Pending" and pod.started_ms is not None and now_ms - pod.started_ms >= SILENT_MS
            if not is_silent or pod.deleting or pod.trouble or pod.namespace in self._forbidden:
                continue
            if pod.job_uid in self._core.controllers:
                of_job.setdefault(pod.job_uid, []).append(pod)
        # A server has no index of Events: each question costs it a look at all of the namespace's.
        self._looks += 1
        yield from (pods[self._looks % len(pods)] for pods in of_job.values())

    def _note_refusal(self, namespace: str, error: ApiError) -> None:
        if error.status == _FORBIDDEN:
            self._forbidden.add(namespace)
            log.warning("why pods of %s do not start cannot be read: the right to list events is missing", namespace)


def _explains_start(event: Json) -> bool:
    return event.get("type") == "Warning" and text(event.get("reason")) not in _TOLD_OTHERWISE
