"""A node that an admin wants empty is left with the training running: second pods, a switch, the old ones last."""

from __future__ import annotations

from e2e.harness.rig import Rig
from e2e.scenarios.proofs import assert_recovered

ITERATIONS = 300


def test_a_cordoned_node_is_emptied_with_the_training_running(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS)
    job.wait_step(10)
    node = job.node_of(0)
    rig.plane.kubectl("cordon", node)
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Migrate", 0)
    assert node in incident["cause"]["message"]
    rig.plane.wait("the node to be empty", lambda: node not in {job.node_of(rank) for rank in range(4)})
    assert_recovered(job, [0, 1], ITERATIONS)


def test_an_excluded_node_is_left_without_losing_a_step(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS)
    job.wait_step(10)
    node = job.node_of(1)
    job.patch({"spec": {"scheduling": {"excludedNodeNames": [node]}}})
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Migrate", 0)
    assert job.node_of(1) != node
    assert_recovered(job, [2, 3], ITERATIONS)
