"""Jobs in a queue of Kueue, and what its admins and other jobs do to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from e2e.harness.job import Job, manifest
from e2e.harness.rig import RIG_LABEL, Rig
from e2e.kueue.crds import API, GROUP
from e2e.kueue.launch import KueueStandIn, Object
from e2e.trainer import proof
from hajob.api import constants as names

STEPS: Final = 300
CHIPS_OF_FOUR_NODES: Final = 8


def submit(
    rig: Rig,
    name: str,
    nodes: int = 4,
    *,
    priority: str = "",
    queue: str = "",
    iterations: int = STEPS,
    arguments: Sequence[str] = (),
    spec: Mapping[str, Any] | None = None,
) -> Job:
    """Apply a job with a queue's label, and nothing that says where its pods go."""
    volume = rig.directory / "volumes" / name
    more = {"coordinator": {"nodeSelector": {RIG_LABEL: rig.name}}, **(spec or {})}
    body = manifest(name, rig.namespace, volume, nodes=nodes, iterations=iterations, arguments=arguments, spec=more)
    labels = {names.LABEL_QUEUE_PRIORITY: priority, names.LABEL_QUEUE: queue}
    body["metadata"]["labels"] = {label: value for label, value in labels.items() if value}
    return rig.apply(body, volume)


def two_priorities(rig: Rig, queue: KueueStandIn) -> tuple[str, str]:
    """Make two WorkloadPriorityClasses; the names of the lower and the higher one."""
    low, high = f"low-{rig.name}", f"high-{rig.name}"
    queue.add_priority(low, 10)
    queue.add_priority(high, 1000)
    return low, high


def workload_of(queue: KueueStandIn, job: Job, *, spares: bool = False) -> Object:
    """The job's Workload as it is; without one: an empty object."""
    for each in queue.workloads():
        named = each["metadata"]["labels"].get(names.LABEL_JOB_NAME)
        if named == job.name and each["metadata"]["name"].endswith("-spares") is spares:
            return each
    return {}


def path_of_workload(queue: KueueStandIn, workload: Object) -> str:
    """Its path in the API."""
    return f"{API}/namespaces/{queue.namespace}/workloads/{workload['metadata']['name']}"


def condition_of(workload: Object, kind: str) -> Object:
    """A condition of a Workload; without one: an empty object."""
    known = workload.get("status", {}).get("conditions") or []
    return next((one for one in known if one["type"] == kind), {})


def wait_stopped(rig: Rig, job: Job, reason: str) -> int:
    """Wait until the job has given its quota back for this reason; the last common step."""
    evicted = job.wait_condition("Suspended")
    assert evicted["reason"] == "Evicted", evicted
    cause = next(each["cause"] for each in job.incidents() if each["cause"]["code"] == "Evicted")
    assert reason in cause["message"], cause
    rig.plane.wait("its pods to be gone", lambda: not job.pods())
    return job.common_step()


def assert_goes_on_after(job: Job, other: Job, stopped: int) -> None:
    """The other job, for which this one gave its quota back at step `stopped`, ends; this one goes on from there."""
    other.wait_condition("Running")
    other.hurry()
    other.wait_condition("Complete")
    job.wait_step(stopped + 5)
    assert_no_step_twice(job)


def assert_no_step_twice(job: Job) -> None:
    """Each step is done once: nothing that was saved was lost."""
    steps = [each["step"] for each in proof.of(job.events(), "step_end") if each["rank"] == 0]
    assert steps == sorted(set(steps)), "no step is done again"


QUEUE_LABELS: Final = f"{GROUP}/"
"""What the labels begin with that make Kueue take a pod for a job of its own."""
