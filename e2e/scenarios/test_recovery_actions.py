"""The way back to full size, and what can happen on it: a training that shrank is never worse off for having tried."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.job import Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios.nodes_taken import ITERATIONS, newest, pod_of, shrunk_job, take
from e2e.scenarios.proofs import assert_weights_equal
from e2e.trainer import proof
from e2e.trainer.faults import order

pytestmark = [
    only_e2e,
    pytest.mark.timeout(900),
]
StartRig = Callable[[RigLayout], Rig]


def open_the_node(rig: Rig, job: Job, node: str, *faults: str) -> None:
    """The node is there again; until the job grows, with these faults on its way."""
    order(job.logs, *faults)
    rig.plane.kubectl("uncordon", node)
    rig.plane.wait("the job to grow", lambda: newest(job) == ("Expand", "Open"))


def wait_full(rig: Rig, job: Job) -> None:
    rig.plane.wait("the original size", lambda: job.status()["dataParallel"]["current"] == 4, seconds=150)


def restarts(job: Job) -> list[proof.Outage]:
    return [each for each in proof.outages(job.events(), job.world()) if each.is_restart]


def test_a_node_that_vanishes_again_leaves_it_shrunk(start_rig: StartRig) -> None:
    """Before the upgrade is ordered: nobody was stopped, and the next node is used."""
    rig, job, node = shrunk_job(start_rig)
    open_the_node(rig, job, node, "rank=4 at=startup do=slow seconds=600")
    take(rig, job, 2)
    rig.plane.wait("the growth to be given up", lambda: newest(job) == ("Expand", "Failed"), seconds=150)
    told = job.status()["dataParallel"]
    assert (told["current"], told["dropped"]) == (3, [2])
    job.wait_step(job.common_step() + 10)
    assert proof.survivors_kept(job.events(), [4, 5]) == []
    open_the_node(rig, job, node)
    wait_full(rig, job)
    assert restarts(job) == []
    assert_weights_equal(job, ITERATIONS)


@pytest.mark.parametrize(
    ("fault", "survivor"),
    [("rank=0 at=rebuild do=fail", None), ("rank=4 at=startup do=slow seconds=20", 6)],
    ids=["handler-fails", "survivor-dies"],
)
def test_a_growth_that_fails_is_saved_and_starts_at_full_size(
    start_rig: StartRig, fault: str, survivor: int | None
) -> None:
    """MindIO allows a checkpoint and a start from it, and no step is lost."""
    rig, job, node = shrunk_job(start_rig)
    open_the_node(rig, job, node, fault)
    if survivor is not None:
        rig.nodes.control.kill(namespace=rig.namespace, rank=survivor)
    rig.plane.wait("a start", lambda: newest(job) == ("Restart", "Recovered"), seconds=150)
    assert {incident["lostSteps"] for incident in job.incidents()} == {0}
    assert job.incidents()[0]["restoredFrom"] == "SavedCheckpoint"
    wait_full(rig, job)
    assert_weights_equal(job, ITERATIONS)


@pytest.mark.parametrize("policy", ["Keep", "Release"])
def test_healthy_pods_of_dropped_ranks_stay_or_are_given_back(start_rig: StartRig, policy: str) -> None:
    """Two pods make a data-parallel rank; one is lost, in the other the blocked processes are ended."""
    rig, job, node = shrunk_job(start_rig, elastic={"shrunkPodPolicy": policy}, node_rank=3, tensor=1, pipeline=2)
    told = job.status()["dataParallel"]
    assert (told["current"], told["dropped"]) == (2, [2, 3])
    partner = pod_of(job, 1) if policy == "Keep" else ""
    of_the_trainer = {"pod": partner, "container": "trainer"}
    if partner:
        ended = lambda: not [one for one in rig.nodes.control.processes(**of_the_trainer) if one.rank is not None]  # noqa: E731
        rig.plane.wait("its blocked processes to be ended", ended)
    else:
        rig.plane.wait("the pod to be given back", lambda: len(job.pods("rank")) == 2)
    job.wait_step(job.common_step() + 10)
    rig.plane.kubectl("uncordon", node)
    wait_full(rig, job)
    assert newest(job)[0] == "Expand"
    if partner:
        assert pod_of(job, 1) == partner
    assert restarts(job) == []
    assert_weights_equal(job, ITERATIONS)
