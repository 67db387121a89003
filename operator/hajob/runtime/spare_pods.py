"""Holds the spare nodes of one job, and hands them over to the rank pods that are to go there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from hajob.objects.naming import spare_pod_name
from hajob.objects.spare_pod import spare_pod
from hajob.runtime.backoff import Retry
from hajob.runtime.job_memory import JobMemory
from hajob.runtime.job_places import JobPlaces
from hajob.runtime.kube import ApiError, PatchKind
from hajob.runtime.pod_reconciler import PodReconciler
from hajob.runtime.ports import Ports
from hajob.scheduling.spares import SpareTurn, look, successors
from hajob.sources.creation import not_created
from hajob.sources.pod import PodView

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0
LONGEST_RETRY_SECONDS: Final = 300.0
"""Between two tries to make a spare's pod that the server refuses: a spare is no hurry."""
PATIENCE_SECONDS: Final = 3.0
"""A scheduler that has said nothing of a pod for so long keeps no node for it: the spare goes without."""
STUCK_SECONDS: Final = 15.0
"""A pod that has not got its spare's node for so long does not get it any more: somebody else has it."""


class SparePods:
    """The pods of the spares of one job.

    Args:
        memory: of the job.
        places: of the job.
        ports: to the world.
        reconciler: deletes pods.
        wake: called when there may be something to do.
    """

    def __init__(
        self,
        memory: JobMemory,
        places: JobPlaces,
        ports: Ports,
        reconciler: PodReconciler,
        wake: Callable[[], None],
    ) -> None:
        self._memory, self._places, self._ports, self._reconciler = memory, places, ports, reconciler
        self._wake = wake
        self._retry = Retry(ports.clock, wake, RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        self._since: dict[str, float] = {}

    def close(self) -> None:
        """Nothing is done any more."""
        self._retry.cancel()

    async def reconcile(self) -> None:
        """Bring the spares to what they should be.

        Raises:
            ApiError: the server cannot be reached; the caller tries again.
        """
        memory, pods = self._memory, self._places.pods.pods
        desired = [spare_pod_name(memory.job, number) for number in range(memory.job.spec.scheduling.num_spare_nodes)]
        if not desired and not any(pod.is_spare or pod.place for pod in pods.values()):
            return
        turn = look(memory.state, desired, pods, self._places.may_hold)
        for pod in turn.nominate:
            await self._nominate(pod)
        for pod in (*turn.surplus, *self._impatient()):
            await self._reconciler.delete(pod)
        await self._create(turn, desired)

    async def _nominate(self, pod: PodView) -> None:
        """Have the scheduler keep the spare's node for this pod; where that is not allowed, do without."""
        body = {"status": {"nominatedNodeName": pod.place}}
        try:
            await self._ports.kube.patch(
                "pods", pod.namespace, pod.name, body, kind=PatchKind.MERGE, subresource="status"
            )
        except ApiError as error:
            log.warning("%s: %s is not kept for pod %s: %s", self._memory.title, pod.place, pod.name, error)
            if not error.status:
                raise

    def _impatient(self) -> list[PodView]:
        """Spares that waited too long for a scheduler's word, and pods that did not get the node of one."""
        now, pods = self._ports.clock.monotonic(), self._places.pods.pods
        waiting = {name: pod for name, pod in successors(pods).items() if not pod.gated}
        known, self._since = self._since, {pod.uid: self._since.get(pod.uid, now) for pod in waiting.values()}
        if self._since.keys() - known.keys():
            for seconds in (PATIENCE_SECONDS, STUCK_SECONDS):
                self._ports.clock.call_later(seconds, self._wake)
        late = {name for name, pod in waiting.items() if now - self._since[pod.uid] >= PATIENCE_SECONDS}
        stuck = [pod for pod in waiting.values() if pod.unschedulable and now - self._since[pod.uid] >= STUCK_SECONDS]
        return [*stuck, *(pod for pod in pods.values() if pod.is_spare and pod.node_name in late and not pod.deleting)]

    async def _create(self, turn: SpareTurn, desired: list[str]) -> None:
        if turn.missing and not self._retry.due:
            return
        refused, job = None, self._memory.job
        for name in turn.missing:
            manifest = spare_pod(job, desired.index(name), self._ports.pod_settings, self._places.refused(1))
            try:
                await self._ports.kube.create("pods", job.metadata.namespace, manifest)
            except ApiError as error:
                if not error.status:
                    raise
                if error.reason != "AlreadyExists":
                    refused = not_created(error.status, error.reason, error.message)
                    break
        if refused is not None:
            self._retry.failed()
        else:
            self._retry.succeeded()
        self._places.pods.spares_not_created = refused
