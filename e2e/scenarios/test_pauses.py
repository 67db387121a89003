"""Every rank waits while its node is tested; the training goes on, without the node that did not stand the test."""

from __future__ import annotations

import time
from typing import Any

import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.harness.images import TRAINER_IMAGE
from e2e.harness.job import Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig
from e2e.scenarios.proofs import assert_recovered
from e2e.trainer import proof

ITERATIONS = 300
STEP_MILLISECONDS = 200.0
"""A training goes on while its next pods start: it outlasts them on a slow machine, too, and is hurried afterwards."""

TEN_STEPS = 10 * STEP_MILLISECONDS / 1000


def have_nodes_tested(job: Job, hour: int, verdict: str) -> dict[str, Any]:
    """Ask for a pause in which each node runs a shell command; the order of the requests is that of the hours."""
    container = {"name": "test", "image": TRAINER_IMAGE, "command": ["sh", "-c", f"sleep 1; {verdict}"]}
    pause = {"requestTime": f"2026-11-22T{hour:02}:00:00Z", "template": {"spec": {"containers": [container]}}}
    return job.patch({"spec": {"pause": pause}})


@only_e2e
def test_a_node_that_fails_a_test_in_a_pause_is_left(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS)
    job.wait_step(10)
    have_nodes_tested(job, 1, "true")
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Pause", 0)
    job.wait_step(job.common_step() + 5)
    assert proof.survivors_kept(job.events(), []) == []
    node = job.node_of(1)
    have_nodes_tested(job, 2, 'test "$HAJOB_NODE_RANK" != 1 || exit 2')
    incident = job.wait_incident(4)
    assert (incident["action"], incident["lostSteps"]) == ("Replace", 0)
    assert (incident["cause"]["code"], incident["cause"]["nodeName"]) == ("PauseHookFailed", node)
    assert job.node_of(1) != node
    quarantine = rig.plane.api.get(f"/apis/training.hajob.io/v1alpha1/nodequarantines/{node}")
    assert quarantine["spec"]["reason"] == "PauseHookFailed"
    assert_recovered(job, [2, 3], ITERATIONS)


@only_e2e
def test_chips_are_tested_by_a_program_of_the_image(rig: Rig) -> None:
    """As the example asks for it; the test program of the image finds node rank 2 bad."""
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS)
    job.wait_step(10)
    node = job.node_of(2)
    pause = yaml.safe_load((CHECKOUT / "examples/chips-tested-in-a-pause.yaml").read_text())["spec"]["pause"]
    (container,) = pause["template"]["spec"]["containers"]
    container["env"] = [{"name": "BAD_NODE", "value": "2"}]
    job.patch({"spec": {"pause": pause}})
    replaced = job.wait_incident(3)
    assert (replaced["action"], replaced["cause"]["code"]) == ("Replace", "PauseHookFailed")
    assert (replaced["cause"]["nodeName"], replaced["lostSteps"]) == (node, 0)
    assert job.node_of(2) != node
    assert_recovered(job, [4, 5], ITERATIONS)


@only_e2e
def test_a_pause_by_hand_holds_until_it_is_taken_back(rig: Rig) -> None:
    """As for network rails that are switched by hand, and back again: no work, no pods, no process ends."""
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS)
    job.wait_step(10)
    for hour, incarnation in ((1, 2), (2, 3)):
        patch(job, f'{{"spec":{{"pause":{{"requestTime":"2026-11-22T{hour:02}:00:00Z"}}}}}}')
        held = job.wait_condition("Running", "False")
        assert held["reason"] == "Paused"
        time.sleep(TEN_STEPS)  # what the ranks write down comes a moment later than what they do
        step = job.common_step()
        time.sleep(TEN_STEPS)
        assert job.common_step() == step
        patch(job, '{"spec":{"pause":null}}')
        incident = job.wait_incident(incarnation)
        assert (incident["action"], incident["lostSteps"]) == ("Pause", 0)
        job.wait_step(step + 5)
    assert proof.survivors_kept(job.events(), []) == []
    assert len(job.pods("rank")) == len(job.pods()) - 1
    assert_recovered(job, [], ITERATIONS)


def patch(job: Job, change: str) -> None:
    words = ("patch", "hajob", job.name, "--type=merge", f"--patch={change}")
    job.plane.kubectl("--namespace", job.namespace, *words)
