"""The coordinator's node is powered off while training, or its pod is lost in a repair: with it go MindIO's controller
and the rendezvous store, which ranks of any training image that speaks to it as torch does find filled again.

HAJOB_EVERY_POINT=1 (`make e2e`) plays every handler of a repair.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from e2e.harness.controllers import coordinator_node
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios import test_controller_killed as controllers
from e2e.scenarios.proofs import assert_recovered

ITERATIONS = 400
STEP_MILLISECONDS = 200.0
TAKEOVER_SECONDS = 120.0
HANDLERS = controllers.HANDLERS["InPlace"] if "HAJOB_EVERY_POINT" in os.environ else ["rebuild"]


@pytest.mark.timeout(600)
def test_its_node_is_lost_and_the_next_fault_is_in_place(start_rig: Callable[[RigLayout], Rig]) -> None:
    """The gates fill the next store with what ranks had written: they meet there, and nothing starts anew."""
    rig = start_rig(RigLayout(plain_nodes=2, operators=2))
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS)
    job.wait_step(10)
    job.wait_condition("CoordinatorReady")
    lost = coordinator_node(job)
    rig.nodes.control.power_off(lost)
    rig.plane.wait("the takeover", lambda: job.takeovers() == 1, TAKEOVER_SECONDS)
    job.wait_condition("CoordinatorReady")
    assert coordinator_node(job) != lost
    assert job.incidents() == []
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    incident = job.wait_incident(3)
    assert (incident["action"], incident["lostSteps"]) == ("InPlace", 0), incident
    assert_recovered(job, [3], ITERATIONS)
    assert job.status()["restarts"] == {"infrastructure": 0, "program": 0}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("handler", HANDLERS)
def test_its_pod_is_lost_in_a_repair_that_goes_on(rig: Rig, handler: str) -> None:
    """Ranks that stand in a handler, or wait for the store, go on where they were: nothing is lost or saved."""
    job = controllers.training(rig)
    controllers.begin(rig, job, "InPlace", handler, 1)
    controllers.delete_the_pod(rig, job)
    controllers.assert_protected_again(job, 1, 1)
    (incident,) = job.incidents()
    found = incident["action"], incident.get("escalatedFrom", []), incident["lostSteps"]
    assert found == ("InPlace", [], 0), incident
    assert_recovered(job, [3], controllers.STEPS)
