"""Holds the spare nodes of one job, and hands them over to rank pods."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice
from typing import Final

from hajob.api import constants as names
from hajob.api.enums import SpareMode
from hajob.backoff import Retry
from hajob.capacity.spares import SpareTurn, look, successors
from hajob.job.memory import JobMemory
from hajob.job.places import JobPlaces
from hajob.job.pod_reconciler import PodReconciler
from hajob.job.ports import Ports
from hajob.job.seen_since import SeenSince
from hajob.kube.client import ALREADY_EXISTS, ApiError, PatchKind
from hajob.plan.placements import Placement
from hajob.pods.naming import rank_pod_name, spare_pod_name
from hajob.pods.spare_pod import spare_pod
from hajob.sources.creation import NotCreated, not_created
from hajob.sources.pod import PodView

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0
LONGEST_RETRY_SECONDS: Final = 300.0
"""Between two tries to make a spare's pod that the server refuses: a spare is no hurry."""
PATIENCE_SECONDS: Final = 3.0
"""A scheduler that has said nothing of a pod for so long keeps no node for it: the spare goes without."""
_ENDED: Final = "Ended"
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

    Attributes:
        adopted: names of the rank pods that need not be made: a warm spare became each of them.
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
        self._retry = Retry(ports.clock, wake, RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        self._waiting = SeenSince(ports.clock, wake)
        self.adopted: set[str] = set()

    def close(self) -> None:
        """Stop all timers."""
        self._retry.cancel()

    async def reconcile(self) -> None:
        """Create and delete spares as desired.

        Raises:
            ApiError: the server cannot be reached; the caller tries again.
        """
        memory, pods = self._memory, self._places.pods.pods
        desired = self._desired()
        if not desired and not any(pod.is_spare or pod.place for pod in pods.values()):
            return
        warm = memory.job.spec.scheduling.spare_mode is SpareMode.WARM
        turn = look(memory.state, list(desired), pods, self._places.may_hold, warm=warm)
        for pod in turn.nominate:
            await self._nominate(pod)
        for pod in (*turn.surplus, *self._impatient()):
            await self._reconciler.delete(pod)
        await self._create(turn, desired)

    def _desired(self) -> dict[str, int]:
        """Return name and number of each spare; skip a name that a rank pod has because it was a spare."""
        job, pods = self._memory.job, self._places.pods.pods
        numbered = ((spare_pod_name(job, number), number) for number in count())
        free = ((name, number) for name, number in numbered if name not in pods or pods[name].is_spare)
        return dict(islice(free, job.spec.scheduling.num_spare_nodes))

    async def adopt(self, missing: Sequence[Placement]) -> tuple[Placement, ...]:
        """Turn warm spares into the missing pods of their nodes; return those that are still to be created.

        Raises:
            ApiError: the server cannot be reached; the caller tries again.
        """
        ready = {pod.node_name: pod for pod in self._places.spares() if pod.warm}
        return tuple([one for one in missing if not await self._adopts(one, ready)])

    async def _adopts(self, placement: Placement, ready: Mapping[str, PodView]) -> bool:
        if (pod := ready.get(placement.place)) is None:
            return False
        labels = {
            names.LABEL_ROLE: names.ROLE_RANK,
            names.LABEL_NODE_RANK: str(placement.node_rank),
            names.LABEL_INCARNATION: str(placement.incarnation),
        }
        index = {names.ANNOTATION_RANK_INDEX: str(placement.node_rank)}
        body = {"metadata": {"uid": pod.uid, "labels": labels, "annotations": index}}
        try:
            await self._ports.kube.patch("pods", pod.namespace, pod.name, body, kind=PatchKind.MERGE)
        except ApiError as error:
            log.warning("%s: spare %s is not taken: %s", self._memory.title, pod.name, error)
            if not error.status:
                raise
            return False
        log.info("%s: spare %s is node rank %d", self._memory.title, pod.name, placement.node_rank)
        self.adopted.add(rank_pod_name(self._memory.job, placement.node_rank, placement.incarnation))
        return True

    async def _nominate(self, pod: PodView) -> None:
        """Have the scheduler keep the spare's node for this pod; ignore a refusal."""
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
        """Return spares that the scheduler has ignored for too long, and pods that did not get a spare's node."""
        pods = self._places.pods.pods
        waiting = {name: pod for name, pod in successors(pods).items() if not pod.gated}
        ages = self._waiting.look((pod.uid for pod in waiting.values()), PATIENCE_SECONDS, STUCK_SECONDS)
        late = {name for name, pod in waiting.items() if ages[pod.uid] >= PATIENCE_SECONDS}
        stuck = [pod for pod in waiting.values() if pod.unschedulable and ages[pod.uid] >= STUCK_SECONDS]
        return [*stuck, *(pod for pod in pods.values() if pod.is_spare and pod.node_name in late and not pod.deleting)]

    async def _create(self, turn: SpareTurn, desired: Mapping[str, int]) -> None:
        failed = next((pod for pod in turn.surplus if pod.ended and pod.name in desired), None)
        if failed is not None:
            self._refused(NotCreated(f"pod {failed.name} has ended: {failed.trouble or failed.phase}", code=_ENDED))
        if turn.missing and not self._retry.due:
            return
        refused, job = None, self._memory.job
        for name in turn.missing:
            manifest = spare_pod(job, desired[name], self._ports.pod_settings, self._places.not_to_hold())
            try:
                await self._ports.kube.create("pods", job.metadata.namespace, manifest)
            except ApiError as error:
                if not error.status:
                    raise
                if error.reason != ALREADY_EXISTS:
                    refused = not_created(error.status, error.reason, error.message)
                    break
        if refused is not None:
            self._refused(refused)
        elif len(self._places.spares()) == len(desired):
            self._places.pods.spares_not_created = None
            self._retry.succeeded()
        elif turn.missing and (before := self._places.pods.spares_not_created) and before.code != _ENDED:
            self._places.pods.spares_not_created = None

    def _refused(self, why: NotCreated) -> None:
        """Note why a spare's pod is missing, and delay the next attempt, longer each time."""
        self._retry.failed()
        self._places.pods.spares_not_created = why
