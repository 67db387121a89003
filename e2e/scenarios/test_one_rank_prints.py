"""Megatron prints on the last rank only: what the others have done is known from MindIO's heartbeats."""

from __future__ import annotations

from typing import Any

from e2e.harness.job import Job
from e2e.harness.rig import Rig
from e2e.scenarios.proofs import assert_recovered

STEPS = 300
SMALL: dict[str, Any] = {"tensor": 1, "nodes": 2, "chips": 1, "iterations": STEPS}
STUCK_STEP = 20
HANG = {"stepTimeMultiple": 20, "minTimeoutSeconds": 3}  # 20 × 100 ms are less


def wait_runs(job: Job) -> None:
    """It leaves Warming, although one of its ranks never prints a step."""

    def trains() -> bool:
        conditions = {each["type"]: each for each in job.status().get("conditions", [])}
        return "Running" in conditions and conditions["Running"]["reason"] == "Training"

    job.plane.wait("the training of a job that prints on one rank", trains, 60)
    job.plane.wait("its step", lambda: job.status().get("progress", {}).get("step", -1) >= 1, 60)


def test_a_healthy_job_whose_last_rank_alone_prints_runs(rig: Rig) -> None:
    job = rig.submit("quiet", **SMALL)
    wait_runs(job)
    job.wait_step(10)
    rig.nodes.control.kill(namespace=rig.namespace, rank=1)  # the one that prints
    incident = job.wait_incident(2)
    assert incident["action"] == "InPlace"
    assert_recovered(job, [1], STEPS)


def test_a_rank_that_hangs_without_printing_is_blamed(rig: Rig) -> None:
    stuck = ["--fault", f"rank=0 step={STUCK_STEP} at=update do=hang"]
    job = rig.submit("quiet", **SMALL, arguments=stuck, spec={"recovery": {"hang": HANG}})
    wait_runs(job)
    incident = job.wait_incident(2)
    cause = incident["cause"]
    assert (incident["action"], cause["code"], cause["firstRank"], cause["numRanks"]) == ("InPlace", "Hang", 0, 1)
    assert_recovered(job, [0], STEPS)
