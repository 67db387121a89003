"""The Workloads of a job: with them Hajob asks Kueue for quota (docs/admin/schedulers.md).

One for its ranks and its coordinator, and one for its spares, which may be taken alone. Both are the job's own: Kueue
need not know HATrainingJobs. Their pod sets are the pods as they will be made, so that every request is counted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.naming import hash_of_pod, owner_references
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from hajob.pods.spare_pod import build_spare_pod
from hajob.sources.workload import Placing, QueuePriority

RANKS: Final = "rank"
COORDINATOR: Final = "coordinator"
SPARES: Final = "spare"
_LOWEST_PRIORITY: Final = -(2**31)
"""Of a Workload, whose priority has 32 bits."""


def workload_name(job: HATrainingJob) -> str:
    """Name the Workload of the ranks and the coordinator: `hatrainingjob-<job>-<hash>`."""
    return f"hatrainingjob-{job.metadata.name}-{hash_of_pod(job.metadata.uid, 0)}"


def spare_workload_name(job: HATrainingJob) -> str:
    """Name the Workload of the spares."""
    return f"{workload_name(job)}-spares"


def build_workload(
    job: HATrainingJob, settings: PodSettings, queue: str, priority: QueuePriority, least_nodes: int = 0
) -> Json:
    """Build the Workload of a job's ranks and coordinator, ready to be created.

    Args:
        job: the job, with its UID.
        settings: of the installation, for the pods.
        queue: the LocalQueue.
        priority: of the Workload.
        least_nodes: fewest rank pods with which the job may be admitted; 0: only with all.
    """
    # Kueue counts the containers of these templates, Hajob's own among them, as the API server will.
    ranks = {
        "name": RANKS,
        "count": job.spec.num_nodes,
        "template": _template_of_pod_set(build_rank_pod(job, 0, 1, settings)),
    }
    if 0 < least_nodes < job.spec.num_nodes:
        ranks["minCount"] = least_nodes
    coordinator = {"name": COORDINATOR, "count": 1, "template": _template_of_pod_set(coordinator_pod(job, 1, settings))}
    return _build_object(job, workload_name(job), queue, priority, [ranks, coordinator])


def build_spare_workload(job: HATrainingJob, settings: PodSettings, queue: str, priority: QueuePriority) -> Json:
    """Build the Workload of a job's spares; `priority`: of its ranks."""
    template = _template_of_pod_set(build_spare_pod(job, 0, settings))
    spares = {"name": SPARES, "count": job.spec.scheduling.num_spare_nodes, "template": template}
    return _build_object(job, spare_workload_name(job), queue, priority_of_spares(priority), [spares])


def priority_of_spares(ranks: QueuePriority) -> QueuePriority:
    """Return the priority of the spares, one below the ranks': a preemptor takes them first.

    The class is left out, since its value is the ranks'. Below the lowest priority there is none.
    """
    return QueuePriority("", max(ranks.value - 1, _LOWEST_PRIORITY))


def _template_of_pod_set(pod: Json) -> Json:
    return {"spec": pod["spec"]}


def _build_object(job: HATrainingJob, name: str, queue: str, priority: QueuePriority, pod_sets: list[Json]) -> Json:
    spec: Json = {"queueName": queue, "priority": priority.value, "podSets": pod_sets}
    if priority.name:
        spec["priorityClassRef"] = priority_reference(priority.name)
    return {
        "apiVersion": names.KUEUE_API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": job.metadata.namespace,
            "labels": {
                names.LABEL_JOB_NAME: job.metadata.name,
                names.LABEL_JOB_UID: job.metadata.uid,
                names.LABEL_QUEUE_JOB_UID: job.metadata.uid,
            },
            "annotations": {names.ANNOTATION_DIGEST: _digest_of_pod_sets(pod_sets)},
            # With the label of the job's UID and without an owner Kueue takes it for finished at once.
            "ownerReferences": owner_references(job),
        },
        "spec": spec,
    }


def priority_reference(name: str) -> Json:
    """Return the reference to a WorkloadPriorityClass."""
    return {"group": names.KUEUE_GROUP, "kind": "WorkloadPriorityClass", "name": name}


def _digest_of_pod_sets(pod_sets: list[Json]) -> str:
    """Return a digest of what is asked for: the server's object has defaults that were never written."""
    return hashlib.sha256(json.dumps(pod_sets, sort_keys=True).encode()).hexdigest()[:16]


def place_job_in_queue(job: HATrainingJob, ranks: Placing, coordinator: Placing) -> HATrainingJob:
    """Return the job with what its queue says of the nodes of its rank pods and of its coordinator."""
    spec = job.spec
    template = _placed_template(spec.template, ranks)
    own = spec.coordinator
    selector = {**own.node_selector, **coordinator.node_selector}
    known = [one.to_json() for one in own.tolerations]
    placed = own.model_validate(
        {
            **own.to_json(),
            "nodeSelector": selector,
            "tolerations": _with_more_tolerations(known, coordinator.tolerations),
        }
    )
    return job.model_copy(update={"spec": spec.model_copy(update={"template": template, "coordinator": placed})})


def place_spares_in_queue(job: HATrainingJob, spares: Placing) -> HATrainingJob:
    """Return the job with what its queue says of the nodes of its spares."""
    return job.model_copy(
        update={"spec": job.spec.model_copy(update={"template": _placed_template(job.spec.template, spares)})}
    )


def _placed_template(template: Json, placing: Placing) -> Json:
    pod: Json = {**template["spec"]}
    if placing.node_selector:
        pod["nodeSelector"] = {**(pod.get("nodeSelector") or {}), **placing.node_selector}
    if placing.tolerations:
        pod["tolerations"] = _with_more_tolerations(pod.get("tolerations") or [], placing.tolerations)
    metadata: Json = {**(template.get("metadata") or {})}
    for field, more in (("labels", placing.labels), ("annotations", placing.annotations)):
        if more:
            metadata[field] = {**(metadata.get(field) or {}), **more}
    return {**template, "spec": pod, **({"metadata": metadata} if metadata else {})}


# A toleration that the template has already would be refused by nobody, and read by everybody.
def _with_more_tolerations(known: list[Json], more: Iterable[Mapping[str, Any]]) -> list[Json]:
    return [*known, *(dict(one) for one in more if dict(one) not in known)]
