"""A training with MindFormers: msrun, a worker that prints its step in the epoch, no decorator, every copy whole."""

from __future__ import annotations

import pytest

from e2e.harness.rig import Rig
from e2e.harness.undisturbed import undisturbed

ITERATIONS = 200


@pytest.mark.parametrize("join", ["True", "False"])
def test_a_killed_worker_of_msrun_comes_back(rig: Rig, join: str) -> None:
    job = rig.submit(
        iterations=ITERATIONS, script="train_msrun.sh", environment={"JOIN": join}, spec={"framework": "MindSpore"}
    )
    job.wait_step(10)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    assert job.wait_incident(2)["action"] == "InPlace"
    job.hurry()
    job.wait_condition("Complete", seconds=120)
    reference = undisturbed(rig.plane.run, tensor=2, pipeline=1, data=4, iterations=ITERATIONS)
    assert job.weights_differ(reference) == []
