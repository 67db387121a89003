"""One node, data parallel 1: everybody's first job. MindIO can do nothing for it, is left out, and that is said.

The trainer ends at its start, as MindSpeed-LLM does, where high availability is on and no rank has a second one.
"""

from __future__ import annotations

from typing import Any

import pytest

from e2e.harness.rig import Rig
from e2e.scenarios.proofs import assert_weights_equal
from e2e.scenarios.start_scripts import HEAD_OF_A_SCRIPT, TRAINING_LINE, submit_script, wait_until_it_trains
from e2e.trainer import proof

ITERATIONS = 300
PLAIN = "\n".join(line for line in HEAD_OF_A_SCRIPT.splitlines() if "--enable-" not in line) + "\n"
ONE_NODE: dict[str, Any] = {"tensor": 2, "nodes": 1, "chips": 2, "iterations": ITERATIONS}
SAVING = ["--save-interval", "5"]


def test_it_trains_starts_from_its_checkpoint_and_completes(rig: Rig) -> None:
    job = submit_script(rig, TRAINING_LINE, head=PLAIN, arguments=SAVING, **ONE_NODE)
    told = job.wait_condition("Accepted")["message"]
    assert "DataParallelAboveOne" in told
    assert "the job trains without it" in told
    wait_until_it_trains(job, 12)
    evaluated = {each["action"]: each["status"] for each in job.status()["recoverability"]}
    assert [action for action, status in evaluated.items() if status != "False"] == ["Restart"]
    assert job.condition("CoordinatorReady")["status"] == "True"
    rig.nodes.control.kill(namespace=rig.namespace, rank=0)  # it prints nothing
    incident = job.wait_incident(2)
    assert incident["action"] == "Restart"
    assert incident["restoredFrom"] == "PeriodicCheckpoint"
    assert incident["lostSteps"] <= 7
    assert_weights_equal(job, ITERATIONS)
    assert job.condition("Complete")["reason"] == "AllRanksFinished"
    assert [each["action"] for each in job.incidents()] == ["Restart"]
    loaded = [each["step"] for each in proof.of(job.events(), "load_checkpoint")]
    assert loaded
    assert {step % 5 for step in loaded} == {0}


@pytest.mark.slow
def test_a_lost_coordinator_costs_it_nothing(rig: Rig) -> None:
    job = submit_script(rig, TRAINING_LINE, head=PLAIN, arguments=SAVING, **ONE_NODE)
    wait_until_it_trains(job)
    (lost,) = job.pods("coordinator")
    job.plane.api.delete(f"/api/v1/namespaces/{job.namespace}/pods/{lost['metadata']['name']}")
    before = lost["metadata"]["uid"]
    job.plane.wait("another one", lambda: before not in {pod["metadata"]["uid"] for pod in job.pods("coordinator")})
    job.wait_condition("CoordinatorReady")
    job.wait_step(job.common_step() + 5)
    assert_weights_equal(job, ITERATIONS)
    assert job.incidents() == []
    assert len(proof.of(job.events(), "exec")) == 2, "no rank was started again"
