"""The five ways in which a move can fail (docs/user/hatrainingjob.md): each is told, and the training goes on.

Where MindIO allows nothing but the end, the steps since the last checkpoint are lost, which the incident says.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.job import Job, Object
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig, RigLayout
from e2e.proof.setup import SHORT_TIMERS
from e2e.scenarios.nodes_taken import ITERATIONS, STEP_MILLISECONDS
from e2e.scenarios.proofs import assert_weights_equal
from e2e.trainer.faults import order

pytestmark = [
    only_e2e,
    pytest.mark.timeout(900),
]

INTERVAL = 10
MOST_LOST = 2 * INTERVAL
"""Steps since the last checkpoint that is complete."""


def training(rig: Rig, seconds: int = 100) -> Job:
    recovery = {"replacementTimeoutSeconds": seconds}
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS, spec={"recovery": recovery})
    job.wait_step(10)
    return job


def cordon(rig: Rig, job: Job) -> str:
    node = job.node_of(1)
    rig.plane.kubectl("cordon", node)
    return node


def why_unmoved(job: Job) -> str:
    """What the job says of its failed move, waited for."""

    def told() -> Object | None:
        found = job.condition("Degraded")
        return found if found.get("reason") == "MoveFailed" else None

    return str(job.plane.wait("the failed move to be told", told, seconds=150)["message"])


def ends_unharmed(job: Job) -> None:
    """All steps are kept."""
    assert_weights_equal(job, ITERATIONS)
    assert {incident["lostSteps"] for incident in job.incidents()} <= {0}
    assert job.status()["restarts"]["program"] == 0


def test_no_node_for_the_second_pod(start_rig: Callable[[RigLayout], Rig]) -> None:
    rig = start_rig(RigLayout(chip_nodes=4))
    job = training(rig, seconds=5)
    node = cordon(rig, job)
    assert why_unmoved(job).startswith(f"on {node} still, node ranks [1]: ")
    step = job.common_step()
    job.wait_step(step + 20)
    rig.plane.kubectl("uncordon", node)
    rig.plane.wait("no word of it any more", lambda: job.condition("Degraded")["reason"] != "MoveFailed")
    assert job.node_of(1) == node
    ends_unharmed(job)


def test_a_second_process_dies_before_the_switch(rig: Rig) -> None:
    job = training(rig, seconds=20)
    order(job.logs, "rank=2 at=startup do=exit always=1")
    node = cordon(rig, job)
    assert "the second pods were not ready in time" in why_unmoved(job)
    rig.plane.wait("the second pod to go", lambda: job.node_of(1) == node)
    rig.plane.kubectl("uncordon", node)
    order(job.logs)
    ends_unharmed(job)


def test_another_rank_dies_while_the_second_pod_starts(rig: Rig) -> None:
    job = training(rig)
    order(job.logs, "rank=2 at=startup do=slow seconds=30")
    cordon(rig, job)
    rig.plane.wait("the move to begin", lambda: [each["action"] for each in job.incidents()] == ["Migrate"])
    rig.nodes.control.kill(namespace=rig.namespace, rank=5)
    assert "interrupted by a fault, InPlace follows" in why_unmoved(job)
    assert job.wait_incident(3)["action"] == "InPlace"
    ends_unharmed(job)
    assert job.status()["restarts"]["infrastructure"] == 0


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("at=rebuild do=fail", "406 "),
        ("at=repair do=fail", "406 "),
        ("at=rollback do=fail", "406 "),
        ("at=forward do=stuck seconds=300", "499"),
    ],
    ids=["rebuild", "repair", "rollback", "nobody-held"],
)
def test_the_switch_itself_fails(rig: Rig, fault: str, said: str) -> None:
    """MindIO allows nothing but the end then, not even a save: a start from the periodic checkpoint, off the node."""
    job = rig.submit(
        iterations=ITERATIONS,
        step_milliseconds=STEP_MILLISECONDS,
        arguments=["--save-interval", str(INTERVAL)],
        environment=SHORT_TIMERS,
    )
    job.wait_step(2 * INTERVAL + 2)
    order(job.logs, f"rank=6 {fault}")
    node = cordon(rig, job)
    restart = job.wait_incident(3, seconds=240)
    assert [(each["action"], each["outcome"]) for each in job.incidents()] == [
        ("Restart", "Recovered"),
        ("Migrate", "Failed"),
    ]
    assert restart["cause"]["message"].startswith(said)
    assert restart["restoredFrom"] == "PeriodicCheckpoint"
    assert restart["lostSteps"] <= MOST_LOST
    assert node not in {job.node_of(rank) for rank in range(4)}
    assert job.status()["restarts"] == {"infrastructure": 1, "program": 0}
    assert_weights_equal(job, ITERATIONS)
