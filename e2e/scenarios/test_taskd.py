"""Images that start TaskD: its manager holds MindIO's controller, its agents start the ranks, and Hajob is ClusterD."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from e2e.cluster.loopback import own_port
from e2e.demo.acts import SUB_HEALTH
from e2e.harness.images import is_real_taskd, taskd_environment
from e2e.harness.job import IMPATIENT, Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios.proofs import assert_recovered, assert_weights_equal
from e2e.trainer import proof
from e2e.trainer.faults import order

ITERATIONS = 300
STEP_MILLISECONDS = 200.0
"""A replaced pod starts a manager's agent and torchrun before its ranks: the training outlasts them, and is hurried."""
pytestmark = pytest.mark.timeout(600)
StartRig = Callable[[RigLayout], Rig]


def submit(rig: Rig, **more: Any) -> Job:  # noqa: ANN401 - fields of `manifest`
    """Submit a job whose start script starts TaskD, and wait until it trains."""
    environment = {**taskd_environment(), **more.pop("environment", {})}
    spec = {"launcher": "TaskD", **real_network(), **more.pop("spec", {})}
    fields = {"iterations": ITERATIONS, "step_milliseconds": STEP_MILLISECONDS, **more}
    job = rig.submit(script="train_taskd.sh", environment=environment, spec=spec, **fields)
    job.wait_step(10)
    return job


def real_network() -> dict[str, Any]:
    """The real torchrun serves its store on every address of the machine, where other jobs have theirs at 29500."""
    return {"network": {"rendezvousPort": own_port()}} if is_real_taskd() else {}


def without(*names: str) -> dict[str, Any]:
    """Actions that the spec forbids."""
    return {"recovery": {"actions": [{"name": name, "maxCount": 0} for name in names]}}


def processes(rig: Rig, words: str) -> list[int]:
    """Process IDs of the job's processes that were started so."""
    found = rig.nodes.control.processes(container="trainer")
    return [one.pid for one in found if words in " ".join(one.command)]


def test_taskd_starts_a_killed_rank_again_in_place(rig: Rig) -> None:
    job = submit(rig)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("InPlace", 0)
    assert_recovered(job, [3], ITERATIONS)


@only_e2e
def test_a_killed_rank_beside_the_manager_costs_a_restart(rig: Rig) -> None:
    """TaskD's manager would end 25 minutes later, whatever was recovered: the step is saved, and all start anew."""
    job = submit(rig)
    rig.nodes.control.kill(namespace=rig.namespace, rank=0)
    incident = job.wait_incident(2)
    assert (incident["action"], incident["escalatedFrom"], incident["lostSteps"]) == ("Restart", ["Checkpoint"], 0)
    assert {"action": "InPlace", "unmet": ["ManagerAlive"]} in incident["refused"]
    assert_weights_equal(job, ITERATIONS)


def test_a_node_under_taskd_is_replaced(rig: Rig) -> None:
    job = submit(rig)
    node = job.node_of(2)
    rig.nodes.control.power_off(node)
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Replace", 0)
    assert job.node_of(2) != node
    assert_recovered(job, [4, 5], ITERATIONS)


@pytest.mark.slow
def test_the_node_of_the_manager_restarts_every_pod(rig: Rig) -> None:
    job = submit(rig, arguments=["--save-interval", "5"])
    told = {one["action"]: one.get("message", "") for one in job.status()["recoverability"]}
    assert "not for node rank 0" in told["Replace"]
    rig.nodes.control.power_off(job.node_of(0))
    incident = job.wait_incident(2)
    assert incident["action"] == "Restart"
    assert {"action": "Replace", "unmet": ["ManagerAlive"]} in incident["refused"]
    assert_weights_equal(job, ITERATIONS)


@only_e2e
def test_a_retry_under_taskd_that_fails_is_named_again(rig: Rig) -> None:
    """The second globalFault of a cycle is heard only under another uuid."""
    job = submit(rig)
    order(job.logs, f"rank=3 step={job.common_step() + 5} do=raise text=UCE_ERROR")
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Retry", 0)
    order(job.logs, f"rank=3 step={job.common_step() + 5} do=raise text=UCE_ERROR_2", "rank=3 at=clean do=fail")
    incident = job.wait_incident(3)
    assert (incident["action"], incident["escalatedFrom"]) == ("InPlace", ["Retry"])
    assert_recovered(job, [3], ITERATIONS)


@pytest.mark.slow
def test_a_job_under_taskd_shrinks_and_grows_back(start_rig: StartRig) -> None:
    rig = start_rig(RigLayout(chip_nodes=4))
    job = submit(rig, iterations=600, spec=dict(IMPATIENT), arguments=["--enable-elastic-training"])
    node = job.node_of(2)
    rig.nodes.control.power_off(node)
    incident = job.wait_incident(2)
    assert incident["action"] == "Shrink"
    rig.nodes.control.power_on(node)
    rig.plane.wait("the original size", lambda: job.status()["dataParallel"]["current"] == 4, seconds=150)
    assert job.wait_incident(3)["action"] == "Expand"
    assert not any(each.is_restart for each in proof.outages(job.events(), job.world()))
    assert_weights_equal(job, 600)


