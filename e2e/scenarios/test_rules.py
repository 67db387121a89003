"""Faults of which nobody dies: a rank that stands still, a line in the output. The job's own rules tell them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.harness.job import Job
from e2e.harness.rig import Rig
from e2e.scenarios.proofs import assert_recovered, assert_weights_equal
from e2e.trainer import faults, proof
from e2e.trainer.manners import VARIABLE

pytestmark = pytest.mark.slow

STEPS = 300
"""The training outlasts what is asked of it; then it is hurried."""
Logs = Callable[..., tuple[str, str]]
SMALL: dict[str, Any] = {"tensor": 1, "nodes": 2, "chips": 1, "iterations": STEPS}
STUCK_STEP = 20
HANG = {"stepTimeMultiple": 20, "minTimeoutSeconds": 3}  # 20 × 100 ms are less

RULE = {
    "name": "loss-is-nan",
    "pattern": "loss: nan$",
    "threshold": 2,
    "startDelaySeconds": 4,
    "windowSeconds": 2,
    "action": "Restart",
}
TALKING_MILLISECONDS = 50
ALONE, FIRST, SECOND = 100, 160, 161
"""Steps of this length that end with such a line: one too long before the next, then two within the window."""


def test_a_rank_that_hangs_and_a_line_that_a_rule_looks_for(rig: Rig, hajob_logs: Logs) -> None:
    stuck = ["--fault", f"rank=1 step={STUCK_STEP} at=update do=hang"]
    hanging = rig.submit("hanging", **SMALL, arguments=stuck, spec={"recovery": {"hang": HANG}})
    wanted = ["rank=1 at=startup do=nan", *(f"rank=1 step={step} at=updated do=nan" for step in (ALONE, FIRST, SECOND))]
    lines = [word for line in wanted for word in ("--fault", line)]
    rules = {"recovery": {"logRules": [RULE]}}
    prints = {VARIABLE: "-quiet"}  # the message ends with the rank's own step
    talking = rig.submit(
        "talking", **SMALL, arguments=lines, spec=rules, step_milliseconds=TALKING_MILLISECONDS, environment=prints
    )
    assert_stood_still(hanging, hajob_logs)
    assert_met_the_rule(talking)


def test_what_is_edited_reaches_a_job_that_trains(rig: Rig) -> None:
    """No order goes out between an edit and what it changes: the next one would tell the agents anyway."""
    endless: dict[str, Any] = {"recovery": {"hang": {"minTimeoutSeconds": 3600}}}
    job = rig.submit("edited", **SMALL, spec=endless, environment={VARIABLE: "-quiet"})
    job.wait_step(3)
    edit(job, hang=HANG)
    faults.order(job.logs, "rank=1 at=update do=hang")
    hung = job.wait_incident(2)
    assert (hung["action"], hung["cause"]["code"]) == ("InPlace", "Hang")

    rule = {"name": "edited-rule", "pattern": "loss: nan$", "action": "Restart"}
    edit(job, hang=endless["recovery"]["hang"], logRules=[rule], mode="Observe")
    faults.order(job.logs, "rank=1 at=updated do=nan always=1")
    held = job.wait_incident(3, "Open")
    assert held["cause"]["code"] == rule["name"]
    assert job.condition("Held")["reason"] == "ModeObserve"
    assert job.status()["restarts"] == {"infrastructure": 0, "program": 0}

    edit(job, logRules=[], mode="Enforce")
    done = job.wait_incident(3)
    assert (done["action"], done["cause"]["code"]) == ("Restart", rule["name"])
    assert_weights_equal(job, STEPS)


def edit(job: Job, **recovery: object) -> None:
    """Patch these fields of spec.recovery, and wait until the status speaks of them."""
    generation = job.patch({"spec": {"recovery": recovery}})["metadata"]["generation"]
    job.plane.wait("the edit to be observed", lambda: job.status()["observedGeneration"] == generation)


def assert_stood_still(job: Job, hajob_logs: Logs) -> None:
    """One rank is named and restarted in place; where it stood was asked of the process that was then killed."""
    incident = job.wait_incident(2)
    cause = incident["cause"]
    assert (incident["action"], cause["code"], cause["firstRank"], cause["numRanks"]) == ("InPlace", "Hang", 1, 1)
    assert "rank 1 is behind" in cause["message"]
    assert "rank 1 stands here:" in cause["message"]
    assert "in _update" in cause["message"], "the call of the training"
    killed, _ = proof.processes(job.events())[1]
    kept, _ = hajob_logs(job, "--rank", 1, "--previous")  # it still trains
    _, asked, stack = kept.partition(f"hajob: where rank 1, process {killed}, stands:")
    assert asked
    assert "in _update" in stack
    assert_recovered(job, [1], STEPS)


def assert_met_the_rule(job: Job) -> None:
    """The job is started anew because of the second line within the window, and of none before it."""
    incident = job.wait_incident(2)
    cause = incident["cause"]
    assert (incident["action"], cause["code"], cause["firstRank"], cause["numRanks"]) == ("Restart", RULE["name"], 1, 1)
    *_, line, step, last = cause["message"].splitlines()
    assert (line, last) == ("rank 1: loss: nan", "rank 1: loss: nan")
    assert f"iteration {SECOND:8d}/" in step
    assert_weights_equal(job, STEPS)
    assert len(job.incidents()) == 1
    assert job.status()["restarts"] == {"infrastructure": 0, "program": 1}
