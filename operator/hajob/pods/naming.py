"""Names, labels and owners of everything that belongs to a job.

A pod's name carries a hash of the job's UID and the incarnation: nobody waits for a pod that is stuck in Terminating
on a dead node, and deleting a job and applying it again never collides. Whoever meets "already exists" compares
owner UID and incarnation (`is_same_pod`) before it calls that a success.
"""

import hashlib
from functools import lru_cache
from typing import Any, Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob

_HASH_LENGTH: Final = 8


@lru_cache(maxsize=256)  # a large job asks for the same one thousands of times in a row
def hash_of_pod(job_uid: str, incarnation: int) -> str:
    """Return eight characters that differ between jobs and incarnations."""
    return _short_hash(f"{job_uid}/{incarnation}")


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def rank_pod_name(job: HATrainingJob, node_rank: int, incarnation: int) -> str:
    """Name a rank pod: `<job>-<node rank>-<hash>`."""
    return f"{job.metadata.name}-{node_rank}-{hash_of_pod(job.metadata.uid, incarnation)}"


def spare_pod_name(job: HATrainingJob, number: int) -> str:
    """Name a spare's pod: `<job>-spare-<number>-<hash>`.

    The hash does not depend on an incarnation: a spare holds nothing of a training, so the next one may have its name.
    """
    return f"{job.metadata.name}-spare-{number}-{_short_hash(job.metadata.uid)}"


def hook_pod_name(job: HATrainingJob, node_rank: int, incarnation: int) -> str:
    """Name the pod of the work of one pause: `<job>-hook-<node rank>-<hash>`."""
    return f"{job.metadata.name}-hook-{node_rank}-{hash_of_pod(job.metadata.uid, incarnation)}"


def coordinator_pod_name(job: HATrainingJob, incarnation: int, *, apart: bool = True) -> str:
    """Name a coordinator pod: `<job>-coordinator-<hash>`; one that may share a node with a rank has another hash."""
    seed = job.metadata.uid if apart else f"{job.metadata.uid}/anywhere"
    return f"{job.metadata.name}-coordinator-{hash_of_pod(seed, incarnation)}"


def tls_secret_name(job: HATrainingJob) -> str:
    """Name the Secret with the certificates of the job; its pods mount it by this name.

    It carries the UID's hash like the pods: after a job was deleted and applied again, its predecessor's Secret stays
    until the garbage collector takes it away.
    """
    return f"{job.metadata.name}-hajob-tls-{_short_hash(job.metadata.uid)}"


def budget_name(job: HATrainingJob, role: str) -> str:
    """Name the PodDisruptionBudget of the job's pods of a role.

    Like the Secret, it may outlive its job for a moment.
    """
    return f"{job.metadata.name}-{role}-{_short_hash(job.metadata.uid)}"


def pod_group_name(job: HATrainingJob, role: str = names.ROLE_RANK) -> str:
    """Name the PodGroup of the job's pods of a role, rank or spare: `<job>-<hash>`, `<job>-spare-<hash>`.

    It is the same for every start of the job: what a queue of Volcano has let in once keeps its place.
    """
    middle = "" if role == names.ROLE_RANK else f"{role}-"
    return f"{job.metadata.name}-{middle}{_short_hash(job.metadata.uid)}"


def is_kueues_key(key: str) -> bool:
    """Return whether a label or annotation is Kueue's: with one it takes a pod for a job of its own, and holds it."""
    return key.startswith(f"{names.KUEUE_GROUP}/")


def labels_of_pod(job: HATrainingJob, role: str, incarnation: int) -> dict[str, str]:
    """Return the labels of every pod of the job, with those that tools made for other operators look for."""
    return {
        names.LABEL_JOB_NAME: job.metadata.name,
        names.LABEL_JOB_UID: job.metadata.uid,
        names.LABEL_ROLE: role,
        names.LABEL_INCARNATION: str(incarnation),
        names.LABEL_KUBEFLOW_JOB_NAME: job.metadata.name,
        names.LABEL_KUBEFLOW_OPERATOR_NAME: names.OPERATOR_NAME,
        names.LABEL_PLAIN_JOB_NAME: job.metadata.name,
    }


def owner_references(job: HATrainingJob) -> list[Json]:
    """Build the owner references: the job owns what is made for it, so that deleting it leaves nothing."""
    return [
        {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": job.metadata.name,
            "uid": job.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def is_same_pod(existing: dict[str, Any], wanted: Json) -> bool:
    """Return whether an existing pod of the wanted one's name is the wanted one: same owner UID, same incarnation."""

    def identity(pod: dict[str, Any]) -> tuple[object, object]:
        metadata = pod.get("metadata", {})
        owners = [owner.get("uid") for owner in metadata.get("ownerReferences") or []]
        return owners, (metadata.get("labels") or {}).get(names.LABEL_INCARNATION)

    return identity(existing) == identity(wanted)
