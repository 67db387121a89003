"""One fault, one recovery, and the training ends as if nothing had happened."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from e2e.harness.account import Recovery, recovery
from e2e.harness.controllers import kill_mindio
from e2e.harness.job import Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig
from e2e.harness.undisturbed import undisturbed
from e2e.scenarios.proofs import assert_recovered, assert_weights_equal
from e2e.trainer import proof
from e2e.trainer.faults import order
from hajob.api.constants import LABEL_NODE_RANK

ITERATIONS = 300
LONG = 1500
MOST_WRITES = 12
AWAY_STEPS = 50
"""At least five seconds without an operator."""

AWAY_SECONDS = 60.0
SLOW_STEP = 300.0
"""Milliseconds; the training must outlast an operator that is away for a minute."""
NODE_STORAGE: dict[str, Any] = {
    "arguments": ["--no-shared-storage"],
    "spec": {"network": {"interface": "lo"}},
}
"""A third of the published scripts say so: their ranks come back through a barrier of their node."""
ACTIONS = ("Retry", "InPlace", "Replace", "Shrink", "Checkpoint", "Restart")


def check(rig: Rig, job: Job, found: Recovery, action: str, *, pipeline: int = 1, data: int = 4) -> None:
    """The recovery was the promised one, it cost few writes, and the weights are those of an undisturbed run."""
    assert found.action == action
    assert found.broken_promises == []
    assert found.write_count <= MOST_WRITES, found.writes
    job.hurry()
    job.wait_condition("Complete", seconds=120)
    reference = undisturbed(rig.plane.run, tensor=2, pipeline=pipeline, data=data, iterations=ITERATIONS)
    assert job.weights_differ(reference) == []


def wait_trains(rig: Rig, job: Job, fault_ns: int) -> None:
    """Until the incident is over and the logs of all ranks show the first step after it."""
    job.wait_incident(2)
    rig.plane.wait(
        "the first step of all ranks",
        lambda: any(each.end_ns > fault_ns for each in proof.outages(job.events(), job.world())),
    )


def starts(job: Job, rank: int) -> list[str]:
    """How many processes each start of a rank was told to come with; all have what torchrun gives, and the network."""
    events = [event for event in proof.of(job.events(), "exec") if event["rank"] == rank]
    for event in events:
        assert event["leads_session"]
        assert event["unbuffered"]
        assert event["variables"]["GLOO_SOCKET_IFNAME"] == event["variables"]["HCCL_SOCKET_IFNAME"] == "lo"
        assert event["variables"]["OMP_NUM_THREADS"] == "1"
    return [str(event["variables"]["RESTART_FAULT_PROCESS_TYPE"]) for event in events]


@pytest.mark.parametrize(
    ("pipeline", "data", "rank"),
    [pytest.param(1, 4, 3, marks=only_e2e), (1, 4, 0), pytest.param(2, 2, 5, marks=only_e2e)],
)
def test_a_killed_process_is_restarted_in_place(rig: Rig, pipeline: int, data: int, rank: int) -> None:
    """It comes back alone, though its script says that nodes share no storage."""
    job = rig.submit(iterations=ITERATIONS, pipeline=pipeline, **NODE_STORAGE)
    job.wait_step(10)
    fault = rig.nodes.control.kill(namespace=rig.namespace, rank=rank)
    wait_trains(rig, job, fault["time"])

    found = recovery(rig, job, f"rank {rank} killed", fault["time"], incarnation=2, lost_ranks=[rank])

    check(rig, job, found, "InPlace", pipeline=pipeline, data=data)
    assert starts(job, rank) == ["pod", "worker"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "trainer", [pytest.param({"TOY_MINDIO_TLS": "job"}, id="ranks-too"), pytest.param({}, id="gates", marks=only_e2e)]
)
def test_mindios_own_tls_recovers(rig: Rig, trainer: dict[str, str]) -> None:
    """A killed process, then a lost controller, then a lost node; a controller with TLS takes nobody without it."""
    spec = {"network": {"interface": "lo", "mindIOTLSPolicy": "Enabled"}}
    job = rig.submit(iterations=LONG, spec=spec, environment=trainer)
    job.wait_step(10)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    assert job.wait_incident(2)["action"] == "InPlace"
    kill_mindio(rig, job)
    rig.plane.wait("another controller", lambda: job.takeovers() == 1)
    rig.nodes.control.power_off(job.node_of(0))
    assert job.wait_incident(3)["action"] == "Replace"
    assert_recovered(job, [0, 1, 3], LONG)


def test_the_node_of_rank_zero_is_replaced(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS, **NODE_STORAGE)
    job.wait_step(10)
    node = job.node_of(0)
    fault = rig.nodes.control.power_off(node)
    wait_trains(rig, job, fault["time"])

    found = recovery(rig, job, f"{node} powered off", fault["time"], incarnation=2, lost_ranks=[0, 1])

    assert job.node_of(0) != node
    check(rig, job, found, "Replace")
    assert starts(job, 0) == starts(job, 1) == ["pod", "pod"]


@only_e2e
def test_a_container_that_is_killed_is_replaced_at_once(rig: Rig) -> None:
    """As by its memory limit: no process is tried in it again."""
    job = rig.submit(iterations=ITERATIONS)
    job.wait_step(10)
    (pod,) = [one for one in job.pods("rank") if one["metadata"]["labels"][LABEL_NODE_RANK] == "1"]
    rig.nodes.control.kill(namespace=rig.namespace, pod=pod["metadata"]["name"], container="trainer")
    incident = job.wait_incident(2)
    assert (incident["action"], incident.get("escalatedFrom", [])) == ("Replace", [])
    assert (incident["cause"]["code"], incident["cause"]["numRanks"]) == ("ContainerKilled", 2)
    assert_recovered(job, [2, 3], ITERATIONS)


@pytest.mark.slow
def test_an_operator_that_stands_still_changes_nothing(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS)
    job.wait_step(10)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    rig.plane.wait("the decision", job.incidents)
    rig.nodes.control.freeze(namespace=rig.operator_namespace, container="operator")
    job.wait_step(job.common_step() + AWAY_STEPS)
    rig.nodes.control.thaw(namespace=rig.operator_namespace, container="operator")
    assert job.wait_incident(2)["action"] == "InPlace"
    assert_recovered(job, [3], ITERATIONS)


def hit(rig: Rig, job: Job, action: str) -> None:
    """A fault that is for this action, where the smaller ones are not allowed."""
    if action == "Replace":
        rig.nodes.control.power_off(job.node_of(1))
    elif action == "Retry":
        order(job.logs, "rank=3 do=raise text=UCE_ERROR")
    else:
        rig.nodes.control.kill(namespace=rig.namespace, rank=3)


@only_e2e
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("action", "by_way_of"), [("Retry", []), ("Replace", []), ("Restart", ["Checkpoint"])])
def test_an_operator_away_for_a_minute_changes_nothing(rig: Rig, action: str, by_way_of: Sequence[str]) -> None:
    first = next(iter(by_way_of), action)
    smaller = [{"name": name, "maxCount": 0} for name in ACTIONS[: ACTIONS.index(first)]]
    spec = {"recovery": {"actions": smaller}}
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=SLOW_STEP, spec=spec)
    job.wait_step(10)
    hit(rig, job, first)
    rig.plane.wait("the decision", job.incidents)
    which = {"namespace": rig.operator_namespace, "container": "operator"}
    rig.nodes.control.freeze(**which)
    assert job.incidents()[0]["outcome"] == "Open", "it is in the middle"
    time.sleep(AWAY_SECONDS)
    rig.nodes.control.thaw(**which)
    incident = job.wait_incident(2, seconds=120)
    assert (incident["action"], incident.get("escalatedFrom", [])) == (action, by_way_of)
    assert incident["lostSteps"] == 0
    assert_weights_equal(job, ITERATIONS)


@only_e2e
def test_a_link_fault_is_retried_then_gets_more_each_time(rig: Rig) -> None:
    """The step done again; where that cannot be, a new process; and when both were tried enough, another node."""
    limits = [{"name": "Retry", "maxCount": 2}, {"name": "InPlace", "maxCount": 1}]
    job = rig.submit(iterations=LONG, step_milliseconds=200.0, spec={"recovery": {"actions": limits}})
    job.wait_step(10)
    node = job.node_of(1)
    more: tuple[tuple[str, list[str], list[str]], ...] = (
        ("Retry", [], []),
        ("InPlace", ["Retry"], ["rank=3 at=clean do=fail"]),
        ("Replace", [], []),
    )
    for incarnation, (action, by_way_of, faults) in enumerate(more, 2):
        order(job.logs, f"rank=3 step={job.common_step() + 5} do=raise text=HCCL_OP_RETRY_FAILED", *faults)
        incident = job.wait_incident(incarnation)
        assert (incident["action"], incident.get("escalatedFrom", []), incident["lostSteps"]) == (action, by_way_of, 0)
        assert incident["cause"]["code"] == "CommunicationFault"
        assert proof.survivors_kept(job.events(), [] if action == "Retry" else [2, 3]) == []
        job.wait_step(job.common_step() + 20)  # MindIO's own result comes 2 s after the first step
    assert job.node_of(1) != node
    assert_recovered(job, [2, 3], LONG)
