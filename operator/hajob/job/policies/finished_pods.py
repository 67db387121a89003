"""Ends what still runs in the pods of a complete job, so that their chips are free; the pods stay, for their logs.

A second container may run for ever, and ranks that died after the final checkpoint leave their start script waiting.
Kubernetes knows one way to end a pod without deleting it: `activeDeadlineSeconds`, which may be set on a running pod.
A start script that goes on after its ranks have finished is left alone until it ends.
"""

from __future__ import annotations

import logging
from typing import Final

from hajob.api.base import Json
from hajob.kube.batches import together
from hajob.kube.client import ApiError, Kube, PatchKind
from hajob.plan.state import JobPhase, JobState
from hajob.sources.pod import PodView

log = logging.getLogger(__name__)

_AT_ONCE: Final = 1
"""Least deadline that the API server accepts; every pod here is older."""


def is_idle(pod: PodView, state: JobState) -> bool:
    """Whether a rank pod of a complete job holds its node for nothing."""
    if state.phase is not JobPhase.COMPLETE or not pod.is_rank or pod.ended or pod.deleting:
        return False
    over = state.ending.over if state.ending is not None else ()
    return pod.exit_code is not None or pod.node_rank not in over


class FinishedPods:
    """The pods of one job that were ended."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._ended: set[str] = set()

    async def end(self, pods: list[PodView]) -> None:
        """Have the kubelets end these pods, each with its own grace.

        Raises:
            ApiError: for one of them at least; the caller tries again.
        """
        failures = await together(self._end, [pod for pod in pods if pod.uid not in self._ended])
        if failures:
            raise failures[0]

    async def _end(self, pod: PodView) -> ApiError | None:
        path = "/spec/activeDeadlineSeconds"
        ours: list[Json] = [
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "add", "path": path, "value": _AT_ONCE},
        ]
        try:
            await self._kube.patch("pods", pod.namespace, pod.name, ours, kind=PatchKind.JSON)
        except ApiError as error:
            if error.status != 404:
                return error
        self._ended.add(pod.uid)
        log.info("%s: pod %s is ended, the job is complete", pod.namespace, pod.name)
        return None
