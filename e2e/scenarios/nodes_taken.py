"""A node that somebody takes away from a training, and the training that goes on without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from e2e.harness.job import IMPATIENT, Job
from e2e.harness.rig import Rig, RigLayout
from hajob.api import constants as names

ITERATIONS = 1500
STEP_MILLISECONDS = 200.0
"""The training outlasts everything that is done to it on a slow machine, and is hurried then."""


def take(rig: Rig, job: Job, node_rank: int) -> str:
    """Somebody closes the node of a pod and deletes the pod; the node's name."""

    def is_placed() -> bool:
        return node_rank in pods_by_node_rank(job) and bool(job.node_of(node_rank))

    # An action is told before its pods are made.
    rig.plane.wait(f"node rank {node_rank} to have a pod on a node", is_placed)
    node = job.node_of(node_rank)
    rig.plane.kubectl("cordon", node)
    rig.plane.kubectl("--namespace", job.namespace, "delete", "pod", pod_of(job, node_rank), "--wait=false")
    return node


def pods_by_node_rank(job: Job) -> dict[int, str]:
    """Name of the newest pod of each node rank; no two pods have one name (docs/admin/pods.md)."""
    told = [pod["metadata"] for pod in job.pods("rank")]
    told.sort(key=lambda each: int(each["labels"][names.LABEL_INCARNATION]))
    return {int(each["labels"][names.LABEL_NODE_RANK]): each["name"] for each in told}


def pod_of(job: Job, node_rank: int) -> str:
    """Name of the newest pod of a node rank."""
    return pods_by_node_rank(job)[node_rank]


def shrunk_job(
    start_rig: Callable[[RigLayout], Rig],
    *,
    elastic: Mapping[str, object] | None = None,
    node_rank: int = 2,
    tensor: int = 2,
    pipeline: int = 1,
) -> tuple[Rig, Job, str]:
    """A training on four nodes that goes on without one of them, which somebody has closed.

    Args:
        start_rig: The fixture.
        elastic: More of `spec.elastic`.
        node_rank: Whose node it is.
        tensor: Tensor-parallel size.
        pipeline: Pipeline-parallel size.
    """
    rig = start_rig(RigLayout(chip_nodes=4))
    job = rig.submit(
        iterations=ITERATIONS,
        step_milliseconds=STEP_MILLISECONDS,
        spec=_impatient(elastic or {}, {"tensor": tensor, "pipeline": pipeline}),
        arguments=["--enable-elastic-training"],
        tensor=tensor,
        pipeline=pipeline,
    )
    job.wait_step(10)
    node = take(rig, job, node_rank)
    assert job.wait_incident(2)["action"] == "Shrink"
    job.wait_condition("Shrunk")
    return rig, job, node


def _impatient(elastic: Mapping[str, object], parallelism: Mapping[str, int]) -> dict[str, object]:
    """Nothing waits long, and a closed node alone is no reason to do anything."""
    recovery = {**IMPATIENT["recovery"], "cordonPolicy": "Ignore"}
    return {"recovery": recovery, "elastic": {**IMPATIENT["elastic"], **elastic}, "parallelism": dict(parallelism)}


def newest(job: Job) -> tuple[str, str]:
    """What the last incident does, and how it stands."""
    incident = job.incidents()[0]
    return incident["action"], incident["outcome"]


DRAIN = ("drain", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=100s")
