"""The MindIO controller, or its whole pod, is lost at every phase of every action: nothing starts anew.

A rank stands in a handler when that happens; it ends by itself, and another controller goes on. `make slow` plays one
point of each action, HAJOB_EVERY_POINT=1 (`make e2e`) all, and `HAJOB_LOSSES` as many at random moments.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from e2e.harness.controllers import coordinator, kill_mindio
from e2e.harness.job import Job
from e2e.harness.marks import EVERY_POINT, only_e2e
from e2e.harness.rig import Rig
from e2e.scenarios.proofs import assert_weights_equal
from e2e.trainer import faults
from e2e.trainer.store_wire import NEW, UNHEARD_OF, VARIABLE, Version

pytestmark = pytest.mark.slow

STEPS = 600
STEP_MILLISECONDS = 150
PATIENCE = 150.0
RANDOM_LOSSES = int(os.environ.get("HAJOB_LOSSES", "3"))
UNLIMITED = [{"name": name, "maxCount": 1000} for name in ("InPlace", "Replace", "Retry")]
HANDLERS = {
    "InPlace": ["stop", "clean", "rebuild", "repair", "rollback"],
    "Retry": ["stop", "clean", "repair", "rollback"],
}
POINTS = [(action, at) for action, handlers in HANDLERS.items() for at in handlers]
WITH_THE_POD = [("InPlace", "stop"), ("InPlace", "rebuild"), ("InPlace", "repair")]
if not EVERY_POINT:
    POINTS = [("InPlace", "rebuild")]
    WITH_THE_POD = POINTS


def delete_the_pod(rig: Rig, job: Job) -> None:
    """All of it, store included."""
    rig.plane.api.delete(f"/api/v1/namespaces/{rig.namespace}/pods/{coordinator(job)}", gracePeriodSeconds=0)


def training(rig: Rig, steps: int = STEPS, torch: Version = NEW) -> Job:
    """One that trains, protected."""
    speech, spec = {VARIABLE: torch.name}, {"recovery": {"actions": UNLIMITED}}
    job = rig.submit(iterations=steps, step_milliseconds=STEP_MILLISECONDS, environment=speech, spec=spec)
    job.wait_step(5)
    job.wait_condition("CoordinatorReady")
    return job


def begin(rig: Rig, job: Job, action: str, handler: str, number: int) -> None:
    """A fault, and a rank that takes its time in a handler of its repair; returns when it stands there."""
    lost = 3
    rank = lost if handler in ("repair", "rollback") else 1
    slow = f"rank={rank} at={handler} do=slow seconds=3.{number:03}"
    uce = f"rank={lost} do=raise text=UCE_ERROR_{number}"
    faults.order(job.logs, slow, *([uce] if action == "Retry" else []))
    if action == "InPlace":
        job.wait_step(job.common_step() + 3)
        rig.nodes.control.kill(namespace=rig.namespace, rank=lost)
    mark = faults.Fault.parse(slow).mark(job.logs, rank)
    rig.plane.wait(f"rank {rank} to be in {handler}", mark.exists, PATIENCE)


def assert_protected_again(job: Job, incidents: int, takeovers: int) -> None:
    """The incident ended well, and another controller protects the job."""
    job.plane.wait("the incident's end", lambda: ended_well(job, incidents), PATIENCE)
    job.plane.wait("the takeover", lambda: job.takeovers() >= takeovers, PATIENCE)
    job.wait_condition("CoordinatorReady")
    assert job.status()["restarts"] == {"infrastructure": 0, "program": 0}, job.incidents()


def ended_well(job: Job, incidents: int) -> bool:
    """The newest one is of this number, the start being none, and all recovered; another outcome ends the wait."""
    found = job.incidents()
    outcomes = {incident.get("outcome", "") for incident in found}
    assert "Failed" not in outcomes, found
    newest = max((int(incident["incarnation"]) for incident in found), default=0)
    return newest > incidents and outcomes == {"Recovered"}


@pytest.mark.timeout(1200)
def test_lost_in_every_handler_of_a_repair(rig: Rig) -> None:
    job = training(rig)
    for number, (action, handler) in enumerate(POINTS, 1):
        begin(rig, job, action, handler, number)
        kill_mindio(rig, job)
        assert_protected_again(job, number, number)
    assert_weights_equal(job, STEPS)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("action", "handler"), WITH_THE_POD)
def test_a_repair_whose_store_is_lost_is_saved(rig: Rig, action: str, handler: str) -> None:
    """The whole pod goes, and with it a store whose dialect no gate knows: ranks that cannot meet lose no step."""
    job = training(rig, torch=UNHEARD_OF)
    begin(rig, job, action, handler, 1)
    delete_the_pod(rig, job)
    job.plane.wait("the incident's end", lambda: ended_well(job, 1), PATIENCE)
    (incident,) = job.incidents()
    assert incident["action"] == "Restart", incident
    if handler != "stop":  # in between nothing can be saved: mindio.md, 11.5
        assert (incident["escalatedFrom"], incident["lostSteps"]) == ([action, "Checkpoint"], 0), incident
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
