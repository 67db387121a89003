"""One fault, one recovery, and the training ends as if nothing had happened."""

from __future__ import annotations

import pytest

from e2e.harness.account import Recovery, recovery
from e2e.harness.job import Job
from e2e.harness.rig import Rig
from e2e.harness.undisturbed import undisturbed
from e2e.scenarios.proofs import assert_recovered

ITERATIONS = 250
MOST_WRITES = 12
AWAY_STEPS = 100
"""At least five seconds without an operator."""


def check(rig: Rig, job: Job, found: Recovery, action: str, *, pipeline: int = 1, data: int = 4) -> None:
    """The recovery was the promised one, it cost few writes, and the weights are those of an undisturbed run."""
    assert found.action == action
    assert found.broken_promises == []
    assert found.write_count <= MOST_WRITES, found.writes
    job.hurry()
    job.wait_condition("Complete", seconds=120)
    reference = undisturbed(rig.plane.run, tensor=2, pipeline=pipeline, data=data, iterations=ITERATIONS)
    assert job.weights_differ(reference) == []


@pytest.mark.parametrize(("pipeline", "data", "rank"), [(1, 4, 3), (1, 4, 0), (2, 2, 5)])
def test_a_killed_process_is_restarted_in_place(rig: Rig, pipeline: int, data: int, rank: int) -> None:
    job = rig.submit(iterations=ITERATIONS, pipeline=pipeline)
    job.wait_step(10)
    fault = rig.nodes.control.kill(namespace=rig.namespace, rank=rank)
    job.wait_incident(2)

    found = recovery(rig, job, f"rank {rank} killed", fault["time"], incarnation=2, lost_ranks=[rank])

    check(rig, job, found, "InPlace", pipeline=pipeline, data=data)


def test_the_node_of_rank_zero_is_replaced(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS)
    job.wait_step(10)
    node = job.node_of(0)
    fault = rig.nodes.control.power_off(node)
    job.wait_incident(2)

    found = recovery(rig, job, f"{node} powered off", fault["time"], incarnation=2, lost_ranks=[0, 1])

    assert job.node_of(0) != node
    check(rig, job, found, "Replace")


def test_an_operator_that_stands_still_in_the_middle_changes_nothing(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS)
    job.wait_step(10)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    rig.plane.wait("the decision", job.incidents)
    rig.nodes.control.freeze(namespace=rig.operator_namespace, container="operator")
    job.wait_step(job.common_step() + AWAY_STEPS)
    rig.nodes.control.thaw(namespace=rig.operator_namespace, container="operator")
    assert job.wait_incident(2)["action"] == "InPlace"
    assert_recovered(job, [3], ITERATIONS)
