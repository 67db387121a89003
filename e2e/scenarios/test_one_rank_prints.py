"""Megatron prints on the last rank only: what the others have done is known from MindIO's heartbeats."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from e2e.harness.job import Job
from e2e.harness.rig import Rig
from e2e.scenarios.proofs import assert_recovered

pytestmark = pytest.mark.slow

STEPS = 300
SMALL: dict[str, Any] = {"tensor": 1, "nodes": 2, "chips": 1, "iterations": STEPS}
STUCK_STEP = 20
HANG = {"stepTimeMultiple": 20, "minTimeoutSeconds": 3}  # 20 × 100 ms are less


def wait_runs(job: Job) -> None:
    """It leaves Warming, although one of its ranks never prints a step."""

    def trains() -> bool:
        conditions = {each["type"]: each for each in job.status().get("conditions", [])}
        return "Running" in conditions and conditions["Running"]["reason"] == "Training"

    job.plane.wait("the training of a job that prints on one rank", trains, 120)
    job.plane.wait("its step", lambda: job.status().get("progress", {}).get("step", -1) >= 1, 120)


CONNECT = "<hh4xQ"
"""MindIO's first frame, with the rank at its end."""
MINDIO_PORT = 8000


def call_as_rank_one(job: Job) -> tuple[socket.socket, str]:
    """Another pod tells rank 1's gate that it is rank 1; returns its connection and its address."""
    addresses = {pod["metadata"]["name"].split("-")[1]: pod["status"]["podIP"] for pod in job.pods("rank")}
    stranger = socket.create_connection((addresses["1"], MINDIO_PORT), 5, source_address=(addresses["0"], 0))
    stranger.sendall(struct.pack(CONNECT, 0, 1, 1))
    return stranger, addresses["0"]


def test_a_healthy_job_whose_last_rank_alone_prints_runs(rig: Rig) -> None:
    """A stranger at the gate of the one that prints is held and told; then that rank dies."""
    job = rig.submit("quiet", **SMALL)
    wait_runs(job)
    stranger, address = call_as_rank_one(job)
    told = f"connections from {address} are held"
    rig.plane.wait("the stranger in a condition", lambda: told in job.condition("CoordinatorReady").get("message", ""))
    assert job.condition("CoordinatorReady")["status"] == "True"
    stranger.settimeout(0.2)
    with pytest.raises(TimeoutError):
        stranger.recv(1)  # neither answered nor closed
    job.wait_step(10)
    assert job.incidents() == []
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
