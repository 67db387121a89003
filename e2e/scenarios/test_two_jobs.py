"""Two trainings that want the same nodes, with the real scheduler: neither dies, none waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from e2e.harness.job import Job, manifest
from e2e.harness.marks import only_e2e
from e2e.harness.rig import RIG_LABEL, Rig, RigLayout
from e2e.harness.undisturbed import undisturbed
from e2e.scenarios.nodes_taken import take
from e2e.trainer import proof

ITERATIONS = 1500
"""They outlast everything that is done to them on a slow machine, and are hurried then."""
SHORT = 60
STEP_MILLISECONDS = 200.0
HIGH_LABEL = "hajob.io/for-the-higher-job"
ELASTIC = ["--enable-elastic-training"]
IMPATIENT = {
    "recovery": {"replacementTimeoutSeconds": 5, "cordonPolicy": "Ignore"},
    "elastic": {"expandDelaySeconds": 2},
}


@only_e2e
def test_a_higher_job_takes_a_node_and_the_lower_shrinks(start_rig: Callable[[RigLayout], Rig]) -> None:
    """It stands behind its gates no longer than until it is known that the scheduler would make room for all of it."""
    rig = start_rig(RigLayout(chip_nodes=5))
    low = train(rig, "low", nodes=4)
    low.wait_step(10)
    wanted = low.node_of(2)
    used = {low.node_of(rank) for rank in range(4)}
    for node in (*(name for name in chip_nodes(rig) if name not in used), wanted):
        rig.plane.kubectl("label", "node", node, f"{HIGH_LABEL}=yes")
    with priority_class(rig) as name:
        high = train(rig, "high", nodes=2, iterations=SHORT, priority=name, place={HIGH_LABEL: "yes"})
        high.wait_condition("Running")
        incident = low.wait_incident(2)
        assert (incident["action"], incident["cause"]["code"]) == ("Shrink", "PreemptionByScheduler")
        assert low.status()["dataParallel"]["current"] == 3
        assert wanted in {high.node_of(rank) for rank in range(2)}
        low.wait_step(low.common_step() + 5)
        high.hurry()
        high.wait_condition("Complete")
    wait_size(rig, low, 4)
    ends_unharmed(rig, low, 4, ITERATIONS)
    assert high.incidents() == []
    assert high.weights_differ(undisturbed(rig.plane.run, tensor=2, pipeline=1, data=2, iterations=SHORT)) == []


@only_e2e
def test_two_shrunk_jobs_grow_one_after_the_other(start_rig: Callable[[RigLayout], Rig]) -> None:
    """One node for two of them: the older one has it, the other says why it waits, and has the next one."""
    rig = start_rig(RigLayout(chip_nodes=4))
    jobs = []
    for name in ("older", "younger"):  # one after the other: Kubernetes knows their age in seconds
        jobs.append(train(rig, name, nodes=2))
        jobs[-1].wait_step(10)
    taken = [take(rig, job, 1) for job in reversed(jobs)]
    for job in jobs:
        assert job.wait_incident(2)["action"] == "Shrink"
    older, younger = jobs
    for job, node in zip(jobs, taken, strict=True):
        rig.plane.kubectl("uncordon", node)
        wait_size(rig, job, 2)
        if job is older:
            told = younger.status()["dataParallel"]
            assert (told["current"], told["waitReason"]) == (1, "NoFreeNode")
    assert [job.node_of(1) for job in jobs] == taken
    for job in jobs:
        assert job.wait_incident(3)["action"] == "Expand"
        ends_unharmed(rig, job, 2, ITERATIONS)


def train(
    rig: Rig,
    name: str,
    *,
    nodes: int,
    iterations: int = ITERATIONS,
    priority: str = "",
    place: dict[str, str] | None = None,
) -> Job:
    volume = rig.directory / "volumes" / name
    selector = {RIG_LABEL: rig.name}
    body = manifest(
        name,
        rig.namespace,
        volume,
        nodes=nodes,
        iterations=iterations,
        step_milliseconds=STEP_MILLISECONDS,
        spec={**IMPATIENT, "coordinator": {"nodeSelector": selector}},
        arguments=ELASTIC,
        node_selector={**selector, **(place or {})},
    )
    if priority:
        body["spec"]["template"]["spec"]["priorityClassName"] = priority
    return rig.apply(body, volume)


def wait_size(rig: Rig, job: Job, data: int) -> None:
    rig.plane.wait(f"{job.name} to grow", lambda: job.status()["dataParallel"]["current"] == data, seconds=150)


def chip_nodes(rig: Rig) -> list[str]:
    return [node.name for node in rig.nodes.settings.nodes if node.chips]


@contextmanager
def priority_class(rig: Rig) -> Iterator[str]:
    classes, name = "/apis/scheduling.k8s.io/v1/priorityclasses", f"higher-{rig.name}"
    rig.plane.api.create(classes, {"metadata": {"name": name}, "value": 1000})
    yield name
    rig.plane.api.delete(f"{classes}/{name}")


def ends_unharmed(rig: Rig, job: Job, data: int, iterations: int) -> None:
    """Whoever shrank and grew has the weights of a training that nothing happened to, and started once."""
    job.hurry()
    job.wait_condition("Complete", seconds=120)
    assert not any(each.is_restart for each in proof.outages(job.events(), job.world()))
    assert job.weights_differ(undisturbed(rig.plane.run, tensor=2, pipeline=1, data=data, iterations=iterations)) == []
