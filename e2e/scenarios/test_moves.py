"""A node that an admin wants empty is left with the training running: second pods, a switch, the old ones last."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from e2e.cluster.rest import ApiError
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios.nodes_taken import DRAIN
from e2e.scenarios.proofs import assert_recovered, assert_weights_equal
from hajob.api import constants as names

ITERATIONS = 300
STEP_MILLISECONDS = 200.0
"""A training goes on while its next pods start: it outlasts them on a slow machine, too, and is hurried afterwards."""


def test_a_drained_node_is_emptied_with_the_training_running(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS)
    job.wait_step(10)
    node = job.node_of(0)
    rig.plane.kubectl(*DRAIN, node, timeout=120)
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Migrate", 0)
    assert node in incident["cause"]["message"]
    assert node not in {job.node_of(rank) for rank in range(4)}
    assert_recovered(job, [0, 1], ITERATIONS)


@pytest.mark.slow
def test_a_drained_coordinator_is_relieved_while_training(start_rig: Callable[[RigLayout], Rig]) -> None:
    rig = start_rig(RigLayout(plain_nodes=2))
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS)
    job.wait_step(10)
    job.wait_condition("CoordinatorReady")
    (coordinator,) = job.pods("coordinator")
    node = coordinator["spec"]["nodeName"]
    rig.plane.kubectl(*DRAIN, node, timeout=120)
    rig.plane.wait("the takeover to be counted", lambda: job.takeovers() == 1)
    job.wait_condition("CoordinatorReady")
    assert node not in {pod["spec"]["nodeName"] for pod in job.pods("coordinator")}
    assert job.incidents() == []
    assert job.status()["restarts"] == {"infrastructure": 0, "program": 0}
    assert_weights_equal(job, ITERATIONS)


@pytest.mark.skipif(not os.environ.get("HAJOB_LONG_TESTS"), reason="waits for its turn for half a minute: make nightly")
def test_an_eviction_without_a_cordon_gets_its_turn(rig: Rig) -> None:
    job = rig.submit(
        iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS, spec={"recovery": {"drainTimeoutSeconds": 30}}
    )
    job.wait_step(10)
    (pod,) = (one for one in job.pods("rank") if one["metadata"]["labels"][names.LABEL_NODE_RANK] == "1")
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    refused = 0

    def evicted() -> bool:
        nonlocal refused
        try:
            rig.plane.api.create(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction)
        except ApiError as error:
            if error.status != 429:
                raise
            refused += 1
            return False
        return True

    rig.plane.wait("the eviction to get its turn", evicted, 150.0, 0.2)
    assert refused > 10
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Replace", 0)
    assert_recovered(job, [2, 3], ITERATIONS)


@only_e2e
def test_an_excluded_node_is_left_without_losing_a_step(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS)
    job.wait_step(10)
    node = job.node_of(1)
    job.patch({"spec": {"scheduling": {"excludedNodeNames": [node]}}})
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Migrate", 0)
    assert job.node_of(1) != node
    assert_recovered(job, [2, 3], ITERATIONS)
