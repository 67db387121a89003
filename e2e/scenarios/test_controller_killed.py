"""The MindIO controller, or its whole pod, is lost at every phase of every action: nothing starts anew.

A rank stands in a handler when that happens; it ends by itself, and another controller goes on. `make slow` plays one
point of each action, HAJOB_EVERY_POINT=1 (`make e2e`) all, and `HAJOB_LOSSES` as many at random moments.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from e2e.harness.controllers import kill_mindio
from e2e.harness.marks import EVERY_POINT, only_e2e
from e2e.harness.rig import Rig
from e2e.scenarios.proofs import assert_weights_equal
from e2e.scenarios.repairs_in_place import (
    HANDLERS,
    PATIENCE,
    STEPS,
    assert_protected_again,
    begin_repair,
    delete_coordinator_pod,
    ended_well,
    training,
)
from e2e.trainer.store_wire import UNHEARD_OF

pytestmark = pytest.mark.slow

RANDOM_LOSSES = int(os.environ.get("HAJOB_LOSSES", "3"))
POINTS = [(action, at) for action, handlers in HANDLERS.items() for at in handlers]
WITH_THE_POD = [("InPlace", "stop"), ("InPlace", "rebuild"), ("InPlace", "repair")]
if not EVERY_POINT:
    POINTS = [("InPlace", "rebuild")]
    WITH_THE_POD = POINTS


@pytest.mark.timeout(1200)
def test_lost_in_every_handler_of_a_repair(rig: Rig) -> None:
    job = training(rig)
    for number, (action, handler) in enumerate(POINTS, 1):
        begin_repair(rig, job, action, handler, number)
        kill_mindio(rig, job)
        assert_protected_again(job, number, number)
    assert_weights_equal(job, STEPS)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("action", "handler"), WITH_THE_POD)
def test_a_repair_whose_store_is_lost_is_saved(rig: Rig, action: str, handler: str) -> None:
    """The whole pod goes, and with it a store whose dialect no gate knows: ranks that cannot meet lose no step."""
    job = training(rig, torch=UNHEARD_OF)
    begin_repair(rig, job, action, handler, 1)
    delete_coordinator_pod(rig, job)
    job.plane.wait("the incident's end", lambda: ended_well(job, 1), PATIENCE)
    (incident,) = job.incidents()
    assert incident["action"] == "Restart", incident
    if handler != "stop":  # in between nothing can be saved: mindio.md, 11.5
        assert (incident.get("escalatedFrom", []), incident["lostSteps"]) == ([action, "Checkpoint"], 0), incident
    assert_weights_equal(job, STEPS)


@pytest.mark.timeout(3600)
@only_e2e
def test_lost_at_random_moments_of_a_training_with_faults(rig: Rig) -> None:
    chance = random.Random(os.environ.get("HAJOB_SEED", "1"))
    steps = STEPS + 40 * RANDOM_LOSSES
    job = training(rig, steps)
    for number in range(1, RANDOM_LOSSES + 1):
        rig.nodes.control.kill(namespace=rig.namespace, rank=number % job.world())
        time.sleep(chance.uniform(0.0, 3.0))  # the moment is what is looked for
        kill_mindio(rig, job)
        assert_protected_again(job, number, number)
        job.wait_step(job.common_step() + 2)
    assert_weights_equal(job, steps)