@only_e2e
def test_a_node_is_left_by_a_hot_switch_under_taskd(rig: Rig) -> None:
    job = submit(rig)
    node = job.node_of(1)
    rig.plane.kubectl("cordon", node)
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Migrate", 0)
    assert job.node_of(1) != node
    assert_recovered(job, [2, 3], ITERATIONS)


@only_e2e
def test_a_pause_under_taskd_ends_and_a_fault_follows(rig: Rig) -> None:
    job = submit(rig)
    job.patch({"spec": {"pause": {"requestTime": "2026-11-22T01:00:00Z"}}})
    assert job.wait_condition("Running", "False")["reason"] == "Paused"
    job.patch({"spec": {"pause": None}})
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Pause", 0)
    rig.nodes.control.kill(namespace=rig.namespace, rank=5)
    assert job.wait_incident(3)["action"] == "InPlace"
    assert_recovered(job, [5], ITERATIONS)


@pytest.mark.slow
def test_a_stress_test_quarantines_what_it_finds_bad(rig: Rig) -> None:
    """Rank 3's chip is bad; of rank 0's the test could not be executed, from which nothing follows."""
    job = submit(rig, environment={"TASKD_STRESS": "3=2,0=1"})
    node = job.node_of(1)
    test = {"operations": ["AiCore"]}
    job.patch({"spec": {"pause": {"requestTime": "2026-11-22T02:00:00Z", "timeoutSeconds": 900, "stressTest": test}}})
    incident = job.wait_incident(3)
    assert (incident["action"], incident["cause"]["code"]) == ("Replace", "PauseHookFailed")
    assert (incident["cause"]["nodeName"], incident["lostSteps"]) == (node, 0)
    assert job.node_of(1) != node
    quarantine = rig.plane.api.get(f"/apis/training.hajob.io/v1alpha1/nodequarantines/{node}")
    assert "stress test" in quarantine["spec"]["message"]
    assert_recovered(job, [2, 3], ITERATIONS)


@only_e2e
def test_rails_are_borrowed_and_given_back_in_pauses(rig: Rig) -> None:
    """TaskD hears of ranks 2 and 3, first to the borrowed rail, then back; a chip that the node has not is left out."""
    job = submit(rig, spec={"accelerator": {"product": "A3", "chipsPerNode": 2}})
    node = job.node_of(1)
    for hour, rail in ((1, "Borrowed"), (2, "Own")):
        switch = {"nodeName": node, "chips": [0, 1, 63], "rail": rail}
        job.patch({"spec": {"pause": {"requestTime": f"2026-11-22T0{hour}:00:00Z", "switchRails": [switch]}}})
        incident = job.wait_incident(1 + hour)
        assert (incident["action"], incident["lostSteps"]) == ("Pause", 0)
        job.wait_step(job.common_step() + 5)
    (first,) = [one for one in job.pods("rank") if one["metadata"]["labels"]["training.hajob.io/node-rank"] == "0"]
    words = ("logs", first["metadata"]["name"], "--container=trainer", f"--namespace={rig.namespace}")
    said = rig.plane.kubectl(*words).stdout
    spoken = [line.partition("switch nic: ")[2] for line in said.splitlines() if "switch nic: " in line]
    assert spoken == ["{'2': True, '3': True}", "{'2': False, '3': False}"]
    assert_recovered(job, [], ITERATIONS)


@only_e2e
def test_a_save_under_taskd_is_what_the_next_start_loads(rig: Rig) -> None:
    job = submit(rig, spec=without("Retry", "InPlace", "Replace", "Shrink"))
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    incident = job.wait_incident(2)
    assert (incident["action"], incident["escalatedFrom"], incident["lostSteps"]) == ("Restart", ["Checkpoint"], 0)
    job.patch({"spec": {"suspend": True}})
    job.wait_condition("Suspended")
    job.patch({"spec": {"suspend": False}})
    job.wait_condition("Running")
    assert_weights_equal(job, ITERATIONS)


@only_e2e
def test_a_lost_manager_is_answered_with_a_restart(rig: Rig) -> None:
    job = submit(rig, arguments=["--save-interval", "20"])
    for manager in processes(rig, "manager.py"):
        os.kill(manager, signal.SIGKILL)
    job.wait_condition("CoordinatorReady", "False")
    rig.plane.wait("the restart", lambda: job.status()["restarts"]["infrastructure"] == 1)
    job.wait_condition("CoordinatorReady")
    assert_weights_equal(job, ITERATIONS)


