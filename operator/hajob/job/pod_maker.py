"""Makes the missing pods of one job, many at a time, and only as long as the job is to have any."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from hajob import metrics
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.capacity.super_pods import super_pod_of_node
from hajob.domain.errors import MALFORMED
from hajob.job.ports import Ports
from hajob.job.snapshot import JobSnapshot, JobSnapshots
from hajob.job.wants import MakePods
from hajob.kube.batches import act_cautiously
from hajob.kube.client import ALREADY_EXISTS, ApiError
from hajob.plan.placements import CoordinatorPlacement, Placement
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.naming import is_same_pod
from hajob.pods.rank_pod import build_rank_pod
from hajob.sources.creation import is_over_quota

log = logging.getLogger(__name__)


class PodMaker:
    """The maker of one job's pods.

    Attributes:
        ended: no more pods are made; what waits for its turn is dropped.
    """

    def __init__(self, snapshots: JobSnapshots, ports: Ports) -> None:
        self._snapshots, self._ports = snapshots, ports
        self.ended = False

    async def make_pods(self, wanted: MakePods) -> None:
        """Make these pods (hajob.kube.batches); the coordinator is not kept by what keeps rank pods.

        Raises:
            ApiError: the first refusal: if the server refuses one pod, it would refuse the next ones as well.
        """
        ranks = [one for one in wanted.placements if isinstance(one, Placement)]
        coordinators = [one for one in wanted.placements if isinstance(one, CoordinatorPlacement)]
        errors = [error for row in (ranks, coordinators) if row for error in await self._make_similar_pods(wanted, row)]
        if errors:
            # Where nobody answers the server has refused nothing, whatever it said of the pods before.
            error = min(errors, key=lambda one: bool(one.status))
            if error.status:
                code = "QuotaExceeded" if is_over_quota(error.status, error.message) else error.reason
                metrics.NOT_CREATED.labels(code).inc()
            raise error

    async def _make_similar_pods(
        self, wanted: MakePods, row: Sequence[Placement | CoordinatorPlacement]
    ) -> list[ApiError]:
        snapshot = self._snapshots.take_snapshot()
        job, refused = snapshot.job_as_started, snapshot.refused_nodes(len(row))

        async def make_one(missing: Placement | CoordinatorPlacement) -> ApiError | None:
            try:
                # What is not sent yet is not built yet: a thousand pods would take memory, and the loop's time.
                async with self._ports.pace.creations:
                    if not self.ended:
                        manifest = self._build_pod(snapshot, wanted, missing, refused)
                        pod = await self._create_pod(job, manifest)
                        self._snapshots.pods.note_created(pod)
            except ApiError as error:
                return error
            except MALFORMED as error:
                return ApiError(422, "Invalid", f"spec.template: {error}")
            return None

        return await act_cautiously(make_one, row)

    def _build_pod(
        self,
        snapshot: JobSnapshot,
        wanted: MakePods,
        missing: Placement | CoordinatorPlacement,
        refused: Collection[str],
    ) -> Json:
        """Build the missing pod; `refused`: nodes where no rank pod is placed, and rather no coordinator.

        A gated pod may wait for long, so it does not exclude the nodes that its placement avoids now.
        """
        settings, cluster, job = self._ports.pod_settings, self._ports.cluster, snapshot.job_as_started
        if isinstance(missing, CoordinatorPlacement):
            chosen = [one.to_json() for one in job.spec.coordinator.tolerations]
            silent = {*cluster.silent_nodes(), *cluster.nodes_drained_for(chosen)}
            return coordinator_pod(job, missing.incarnation, settings, refused, silent=silent, apart=missing.apart)
        placement = () if wanted.gated else set(missing.avoid).difference(wanted.returned)
        avoid = tuple(sorted({*placement, *refused}))
        # A gated pod is held to a super pod when it is ungated: what room there is may be another one by then.
        rank, super_pod = missing.node_rank, "" if wanted.gated else snapshot.super_pod_for(missing.node_rank)
        # A spare of another super pod is of no use to the block.
        is_near = not super_pod or super_pod_of_node(cluster.nodes.get(missing.place)) == super_pod
        return build_rank_pod(
            job,
            rank,
            missing.incarnation,
            settings,
            avoid,
            place=missing.place if is_near else "",
            gated=wanted.gated,
            super_pod=super_pod,
        )

    async def _create_pod(self, job: HATrainingJob, manifest: Json) -> Json:
        name, kube = manifest["metadata"]["name"], self._ports.kube
        try:
            pod = await kube.create_object("pods", job.metadata.namespace, manifest)
        except ApiError as error:
            if error.status != 409 or error.reason != ALREADY_EXISTS:
                raise
            pod = await kube.get_object("pods", job.metadata.namespace, name)
            if not is_same_pod(pod, manifest):
                raise
        log.info("%s/%s: pod %s is made", job.metadata.namespace, job.metadata.name, name)
        return pod
