"""Faults that come together, one after the other, or back to life: one incident each, weights equal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.job import Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios.proofs import assert_recovered, assert_weights_equal
from e2e.trainer import proof
from e2e.trainer.faults import Fault

pytestmark = pytest.mark.slow

STEPS = 300
STUCK_STEP = 30
Logs = Callable[..., tuple[str, str]]
OFF = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
"""Taint by which an admin says that a node is off."""


def test_a_second_process_dies_while_a_node_is_replaced(rig: Rig) -> None:
    job = rig.submit(iterations=STEPS)
    job.wait_step(5)
    rig.nodes.control.power_off(job.node_of(3))
    rig.plane.wait("an incident", job.incidents)
    rig.nodes.control.kill(namespace=rig.namespace, rank=0)
    assert job.wait_incident(2)["action"] == "Replace"
    assert len(job.incidents()) == 1
    assert_recovered(job, [0, 6, 7], STEPS)


def test_a_rank_dies_while_mindio_waits_for_its_answer(rig: Rig) -> None:
    """It stands in its update when another one dies, so the lock of the step waits for it, and then it dies, too."""
    stuck = f"rank=5 step={STUCK_STEP} at=update do=hang"
    job = rig.submit(iterations=STEPS, arguments=["--fault", stuck])
    job.wait_step(5)
    rig.plane.wait("rank 5 to stand still", Fault.parse(stuck).mark(job.logs, 5).exists)
    log = job.pods("coordinator")[0]["metadata"]["name"], "coordinator"
    rig.nodes.control.kill(namespace=rig.namespace, rank=2)
    # MindIO waits a second and a half: no time to ask the API server first
    rig.plane.wait("MindIO to wait", lambda: any("MindIO took stop_train" in line for line in rig.lines(*log)))
    rig.nodes.control.kill(namespace=rig.namespace, rank=5)
    assert job.wait_incident(2)["action"] == "InPlace"
    assert len(job.incidents()) == 1
    assert_recovered(job, [2, 5], STEPS)


@only_e2e
def test_both_copies_lost_before_a_checkpoint_restart_the_job(rig: Rig, hajob_logs: Logs) -> None:
    job = rig.submit(iterations=STEPS)  # still trains when its output is read
    finished = job.wait_step(5)
    node = job.node_of(3)
    rig.nodes.control.power_off(node)
    rig.plane.wait("an incident", job.incidents)
    rig.plane.kubectl("taint", "node", node, OFF)  # else the start waits a minute for ranks that may live on there
    rig.nodes.control.kill(namespace=rig.namespace, rank=2)  # holds the copy of rank 6
    job.wait_incident(2)
    rig.plane.wait("steps of the second attempt", lambda: has_finished(job, attempt=2, step=10))
    for attempt in (1, 2):
        assert_output_is_kept(job, hajob_logs, attempt)
    assert_weights_equal(job, STEPS)
    incident = job.incidents()[0]
    assert (incident["action"], incident["outcome"]) == ("Restart", "Recovered")
    assert incident["lostSteps"] >= finished - 1  # the dead node may have had no time to tell of its last one
    assert "restoredFrom" not in incident
    assert [(each["name"], each["numRanks"]) for each in incident["stateSources"]] == [("Nowhere", 8)]
    assert job.status()["restarts"] == {"infrastructure": 1, "program": 0}


def assert_output_is_kept(job: Job, hajob_logs: Logs, attempt: int) -> None:
    """`kubectl hajob logs` shows what the last rank, on a node that is gone, printed in each attempt."""
    out, headings = hajob_logs(job, "--rank", 7, "--attempt", attempt)
    assert f"==> rank 7, attempt {attempt}, " in headings
    assert f" iteration        1/     {STEPS} |" in out


def has_finished(job: Job, attempt: int, step: int) -> bool:
    """Whether a rank has finished a step in an attempt."""
    return any(each["attempt"] == attempt and each["step"] == step for each in proof.of(job.events(), "step_end"))


def test_two_nodes_at_once(start_rig: Callable[[RigLayout], Rig]) -> None:
    rig = start_rig(RigLayout(chip_nodes=6))
    job = rig.submit(iterations=STEPS)
    job.wait_step(5)
    for node_rank in (0, 1):
        rig.nodes.control.power_off(job.node_of(node_rank))
    assert job.wait_incident(2)["action"] == "Replace"
    assert_recovered(job, [0, 1, 2, 3], STEPS)


@only_e2e
def test_a_node_that_comes_back_to_life_disturbs_nothing(rig: Rig) -> None:
    job = rig.submit(iterations=STEPS)
    job.wait_step(5)
    lost = job.node_of(0)
    rig.nodes.control.power_off(lost)
    job.wait_incident(2)
    rig.nodes.control.thaw_node(lost)
    rig.nodes.control.kill(namespace=rig.namespace, rank=4)
    assert job.wait_incident(3)["action"] == "InPlace"
    assert_recovered(job, [0, 1, 4], STEPS)


@only_e2e
def test_gates_without_a_lease_hold_and_nothing_is_lost(rig: Rig) -> None:
    """The coordinator says nothing for 50 steps and more: every gate loses its lease and gets it back."""
    job = rig.submit(iterations=STEPS)
    job.wait_step(5)
    which = {"namespace": rig.namespace, "pod": job.pods("coordinator")[0]["metadata"]["name"]}
    rig.nodes.control.freeze(container="coordinator", **which)
    job.wait_step(job.common_step() + 60)  # 6 s at 100 ms a step
    rig.nodes.control.thaw(container="coordinator", **which)
    assert_recovered(job, [], STEPS)
    assert job.incidents() == []