@only_e2e
def test_coordinator_and_agent_are_lost_beside_taskd(rig: Rig) -> None:
    """Neither holds what TaskD holds: the next fault is recovered as if they had been there."""
    job = submit(rig)
    (pod,) = job.pods("coordinator")
    name = pod["metadata"]["name"]
    rig.plane.api.delete(f"/api/v1/namespaces/{rig.namespace}/pods/{name}", gracePeriodSeconds=0)
    rig.plane.wait(
        "another coordinator", lambda: [one["metadata"]["name"] for one in job.pods("coordinator")] != [name]
    )
    job.wait_condition("CoordinatorReady")
    (first,) = [one for one in job.pods("rank") if one["metadata"]["labels"]["training.hajob.io/node-rank"] == "0"]
    rig.nodes.control.kill(namespace=rig.namespace, pod=first["metadata"]["name"], container="agent")
    job.wait_step(job.common_step() + 10)
    rig.nodes.control.kill(namespace=rig.namespace, rank=6)
    incident = job.wait_incident(max(int(one["incarnation"]) for one in rig.plane.wait("it", job.incidents)))
    assert (incident["action"], incident["lostSteps"]) == ("InPlace", 0)
    assert_recovered(job, [6], ITERATIONS)


@only_e2e
def test_a_coordinator_away_for_long_costs_a_restart(rig: Rig) -> None:
    """Its gates pass nothing, so MindIO gives up the ranks; the fault meanwhile is part of the same restart."""
    job = submit(rig, arguments=["--save-interval", "10"])
    (first,) = [one for one in job.pods("rank") if one["metadata"]["labels"]["training.hajob.io/node-rank"] == "0"]
    words = ("logs", first["metadata"]["name"], "--container=agent", f"--namespace={rig.namespace}")

    def reports() -> int:
        return rig.plane.kubectl(*words).stdout.count("agent.taskd.server: TaskD:")

    assert reports() == 0
    rig.nodes.control.freeze(namespace=rig.namespace, container="coordinator")
    rig.plane.wait("MindIO to miss the ranks", reports)
    rig.nodes.control.kill(namespace=rig.namespace, rank=5)
    rig.nodes.control.thaw(namespace=rig.namespace, container="coordinator")

    def recovered(action: str) -> list[dict[str, Any]]:
        return [one for one in job.incidents() if one["action"] == action and one["outcome"] == "Recovered"]

    rig.plane.wait("the restart", lambda: recovered("Restart"))
    assert job.status()["restarts"]["infrastructure"] == 1
    rig.nodes.control.kill(namespace=rig.namespace, rank=6)
    assert rig.plane.wait("a recovery in place", lambda: recovered("InPlace"))[0]["lostSteps"] == 0
    assert_weights_equal(job, ITERATIONS)


@only_e2e
@pytest.mark.timeout(900)
def test_the_six_faults_of_the_demo_under_taskd(start_rig: StartRig) -> None:
    """The second costs a restart: TaskD's manager is on the node of rank 0. Of the sixth the coordinator's pod is lost.

    With its node it would be away for longer than MindIO, in the manager, goes on without hearing the ranks.
    """
    rig = start_rig(RigLayout(plain_nodes=2))
    spec = {**IMPATIENT, "scheduling": {"numSpareNodes": 1}}
    arguments = ["--enable-elastic-training", "--save-interval", "10"]
    job = submit(rig, iterations=1000, spec=spec, arguments=arguments)
    done: list[str] = []

    def recovered(action: str) -> None:
        """The next fault has led to this action, and the training has gone on."""
        newest = lambda: [one for one in reversed(job.incidents()) if one["outcome"] == "Recovered"][len(done) :]  # noqa: E731
        found = rig.plane.wait(f"fault {len(done) + 1} to end with {action}", newest, 200)
        assert found[0]["action"] == action
        done.append(action)
        job.wait_step(job.common_step() + 15)

    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    recovered("InPlace")
    first = job.node_of(0)
    rig.nodes.control.power_off(first)
    recovered("Restart")
    lost = job.node_of(2)
    rig.nodes.control.power_off(lost)
    recovered("Shrink")
    rig.nodes.control.power_on(lost)
    recovered("Expand")
    rig.nodes.control.power_on(first)
    rig.plane.wait("a spare", lambda: job.pods("spare"), 120)
    rig.nodes.control.break_chip(job.node_of(1), 0, **SUB_HEALTH)
    recovered("Migrate")
    (before,) = job.pods("coordinator")
    path = f"/api/v1/namespaces/{rig.namespace}/pods/{before['metadata']['name']}"
    rig.plane.api.delete(path, gracePeriodSeconds=0)
    others = lambda: [one for one in job.pods("coordinator") if one["metadata"]["uid"] != before["metadata"]["uid"]]  # noqa: E731
    rig.plane.wait("another coordinator", others, 120)
    job.wait_condition("CoordinatorReady")
    rig.nodes.control.kill(namespace=rig.namespace, rank=7)
    recovered("InPlace")
    assert_weights_equal(job, 1000)
