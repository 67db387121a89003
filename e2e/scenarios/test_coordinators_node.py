"""The coordinator's node is powered off while training or in an action, or its pod is lost in a repair: with it go
MindIO's controller and the rendezvous store, which ranks of any training image that speaks to it as torch does find
filled again.

HAJOB_EVERY_POINT=1 (`make e2e`) plays every handler of a repair.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.controllers import coordinator_node
from e2e.harness.job import IMPATIENT, Job
from e2e.harness.marks import EVERY_POINT, only_e2e
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios import long_actions, repairs_in_place
from e2e.scenarios.proofs import assert_recovered, assert_weights_equal

pytestmark = pytest.mark.slow

ITERATIONS = 400
STEP_MILLISECONDS = 200.0
TAKEOVER_SECONDS = 120.0
HANDLERS = repairs_in_place.HANDLERS["InPlace"] if EVERY_POINT else ["rebuild"]
LAYOUT = RigLayout(plain_nodes=2, operators=2)


def power_off_its_node(rig: Rig, job: Job) -> None:
    """Nobody deletes a pod: it is silent, and has a successor elsewhere after 15 s."""
    lost, before = coordinator_node(job), job.takeovers()
    rig.nodes.control.power_off(lost)
    rig.plane.wait("the takeover", lambda: job.takeovers() > before, TAKEOVER_SECONDS)
    assert coordinator_node(job) != lost


def assert_repair_went_on(job: Job) -> None:
    """Another controller took over once, and rank 3 came back in place as it would have: nothing lost or saved."""
    repairs_in_place.assert_protected_again(job, 1, 1)
    (incident,) = job.incidents()
    found = incident["action"], incident.get("escalatedFrom", []), incident["lostSteps"]
    assert found == ("InPlace", [], 0), incident
    assert_recovered(job, [3], repairs_in_place.STEPS)


@pytest.mark.timeout(600)
def test_its_node_is_lost_and_the_next_fault_is_in_place(start_rig: Callable[[RigLayout], Rig]) -> None:
    """The gates fill the next store with what ranks had written: they meet there, and nothing starts anew."""
    rig = start_rig(LAYOUT)
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS)
    job.wait_step(10)
    job.wait_condition("CoordinatorReady")
    power_off_its_node(rig, job)
    job.wait_condition("CoordinatorReady")
    assert job.incidents() == []
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    incident = job.wait_incident(3)
    assert (incident["action"], incident["lostSteps"]) == ("InPlace", 0), incident
    assert_recovered(job, [3], ITERATIONS)
    assert job.status()["restarts"] == {"infrastructure": 0, "program": 0}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("handler", HANDLERS)
@only_e2e
def test_its_pod_is_lost_in_a_repair_that_goes_on(rig: Rig, handler: str) -> None:
    """Ranks that stand in a handler, or wait for the store, go on where they were: nothing is lost or saved."""
    job = repairs_in_place.training(rig)
    repairs_in_place.begin_repair(rig, job, "InPlace", handler, 1)
    repairs_in_place.delete_coordinator_pod(rig, job)
    assert_repair_went_on(job)


@only_e2e
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("handler", repairs_in_place.HANDLERS["InPlace"])
def test_its_node_is_lost_in_a_repair_that_goes_on(start_rig: Callable[[RigLayout], Rig], handler: str) -> None:
    """What ranks do in a handler has ended long before anybody comes: they wait, and go on with the successor."""
    rig = start_rig(LAYOUT)
    job = repairs_in_place.training(rig)
    repairs_in_place.begin_repair(rig, job, "InPlace", handler, 1)
    power_off_its_node(rig, job)
    assert_repair_went_on(job)


@only_e2e
@pytest.mark.timeout(1200)
def test_its_node_is_lost_while_it_is_saved(start_rig: Callable[[RigLayout], Rig]) -> None:
    """The step is saved with the successor, and nothing of it is lost."""
    rig = start_rig(LAYOUT)
    job = long_actions.training(rig)
    stands = long_actions.slow_down(rig, job, 0, "dump")
    job.patch({"spec": {"restartRequestTime": long_actions.NOW}})
    stands()
    rig.nodes.control.power_off(coordinator_node(job))
    rig.plane.wait(
        "the restart", lambda: any(one["outcome"] == "Recovered" for one in job.incidents()), TAKEOVER_SECONDS
    )
    (incident,) = job.incidents()
    assert (incident["restoredFrom"], incident["lostSteps"]) == ("SavedCheckpoint", 0), incident
    assert_weights_equal(job, long_actions.STEPS)


@only_e2e
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("stage", ["shrinking", "small", "growing"])
def test_its_node_is_lost_while_it_is_small(start_rig: Callable[[RigLayout], Rig], stage: str) -> None:
    rig = start_rig(RigLayout(chip_nodes=4, plain_nodes=2, operators=2))
    job = long_actions.training(rig, IMPATIENT)
    node = job.node_of(2)
    stands = long_actions.slow_down(rig, job, 0, "rebuild") if stage == "shrinking" else None
    rig.nodes.control.power_off(node)
    if stands is not None:
        stands()
        power_off_its_node(rig, job)
        assert job.wait_incident(2, seconds=TAKEOVER_SECONDS)["action"] == "Shrink"
    job.wait_condition("Shrunk")
    job.wait_condition("CoordinatorReady")
    if stage == "small":
        power_off_its_node(rig, job)
        job.wait_condition("CoordinatorReady")
    stands = long_actions.slow_down(rig, job, 5, "ready") if stage == "growing" else None
    rig.nodes.control.power_on(node)
    if stands is not None:
        stands()
        power_off_its_node(rig, job)
    rig.plane.wait("the original size", lambda: job.status()["dataParallel"]["current"] == 4, TAKEOVER_SECONDS)
    long_actions.assert_none_restarted(job)
