"""Nothing is free: the training goes on with fewer data-parallel ranks, and grows back when the node returns."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.job import IMPATIENT
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig, RigLayout
from e2e.harness.undisturbed import undisturbed
from e2e.scenarios.nodes_taken import take
from e2e.trainer import proof

ITERATIONS = 600
STEP_MILLISECONDS = 200.0
"""The training goes on while its node is away and back; it outlasts that on a slow machine, and is hurried then."""


@pytest.mark.slow
def test_a_job_shrinks_without_a_node_and_grows_back(start_rig: Callable[[RigLayout], Rig]) -> None:
    rig = start_rig(RigLayout(chip_nodes=4))
    arguments = ["--enable-elastic-training"]
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS, spec=IMPATIENT, arguments=arguments)
    job.wait_step(10)
    node = job.node_of(2)
    rig.nodes.control.power_off(node)
    incident = job.wait_incident(2)
    assert incident["action"] == "Shrink"
    job.wait_condition("Shrunk")
    told = job.status()["dataParallel"]
    assert (told["current"], told["waitReason"]) == (3, "NoFreeNode"), "Kubernetes calls the dead node ready for 40 s"
    assert (told["desired"], told["dropped"]) == (4, [2])
    assert told["since"] >= incident["startTime"]
    assert "needs 1 free node at once with 2 chips each, for node ranks 2" in told["waitMessage"]
    assert 50 <= told["expectedThroughputPercent"] < 100
    measured = lambda: job.status()["dataParallel"].get("measuredThroughputPercent")  # noqa: E731
    assert rig.plane.wait("the throughput to be measured", measured) > 10
    rig.nodes.control.power_on(node)
    rig.plane.wait("the original size", lambda: job.status()["dataParallel"]["current"] == 4, seconds=150)
    assert job.wait_incident(3)["action"] == "Expand"
    assert not {"since", "waitReason", "expectedThroughputPercent"}.intersection(job.status()["dataParallel"])
    job.hurry()
    job.wait_condition("Complete", seconds=120)
    assert not any(each.is_restart for each in proof.outages(job.events(), job.world()))
    reference = undisturbed(rig.plane.run, tensor=2, pipeline=1, data=4, iterations=ITERATIONS)
    differences = job.weights_differ(reference)  # as after a run that shrank and grew anywhere: sums keep their order
    assert differences == []


@only_e2e
def test_a_fault_while_shrunk_restarts_with_what_is_left(start_rig: Callable[[RigLayout], Rig]) -> None:
    rig = start_rig(RigLayout(chip_nodes=4))
    elastic = {**IMPATIENT["elastic"], "restartSize": "Available"}
    recovery = {**IMPATIENT["recovery"], "cordonPolicy": "Ignore"}
    job = rig.submit(
        iterations=ITERATIONS,
        step_milliseconds=STEP_MILLISECONDS,
        spec={"recovery": recovery, "elastic": elastic},
        arguments=["--enable-elastic-training", "--global-batch-size", "32"],
    )
    job.wait_step(10)
    taken = [take(rig, job, 2)]
    assert job.wait_incident(2)["action"] == "Shrink"
    job.wait_step(job.common_step() + 20)  # MindIO's own result comes 2 s after the first step
    taken.append(take(rig, job, 3))
    incident = job.wait_incident(3)
    assert (incident["action"], incident["escalatedFrom"]) == ("Restart", ["Checkpoint"])
    assert (incident["restoredFrom"], incident["lostSteps"]) == ("SavedCheckpoint", 0)
    told = job.status()["dataParallel"]
    assert (told["current"], told["desired"], told["waitReason"]) == (2, 4, "NoFreeNode")
    job.wait_condition("Shrunk")
    for node in taken:
        rig.plane.kubectl("uncordon", node)
    rig.plane.wait("the original size", lambda: job.status()["dataParallel"]["current"] == 4)
    job.hurry()
    job.wait_condition("Complete", seconds=120)
    grown = job.incidents()[0]
    assert (grown["cause"]["code"], grown["action"], grown["lostSteps"]) == ("ExpandDue", "Restart", 0)
    reference = undisturbed(rig.plane.run, tensor=2, pipeline=1, data=4, iterations=ITERATIONS)
    assert job.weights_differ(reference) == [], "four, three, two and four data-parallel ranks share the same batch"
