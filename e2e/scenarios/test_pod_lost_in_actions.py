"""The coordinator's whole pod is lost in the middle of every action but the repairs in place, its store with it.

Where the gates know how ranks speak to their store, another one is filled and everything goes on. Where they do not,
ranks that would have to meet lose no step: what they stand at is saved, and the incident says so.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.controllers import coordinator_node
from e2e.harness.job import IMPATIENT, Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios import long_actions
from e2e.scenarios.nodes_taken import DRAIN
from e2e.scenarios.proofs import assert_weights_equal
from e2e.scenarios.repairs_in_place import PATIENCE, delete_coordinator_pod
from e2e.trainer.store_wire import NEW, UNHEARD_OF, Version

pytestmark = [
    only_e2e,
    pytest.mark.timeout(1200),
]
BOTH = pytest.mark.parametrize("torch", [NEW, UNHEARD_OF], ids=["kept", "not kept"])
PAUSE = f'-p={{"spec":{{"pause":{{"requestTime":"{long_actions.NOW}"}}}}}}'


def lose_pod(rig: Rig, job: Job) -> None:
    """Delete it, and wait until another one protects the job."""
    before = job.takeovers()
    delete_coordinator_pod(rig, job)
    job.plane.wait("the takeover", lambda: job.takeovers() > before, PATIENCE)
    job.wait_condition("CoordinatorReady")


def assert_grows_back(rig: Rig, job: Job) -> None:
    """It has its original size again, and nothing was started anew."""
    rig.plane.wait("the original size", lambda: job.status()["dataParallel"]["current"] == 4, PATIENCE)
    long_actions.assert_none_restarted(job)


def assert_saved(job: Job, *escalated: str) -> None:
    """The newest incident has saved the step, and started from it."""
    job.plane.wait("the restart", lambda: is_restarted(job), PATIENCE)
    incident = job.incidents()[0]
    assert (incident.get("escalatedFrom", []), incident["lostSteps"]) == ([*escalated, "Checkpoint"], 0), incident
    assert incident["restoredFrom"] == "SavedCheckpoint", incident
    assert_weights_equal(job, long_actions.STEPS)


def is_restarted(job: Job) -> bool:
    incident = next(iter(job.incidents()), {})
    return (incident.get("action"), incident.get("outcome")) == ("Restart", "Recovered")


@BOTH
def test_its_pod_is_lost_in_a_replacement(rig: Rig, torch: Version) -> None:
    job = long_actions.training(rig, torch=torch)
    stands = long_actions.slow_down(rig, job, 0, "rebuild")
    rig.nodes.control.power_off(job.node_of(1))
    stands()
    if torch is UNHEARD_OF:
        delete_coordinator_pod(rig, job)
        assert_saved(job, "Replace")
        return
    lose_pod(rig, job)
    assert job.wait_incident(2, seconds=PATIENCE)["action"] == "Replace"
    long_actions.assert_none_restarted(job)


@BOTH
def test_its_pod_is_lost_while_it_shrinks(start_rig: Callable[[RigLayout], Rig], torch: Version) -> None:
    rig = start_rig(RigLayout(chip_nodes=4))
    job = long_actions.training(rig, IMPATIENT, torch)
    node = job.node_of(2)
    stands = long_actions.slow_down(rig, job, 0, "rebuild")
    rig.nodes.control.power_off(node)
    stands()
    delete_coordinator_pod(rig, job)
    if torch is UNHEARD_OF:
        rig.nodes.control.power_on(node)
        assert_saved(job, "Replace", "Shrink")
        return
    assert job.wait_incident(2, seconds=PATIENCE)["action"] == "Shrink"
    job.wait_condition("Shrunk")
    job.wait_condition("CoordinatorReady")
    rig.nodes.control.power_on(node)
    assert_grows_back(rig, job)


@BOTH
@pytest.mark.parametrize("growing", [False, True], ids=["small", "growing"])
def test_its_pod_is_lost_while_it_is_small(
    start_rig: Callable[[RigLayout], Rig], torch: Version, *, growing: bool
) -> None:
    rig = start_rig(RigLayout(chip_nodes=4))
    job = long_actions.training(rig, IMPATIENT, torch)
    node = job.node_of(2)
    rig.nodes.control.power_off(node)
    job.wait_condition("Shrunk")
    job.wait_condition("CoordinatorReady")
    if growing:
        stands = long_actions.slow_down(rig, job, 5, "ready")
        rig.nodes.control.power_on(node)
        stands()
    delete_coordinator_pod(rig, job)
    if not growing:
        job.plane.wait("the takeover", lambda: job.takeovers() > 0, PATIENCE)
        rig.nodes.control.power_on(node)
    if torch is UNHEARD_OF:
        assert_saved(job)
        return
    assert_grows_back(rig, job)


@BOTH
def test_the_node_of_a_small_jobs_coordinator_is_drained(start_rig: Callable[[RigLayout], Rig], torch: Version) -> None:
    rig = start_rig(RigLayout(chip_nodes=4, plain_nodes=2))
    job = long_actions.training(rig, IMPATIENT, torch)
    node, drained = job.node_of(2), coordinator_node(job)
    rig.nodes.control.power_off(node)
    job.wait_condition("Shrunk")
    job.wait_condition("CoordinatorReady")
    rig.plane.kubectl(*DRAIN, drained, timeout=120)
    job.plane.wait("the takeover", lambda: job.takeovers() > 0, PATIENCE)
    assert coordinator_node(job) != drained
    if torch is UNHEARD_OF:
        rig.nodes.control.power_on(node)
        assert_saved(job)
        return
    job.wait_condition("CoordinatorReady")
    job.wait_condition("Shrunk")
    rig.nodes.control.power_on(node)
    assert_grows_back(rig, job)


@BOTH
def test_its_pod_is_lost_in_a_move(rig: Rig, torch: Version) -> None:
    """The training was not touched yet: the move is given up by name, and made again where ranks can meet."""
    job = long_actions.training(rig, torch=torch)
    stands = long_actions.slow_down(rig, job, 1, "ready")
    node = job.node_of(0)
    rig.plane.kubectl("cordon", node)
    stands()
    lose_pod(rig, job)
    assert job.incidents()[-1]["action"] == "Migrate"
    if torch is NEW:
        rig.plane.wait("the move", lambda: node not in rank_nodes(job) and is_calm(job), PATIENCE)
    long_actions.assert_none_restarted(job)


def rank_nodes(job: Job) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in job.pods("rank")}


def is_calm(job: Job) -> bool:
    return all(incident["outcome"] != "Open" for incident in job.incidents())


@BOTH
def test_its_pod_is_lost_while_every_rank_is_held(rig: Rig, torch: Version) -> None:
    job = long_actions.training(rig, torch=torch)
    job.plane.kubectl(*long_actions.PATCH, job.namespace, job.name, PAUSE)
    assert job.wait_condition("Running", "False")["reason"] == "Paused"
    lose_pod(rig, job)
    stood = job.common_step()
    job.plane.kubectl(*long_actions.PATCH, job.namespace, job.name, '-p={"spec":{"pause":null}}')
    job.wait_step(stood + 3)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    if torch is UNHEARD_OF:
        assert_saved(job)
        return
    job.plane.wait("a recovery", lambda: job.incidents()[0].get("action") == "InPlace", PATIENCE)
    job.plane.wait("its end", lambda: job.incidents()[0].get("outcome") == "Recovered", PATIENCE)
    long_actions.assert_none_restarted(job)


def test_its_pod_is_lost_while_it_is_saved(rig: Rig) -> None:
    """The step is saved again, and nothing of it is lost; nobody has to meet for that."""
    job = long_actions.training(rig, torch=UNHEARD_OF)
    stands = long_actions.slow_down(rig, job, 0, "dump")
    job.patch({"spec": {"restartRequestTime": long_actions.NOW}})
    stands()
    delete_coordinator_pod(rig, job)
    job.plane.wait("the restart", lambda: any(one["outcome"] == "Recovered" for one in job.incidents()), PATIENCE)
    (incident,) = job.incidents()
    assert (incident["restoredFrom"], incident["lostSteps"]) == ("SavedCheckpoint", 0)
    assert_weights_equal(job, long_actions.STEPS)
