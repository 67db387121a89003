"""Makes the pods of one job the desired ones: creates the missing, deletes the surplus.

A level, not a list of commands: it compares the desired pods with the cached ones, whoever changed either. The job
controller calls it only after the status that holds the desired pods has been acknowledged, and a pod's name carries
its incarnation, so doing it twice, or again after a crash, comes to the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.job.pod_index import old_ranks
from hajob.job.ports import Ports
from hajob.job.snapshot import JobSnapshots
from hajob.kube.batches import cautiously
from hajob.kube.client import ALREADY_EXISTS, ApiError
from hajob.plan.placements import CoordinatorPlacement, Placement, Placements
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.naming import coordinator_pod_name, is_same_pod, rank_pod_name
from hajob.pods.rank_pod import rank_pod
from hajob.sources.creation import NotCreated, not_created
from hajob.sources.pod import PodView

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Difference:
    """The creations and deletions that lead to the desired pods."""

    rank_pods: tuple[Placement, ...]
    coordinators: tuple[CoordinatorPlacement, ...]
    surplus: tuple[PodView, ...]

    @property
    def lacks_pods(self) -> bool:
        """Whether pods have to be created."""
        return bool(self.rank_pods or self.coordinators)


def difference(job: HATrainingJob, desired: Placements, pods: Mapping[str, PodView], gone: Iterable[str]) -> Difference:
    """Compare desired pods and cache.

    Args:
        job: the job.
        desired: the pods that should exist.
        pods: cached pods of the job by name.
        gone: names that are not made again: of pods that vanished, their loss is a fact, and of those just made.
    """
    placed = {placed_pod_name(job, placement): placement for placement in desired}
    relieved = desired.coordinator.relieves if desired.coordinator is not None else 0
    known = {*pods, *gone, *(_rank_name(job, pod) for pod in pods.values() if pod.warm)}
    missing = [placement for name, placement in placed.items() if name not in known]
    return Difference(
        rank_pods=tuple(one for one in missing if isinstance(one, Placement)),
        coordinators=tuple(one for one in missing if isinstance(one, CoordinatorPlacement)),
        surplus=tuple(
            pod
            for name, pod in pods.items()
            if not pod.deleting
            and not pod.is_spare
            and not pod.is_hook
            and name not in placed
            and not (relieved and pod.role == names.ROLE_COORDINATOR and pod.incarnation == relieved)
            and _rank_name(job, pod) not in placed
        ),
    )


def _rank_name(job: HATrainingJob, pod: PodView) -> str:
    """Return the name that a former spare would have had as a rank pod; empty for any other pod."""
    return rank_pod_name(job, pod.node_rank, pod.incarnation) if pod.is_rank and pod.warm else ""


def in_turn(todo: Difference, base: int, pods: Mapping[str, PodView], passed_over: Container[str]) -> Difference:
    """Limit a new start of a whole job to one new rank pod for each old one that is gone.

    Created earlier, a pod would need a node that an old one still has: it waits in the scheduler's queue, or preempts a
    foreign pod of a lower priority.

    Args:
        todo: all that is to be done.
        base: incarnation of the start.
        pods: cached pods of the job by name.
        passed_over: UIDs of old pods that new ones no longer wait for.
    """
    old = sum(pod.uid not in passed_over for pod in old_ranks(base, pods))
    new = [one for one in todo.rank_pods if one.incarnation == base]
    held_back = set(new[max(len(new) - old, 0) :])
    return replace(todo, rank_pods=tuple(one for one in todo.rank_pods if one not in held_back)) if held_back else todo


def placed_pod_name(job: HATrainingJob, placement: Placement | CoordinatorPlacement) -> str:
    """Return the name of the pod that is made for this placement."""
    if isinstance(placement, CoordinatorPlacement):
        return coordinator_pod_name(job, placement.incarnation, apart=placement.apart)
    return rank_pod_name(job, placement.node_rank, placement.incarnation)


class PodReconciler:
    """Carries differences out, for one job.

    Args:
        snapshots: of the job.
        ports: to the world.
    """

    def __init__(self, snapshots: JobSnapshots, ports: Ports) -> None:
        self._snapshots, self._ports = snapshots, ports
        self._kube, self._settings = ports.kube, ports.pod_settings

    def manifest(
        self,
        job: HATrainingJob,
        missing: Placement | CoordinatorPlacement,
        refused: Collection[str] = (),
        *,
        gated: bool = False,
        returned: Collection[str] = (),
    ) -> Json:
        """Build the missing pod.

        A gated pod may wait for long, so it does not exclude the nodes that its placement avoids now.

        Args:
            job: the job.
            missing: which pod.
            refused: nodes where no rank pod is placed, beside those of its placement, and rather no coordinator.
            gated: whether the pod gets the scheduling gate.
            returned: nodes that its placement avoids and need not any more.
        """
        if isinstance(missing, CoordinatorPlacement):
            chosen = [one.to_json() for one in job.spec.coordinator.tolerations]
            silent = {*self._ports.cluster.silent_nodes(), *self._ports.cluster.drained_for(chosen)}
            apart = missing.apart
            return coordinator_pod(job, missing.incarnation, self._settings, refused, silent=silent, apart=apart)
        placement = () if gated else set(missing.avoid).difference(returned)
        avoid = tuple(sorted({*placement, *refused}))
        place = missing.place
        return rank_pod(job, missing.node_rank, missing.incarnation, self._settings, avoid, place=place, gated=gated)

    async def create_missing(
        self,
        job: HATrainingJob,
        todo: Difference,
        made: Callable[[Json], None],
        goes_on: Callable[[], bool] = lambda: True,
        *,
        gated: bool = False,
        returned: Collection[str] = (),
    ) -> NotCreated | None:
        """Create many at a time (hajob.kube.batches); the coordinator is not kept by what keeps rank pods.

        Args:
            job: the job.
            todo: with the missing pods.
            made: called with each created pod, as the server answered.
            goes_on: called before each creation; False ends the creations.
            gated: whether rank pods get the scheduling gate.
            returned: nodes that placements avoid and need not any more.

        Returns:
            Why pods are still missing; None when all exist.

        Raises:
            ApiError: the server cannot be reached; the caller tries again.
        """
        avoid = self._snapshots.take().refused_nodes
        build = partial(self.manifest, job, gated=gated, returned=returned)
        rows = [(row, partial(build, refused=avoid(len(row)))) for row in (todo.rank_pods, todo.coordinators) if row]
        refused = [await self._create_row(job, row, build_one, made, goes_on) for row, build_one in rows]
        return next(filter(None, refused), None)

    async def _create_row(
        self,
        job: HATrainingJob,
        row: Sequence[Placement | CoordinatorPlacement],
        build: Callable[[Placement | CoordinatorPlacement], Json],
        made: Callable[[Json], None],
        goes_on: Callable[[], bool],
    ) -> NotCreated | None:
        """Create similar pods: if the server refuses one, it would refuse the next ones as well."""

        async def create(missing: Placement | CoordinatorPlacement) -> NotCreated | ApiError | None:
            try:
                async with self._ports.creations:
                    if not goes_on():
                        return None
                    pod = await self._create(job, build(missing))
                made(pod)
            except ApiError as error:
                return not_created(error.status, error.reason, error.message) if error.status else error
            except (ValueError, KeyError, TypeError, AttributeError) as error:  # a template may hold anything anywhere
                return NotCreated(f"spec.template: {error}", code="Invalid")
            return None

        refused = await cautiously(create, row)
        if away := [one for one in refused if isinstance(one, ApiError)]:
            raise away[0]
        return next((one for one in refused if isinstance(one, NotCreated)), None)

    async def _create(self, job: HATrainingJob, manifest: Json) -> Json:
        name = manifest["metadata"]["name"]
        try:
            pod = await self._kube.create("pods", job.metadata.namespace, manifest)
        except ApiError as error:
            if error.status != 409 or error.reason != ALREADY_EXISTS:
                raise
            pod = await self._kube.get("pods", job.metadata.namespace, name)
            if not is_same_pod(pod, manifest):
                raise
        log.info("%s/%s: pod %s is made", job.metadata.namespace, job.metadata.name, name)
        return pod
