"""Both recoveries, whole: from `kubectl apply` over a fault to weights that equal an undisturbed training's."""

from __future__ import annotations

from collections.abc import Callable

from e2e.harness.rig import Layout as RigLayout
from e2e.harness.rig import Rig
from e2e.scenarios.conftest import Baseline
from e2e.scenarios.proofs import assert_phases_add_up, assert_recovered
from e2e.trainer.layout import Layout

STEPS = 100


def test_a_killed_process_comes_back_in_place(rig: Rig, baseline: Baseline) -> None:
    job = rig.submit(iterations=STEPS)
    job.wait_step(5)
    rig.nodes.control.kill(namespace=rig.namespace, rank=5)
    incident = job.wait_incident(2)
    assert (incident["action"], incident["cause"]["firstRank"], incident["restoredFrom"]) == (
        "InPlace",
        5,
        "OptimizerCopy",
    )
    layout = Layout(2, 4, 1)
    assert_recovered(job, layout, [5], baseline(2, 1, 4, STEPS))
    assert_phases_add_up(job, 2, layout)


def test_the_node_of_rank_zero_is_replaced(rig: Rig, baseline: Baseline) -> None:
    job = rig.submit(iterations=STEPS)
    job.wait_step(5)
    lost = job.node_of(0)
    rig.nodes.control.power_off(lost)
    incident = job.wait_incident(2)
    assert incident["action"] == "Replace"
    assert incident["cause"]["nodeName"] == lost
    assert job.node_of(0) != lost
    layout = Layout(2, 4, 1)
    assert_recovered(job, layout, [0, 1], baseline(2, 1, 4, STEPS))
    assert_phases_add_up(job, 2, layout)


def test_tensor_pipeline_and_data_parallel_at_once(rig: Rig, baseline: Baseline) -> None:
    job = rig.submit(iterations=STEPS, tensor=2, pipeline=2)
    job.wait_step(5)
    rig.nodes.control.kill(namespace=rig.namespace, rank=0)
    assert job.wait_incident(2)["action"] == "InPlace"
    assert_recovered(job, Layout(2, 2, 2), [0], baseline(2, 2, 2, STEPS))


def test_a_second_process_dies_while_a_node_is_replaced(rig: Rig, baseline: Baseline) -> None:
    job = rig.submit(iterations=STEPS)
    job.wait_step(5)
    rig.nodes.control.power_off(job.node_of(3))
    rig.plane.wait("an incident", job.incidents)
    rig.nodes.control.kill(namespace=rig.namespace, rank=2)
    incident = job.wait_incident(2)
    assert incident["action"] == "Replace"
    assert len(job.incidents()) == 1
    assert_recovered(job, Layout(2, 4, 1), [2, 6, 7], baseline(2, 1, 4, STEPS))


def test_a_node_that_comes_back_to_life_disturbs_nothing(rig: Rig, baseline: Baseline) -> None:
    job = rig.submit(iterations=STEPS)
    job.wait_step(5)
    lost = job.node_of(0)
    rig.nodes.control.power_off(lost)
    job.wait_incident(2)
    rig.nodes.control.thaw_node(lost)
    rig.nodes.control.kill(namespace=rig.namespace, rank=4)
    assert job.wait_incident(3)["action"] == "InPlace"
    assert_recovered(job, Layout(2, 4, 1), [0, 1, 4], baseline(2, 1, 4, STEPS))


def test_gates_without_a_lease_hold_and_nothing_is_lost(rig: Rig, baseline: Baseline) -> None:
    job = rig.submit(iterations=STEPS)
    job.wait_step(5)
    control, pod = rig.nodes.control, job.pods("coordinator")[0]["metadata"]["name"]
    control.freeze(namespace=rig.namespace, pod=pod, container="coordinator")
    begin = job.common_step()
    job.wait_step(begin + 50)
    control.thaw(namespace=rig.namespace, pod=pod, container="coordinator")
    assert_recovered(job, Layout(2, 4, 1), [], baseline(2, 1, 4, STEPS))
    assert job.incidents() == []


def test_two_nodes_at_once(start_rig: Callable[[RigLayout], Rig], baseline: Baseline) -> None:
    rig = start_rig(RigLayout(chip_nodes=6))
    job = rig.submit(iterations=STEPS)
    job.wait_step(5)
    for node_rank in (0, 1):
        rig.nodes.control.power_off(job.node_of(node_rank))
    incident = job.wait_incident(2)
    assert incident["action"] == "Replace"
    assert_recovered(job, Layout(2, 4, 1), [0, 1, 2, 3], baseline(2, 1, 4, STEPS))
