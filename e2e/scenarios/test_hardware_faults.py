"""What device plugin and NodeD tell of chips and nodes, in their exact formats, does to a training: its level says."""

from __future__ import annotations

import pytest

from e2e.harness.job import Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig
from e2e.scenarios.proofs import assert_recovered

pytestmark = pytest.mark.slow

ITERATIONS = 300
STEP_MILLISECONDS = 200.0
"""A training goes on while its next pods start: it outlasts them on a slow machine, too, and is hurried afterwards."""
CHIPS = 2


def chip_of(job: Job, rank: int) -> tuple[str, int]:
    """Node and number of the chip that a rank has: ranks of a pod take its chips in order, lowest first."""
    return job.node_of(rank // CHIPS), rank % CHIPS


def test_a_chip_that_must_be_reset_is_left(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS)
    job.wait_step(10)
    node, chip = chip_of(job, 3)
    rig.nodes.control.break_chip(node, chip, code="40F84E00", level="RestartNPU")
    incident = job.wait_incident(2)
    assert (incident["action"], incident["cause"]["source"], incident["cause"]["code"]) == (
        "Replace",
        "Device",
        "40F84E00",
    )
    assert incident["cause"]["firstRank"] == 2
    assert chip_of(job, 3)[0] != node
    assert_recovered(job, [2, 3], ITERATIONS)


def test_a_mild_chip_error_restarts_its_process_only(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS)
    job.wait_step(10)
    node, chip = chip_of(job, 3)
    rig.nodes.control.break_chip(node, chip, code="80C98000", level="RestartRequest")
    incident = job.wait_incident(2)
    assert (incident["action"], incident["cause"]["firstRank"], incident["cause"]["numRanks"]) == ("InPlace", 3, 1)
    assert chip_of(job, 3)[0] == node
    assert_recovered(job, [3], ITERATIONS)


def test_a_chip_error_of_no_consequence_does_nothing(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS)
    job.wait_step(10)
    rig.nodes.control.break_chip(*chip_of(job, 3), code="81078603", level="NotHandleFault")
    job.wait_step(job.common_step() + 20)
    assert job.incidents() == []


def test_a_sub_healthy_chip_is_left_while_the_training_goes_on(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS)
    job.wait_step(10)
    node, chip = chip_of(job, 1)
    rig.nodes.control.break_chip(node, chip, code="80E18400", level="SubHealthFault")
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Migrate", 0)
    assert (incident["cause"]["source"], incident["cause"]["code"]) == ("Device", "80E18400")
    assert chip_of(job, 1)[0] != node
    assert_recovered(job, [0, 1], ITERATIONS)


@only_e2e
def test_hardware_of_the_node_that_breaks_moves_its_ranks(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS)
    job.wait_step(10)
    node = job.node_of(1)
    broken = {"device": "CPU", "deviceId": 0, "codes": ["2C000031"], "level": "SeparateFault"}
    rig.nodes.control.set_node_faults(node, [broken])
    incident = job.wait_incident(2)
    assert (incident["action"], incident["cause"]["source"], incident["cause"]["numRanks"]) == ("Replace", "NodeD", 2)
    assert job.node_of(1) != node
    assert_recovered(job, [2, 3], ITERATIONS)
