"""A leader that reaches no coordinator restarts no job: it hands over to the standby that does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.harness import cut_off_operator, operator
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios.proofs import assert_recovered

pytestmark = pytest.mark.slow

ITERATIONS = 400
STEP_MILLISECONDS = 250.0
"""Both trainings outlast the time that the standby is given to lead; what is asked about is hurried afterwards."""


def leader(rig: Rig) -> str:
    """Name of the pod that holds the Lease; empty for none."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{rig.namespace}/leases/{operator.NAME}"
    lease = rig.plane.api.find(path) or {"spec": {}}
    return str(lease["spec"].get("holderIdentity") or "").rpartition("_")[0]


def test_a_leader_cut_off_from_its_jobs_hands_them_over(start_rig: Callable[[RigLayout], Rig]) -> None:
    rig = start_rig(RigLayout(chip_nodes=2, operators=0))
    switches = rig.directory / "switches"
    switches.mkdir()
    command = ["python3", "-m", "e2e.harness.cut_off_operator"]
    rig.install_operator(2, {cut_off_operator.DIRECTORY: str(switches)}, command)
    size: dict[str, Any] = {
        "nodes": 2,
        "chips": 1,
        "tensor": 1,
        "iterations": ITERATIONS,
        "step_milliseconds": STEP_MILLISECONDS,
    }
    jobs = [rig.submit(name, **size) for name in ("one", "two")]
    for job in jobs:
        job.wait_step(3)

    cut_off = leader(rig)
    (switches / cut_off).touch()
    rig.plane.wait("the standby to lead", lambda: leader(rig) not in {"", cut_off}, 120)
    pods = {pod["metadata"]["labels"]["training.hajob.io/node-rank"]: pod for pod in jobs[0].pods("rank")}
    rig.nodes.control.kill(pod=pods["1"]["metadata"]["name"], rank=1)
    assert jobs[0].wait_incident(2)["action"] == "InPlace"
    assert jobs[1].incidents() == []
    assert_recovered(jobs[0], [1], ITERATIONS)
