"""In real time and with real processes: nothing is set that a manifest need not set, a node is lost, none is free.

The same and every other path are played in virtual time by tests/unit/defaults.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from e2e.harness.rig import Rig, RigLayout

ITERATIONS = 4000
STEP_MILLISECONDS = 400.0
"""The training outlasts the five minutes for which a node is waited for, and the two before it grows; then it is
hurried."""


@pytest.mark.timeout(1800)
@pytest.mark.skipif(not os.environ.get("HAJOB_LONG_TESTS"), reason="ten minutes: make nightly")
def test_a_node_is_lost_with_every_limit_left_alone(start_rig: Callable[[RigLayout], Rig]) -> None:
    rig = start_rig(RigLayout(chip_nodes=4))
    job = rig.submit(
        iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS, arguments=["--enable-elastic-training"]
    )
    job.wait_step(10)
    node = job.node_of(2)
    rig.nodes.control.power_off(node)
    assert job.wait_incident(2, seconds=600)["action"] == "Shrink"
    job.wait_condition("Shrunk", seconds=120)
    rig.nodes.control.power_on(node)
    rig.plane.wait("the original size", lambda: job.status()["dataParallel"]["current"] == 4, seconds=600)
    assert job.wait_incident(3, seconds=600)["action"] == "Expand"
    job.hurry()
    job.wait_condition("Complete", seconds=600)
    assert not job.status()["restarts"]["infrastructure"]
