"""The PodDisruptionBudgets of a job: one for its rank pods, one for its coordinator.

`minAvailable` is a number: shares and `maxUnavailable` need an owner with a scale, which a HATrainingJob is not. A pod
that is not ready may always be evicted: nothing is lost with it, and a drain must not wait for it.
"""

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.pods.naming import budget_name, owner_references


def disruption_budget(job: HATrainingJob, role: str, least: int) -> Json:
    """Build the PodDisruptionBudget of the job's pods of a role, ready to be created.

    Args:
        job: the job, with its UID.
        role: of the pods (`hajob.api.constants.ROLE_RANK`, `ROLE_COORDINATOR`).
        least: number of ready pods that an eviction has to leave.
    """
    selector = {names.LABEL_JOB_UID: job.metadata.uid, names.LABEL_ROLE: role}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": budget_name(job, role),
            "namespace": job.metadata.namespace,
            "labels": {names.LABEL_JOB_NAME: job.metadata.name, names.LABEL_JOB_UID: job.metadata.uid},
            "ownerReferences": owner_references(job),
        },
        "spec": {
            "minAvailable": least,
            "selector": {"matchLabels": selector},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
