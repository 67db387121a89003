"""Recoveries of a GPT in real PyTorch, with torch's TCPStore in the coordinator's pod: weights bitwise as undisturbed.

`make e2e TRAINER=torch` plays all of them, `TESTS="-k in_place"` the short half.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.controllers import coordinator_node
from e2e.harness.images import is_torch
from e2e.harness.job import IMPATIENT, Job
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios.proofs import assert_recovered, assert_weights_equal
from e2e.trainer import proof
from e2e.trainer.faults import order

pytestmark = [
    pytest.mark.skipif(not is_torch(), reason="make e2e TRAINER=torch plays it"),
    pytest.mark.timeout(600),
]

ITERATIONS = 80
LONG = 240
STEP = 300.0
"""Milliseconds: eight ranks of torch on two cores need a fifth of that."""
START_SECONDS = 180.0
RECOVERY_SECONDS = 180.0


def started(rig: Rig, *smaller: str, iterations: int = ITERATIONS) -> Job:
    """A job that trains, in which these actions are not allowed."""
    spec = {"recovery": {"actions": [{"name": name, "maxCount": 0} for name in smaller]}}
    job = rig.submit(
        iterations=iterations, step_milliseconds=STEP, arguments=["--save-interval", "10"], spec=spec if smaller else {}
    )
    job.wait_step(12, seconds=START_SECONDS)
    return job


@pytest.mark.parametrize("rank", [3, 0])
def test_a_killed_rank_comes_back_in_place(rig: Rig, rank: int) -> None:
    job = started(rig)
    rig.nodes.control.kill(namespace=rig.namespace, rank=rank)
    assert job.wait_incident(2, seconds=RECOVERY_SECONDS)["action"] == "InPlace"
    assert_recovered(job, [rank], ITERATIONS)


def test_the_node_of_rank_zero_is_replaced(rig: Rig) -> None:
    job = started(rig)
    rig.nodes.control.power_off(job.node_of(0))
    assert job.wait_incident(2, seconds=RECOVERY_SECONDS)["action"] == "Replace"
    assert_recovered(job, [0, 1], ITERATIONS)


def test_two_ranks_lost_at_once_come_back(rig: Rig) -> None:
    job = started(rig)
    for rank in (1, 6):
        rig.nodes.control.kill(namespace=rig.namespace, rank=rank)
    assert job.wait_incident(2, seconds=RECOVERY_SECONDS)["action"] == "InPlace"
    assert_recovered(job, [1, 6], ITERATIONS)


def test_without_replacement_it_is_saved_and_starts_anew(rig: Rig) -> None:
    job = started(rig, "Retry", "InPlace", "Replace", "Shrink")
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    incident = job.wait_incident(2, seconds=RECOVERY_SECONDS)
    assert (incident["action"], incident["escalatedFrom"]) == ("Restart", ["Checkpoint"])
    assert incident["lostSteps"] == 0
    assert_weights_equal(job, ITERATIONS)


def test_a_restart_goes_on_from_the_periodic_checkpoint(rig: Rig) -> None:
    job = started(rig, "Retry", "InPlace", "Replace", "Shrink", "Checkpoint")
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    incident = job.wait_incident(2, seconds=RECOVERY_SECONDS)
    assert incident["action"] == "Restart"
    assert_weights_equal(job, ITERATIONS)


def test_the_coordinators_node_is_lost_and_two_faults_follow(start_rig: Callable[[RigLayout], Rig]) -> None:
    """The store goes with it; the next ones are repaired all the same, in place and by a replacement."""
    rig = start_rig(RigLayout(plain_nodes=2, operators=2))
    job = started(rig, iterations=LONG)
    job.wait_condition("CoordinatorReady")
    rig.nodes.control.power_off(coordinator_node(job))
    rig.plane.wait("the takeover to be counted", lambda: job.takeovers() == 1, RECOVERY_SECONDS)
    job.wait_condition("CoordinatorReady")
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    assert job.wait_incident(3, seconds=RECOVERY_SECONDS)["action"] == "InPlace"
    job.wait_step(job.common_step() + 5)
    rig.nodes.control.power_off(job.node_of(0))
    assert job.wait_incident(4, seconds=RECOVERY_SECONDS)["action"] == "Replace"
    assert job.status()["restarts"] == {"infrastructure": 0, "program": 0}
    assert_recovered(job, [0, 1, 3], LONG)


def test_without_a_node_it_shrinks_and_grows_back(start_rig: Callable[[RigLayout], Rig]) -> None:
    """World and data-parallel groups made smaller and larger over the store that stays; copies fill them again."""
    rig = start_rig(RigLayout(chip_nodes=4))
    job = rig.submit(
        iterations=LONG,
        step_milliseconds=STEP,
        arguments=["--save-interval", "10", "--enable-elastic-training"],
        spec=IMPATIENT,
    )
    job.wait_step(12, seconds=START_SECONDS)
    node = job.node_of(2)
    rig.nodes.control.power_off(node)
    assert job.wait_incident(2, seconds=RECOVERY_SECONDS)["action"] == "Shrink"
    job.wait_condition("Shrunk")
    job.wait_step(job.common_step() + 5)
    rig.nodes.control.power_on(node)
    assert job.wait_incident(3, seconds=RECOVERY_SECONDS)["action"] == "Expand"
    assert job.status()["dataParallel"]["current"] == 4
    assert not any(each.is_restart for each in proof.outages(job.events(), job.world()))
    assert_weights_equal(job, LONG)


def test_the_coordinators_pod_is_lost_in_a_repair(rig: Rig) -> None:
    """Another one goes on with it: no restart, nothing lost."""
    job = started(rig, iterations=LONG)
    job.wait_condition("CoordinatorReady")
    pod = job.pods("coordinator")[0]["metadata"]["name"]
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    rig.plane.wait("the incident", job.incidents)
    rig.plane.api.delete(f"/api/v1/namespaces/{rig.namespace}/pods/{pod}", gracePeriodSeconds=0)
    incident = job.wait_incident(2, seconds=RECOVERY_SECONDS)
    assert (incident["action"], incident["lostSteps"]) == ("InPlace", 0)
    assert job.takeovers() == 1
    assert job.status()["restarts"] == {"infrastructure": 0, "program": 0}
    assert_recovered(job, [3], LONG)


def test_a_cordoned_node_is_left_with_the_training_running(rig: Rig) -> None:
    job = started(rig, iterations=LONG)
    node = job.node_of(1)
    rig.plane.kubectl("cordon", node)
    incident = job.wait_incident(2, seconds=RECOVERY_SECONDS)
    assert (incident["action"], incident["lostSteps"]) == ("Migrate", 0)
    assert job.node_of(1) != node
    assert_recovered(job, [2, 3], LONG)


@pytest.mark.parametrize("text", ["UCE_ERROR", "HCCL_OP_RETRY_FAILED"])
def test_a_fault_of_memory_or_link_is_retried(rig: Rig, text: str) -> None:
    job = started(rig)
    order(job.logs, f"rank=3 do=raise text={text}")
    incident = job.wait_incident(2, seconds=RECOVERY_SECONDS)
    assert (incident["action"], incident["lostSteps"]) == ("Retry", 0)
    assert_weights_equal(job, ITERATIONS)
    assert proof.survivors_kept(job.events(), []) == []


def test_a_pause_holds_every_rank_and_is_taken_back(rig: Rig) -> None:
    job = started(rig)
    job.patch({"spec": {"pause": {"requestTime": "2026-11-22T01:00:00Z"}}})
    job.wait_condition("Running", "False")
    job.patch({"spec": {"pause": None}})
    incident = job.wait_incident(2, seconds=RECOVERY_SECONDS)
    assert (incident["action"], incident["lostSteps"]) == ("Pause", 0)
    assert_weights_equal(job, ITERATIONS)
    assert proof.survivors_kept(job.events(), []) == []


def test_a_warm_spare_takes_a_third_of_a_cold_start(rig: Rig) -> None:
    """The import of torch is done before anything is lost; compared with a rank that is started anew in its pod."""
    spares = {"numSpareNodes": 1, "spareMode": "Warm"}
    job = rig.submit(iterations=LONG, step_milliseconds=STEP, spec={"scheduling": spares})
    job.wait_step(12, seconds=START_SECONDS)
    job.wait_condition("SparesReady", seconds=START_SECONDS)
    rig.nodes.control.kill(namespace=rig.namespace, rank=7)
    assert job.wait_incident(2, seconds=RECOVERY_SECONDS)["action"] == "InPlace"
    job.wait_step(job.common_step() + 5)
    rig.nodes.control.power_off(job.node_of(0))
    assert job.wait_incident(3, seconds=RECOVERY_SECONDS)["action"] == "Replace"
    assert_recovered(job, [0, 1, 7], LONG)
    cold, warm = proof.outages(job.events(), job.world())[:2]
    print(f"start-up cold {cold.startup_seconds:.2f} s, warm {warm.startup_seconds:.2f} s")
    assert (cold.new_ranks, warm.new_ranks) == ((7,), (0, 1))
    assert 3 * warm.startup_seconds <= cold.startup_seconds
