"""Nothing is free: the training goes on with fewer data-parallel ranks, and grows back when the node returns."""

from __future__ import annotations

from collections.abc import Callable

from e2e.harness.rig import Rig, RigLayout
from e2e.harness.undisturbed import undisturbed
from e2e.trainer import proof
from e2e.trainer.compare import largest_difference

ITERATIONS = 600
STEP_MILLISECONDS = 200.0
"""The training goes on while its node is away and back; it outlasts that on a slow machine, and is hurried then."""
CLOSE = 1e-5
IMPATIENT = {"recovery": {"replacementTimeoutSeconds": 5}, "elastic": {"expandDelaySeconds": 2}}


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
    assert job.status()["dataParallel"]["current"] == 3
    rig.nodes.control.power_on(node)
    rig.plane.wait("the original size", lambda: job.status()["dataParallel"]["current"] == 4, seconds=90)
    assert job.wait_incident(3)["action"] == "Expand"
    job.hurry()
    job.wait_condition("Complete", seconds=120)
    assert not any(each.is_restart for each in proof.outages(job.events(), job.world()))
    reference = undisturbed(rig.plane.run, tensor=2, pipeline=1, data=4, iterations=ITERATIONS)
    assert largest_difference(job.logs, reference) <= CLOSE  # the global batch is kept, its sum is taken in other parts
