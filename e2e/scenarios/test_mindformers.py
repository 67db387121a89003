"""Trainings with MindFormers: what MindIO offers there recovers them as it does with PyTorch, what it does not is said.

The workers meet at MindSpore's scheduler in the coordinator, print their step in the epoch, have no decorator, and keep
the whole optimizer on each rank; the start scripts and the files are MindFormers'.
"""

from __future__ import annotations

import re

import pytest

from e2e.harness.job import Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig
from e2e.harness.undisturbed import undisturbed
from e2e.trainer import proof
from e2e.trainer.faults import order

ITERATIONS = 500
"""Fifty seconds for two faults: `msrun` and its ranks take longer to start than others."""
INTERVAL = 30
EXAMPLE_EPOCH = 19
PAIRS = {(0, 4), (1, 5), (2, 6), (3, 7)}
"""Ranks that hold the same, in the published example."""
MINDSPORE = {"framework": "MindSpore", "optimizer": {"sharding": "None"}}


def submit(rig: Rig, script: str, *options: str, **recovery: object) -> Job:
    """A training that has begun."""
    spec = MINDSPORE | ({"recovery": recovery} if recovery else {})
    job = rig.submit(iterations=ITERATIONS, script=script, arguments=options, spec=spec)
    job.wait_step(10)
    return job


def assert_weights_of_an_undisturbed_run(rig: Rig, job: Job) -> None:
    job.hurry()
    job.wait_condition("Complete", seconds=120)
    reference = undisturbed(rig.plane.run, tensor=2, pipeline=1, data=4, iterations=ITERATIONS)
    assert job.weights_differ(reference) == []


def refused(job: Job, action: str) -> set[str]:
    """Names of what an action lacks."""
    (found,) = [each for each in job.status()["recoverability"] if each["action"] == action]
    return {one["name"] for one in found.get("unmet", [])}


def test_workers_of_msrun_are_repaired_in_place(rig: Rig) -> None:
    """A memory error is repaired in the living process, then a dead worker comes back: one script, `msrun --join`."""
    job = submit(rig, "train_msrun.sh")
    order(job.logs, "rank=5 do=raise text=UCEError")
    assert job.wait_incident(2)["action"] == "Retry"
    job.wait_step(job.common_step() + 3)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    incident = job.wait_incident(3)
    assert (incident["action"], incident["lostSteps"], incident["restoredFrom"]) == ("InPlace", 0, "OptimizerCopy")
    assert "FrameworkPyTorch" in refused(job, "Shrink")
    assert_weights_of_an_undisturbed_run(rig, job)
    assert proof.survivors_kept(job.events(), {3}) == []
    assert proof.checkpoints_opened(job.events()) == []


@only_e2e
def test_the_node_of_the_first_worker_is_replaced(rig: Rig) -> None:
    """MindFormers' own launcher script, which does not join; the scheduler is in the coordinator, not on this node."""
    job = submit(rig, "pretrain_mindformers.sh")
    node = job.node_of(0)
    rig.nodes.control.power_off(node)
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Replace", 0)
    assert job.node_of(0) != node
    assert_weights_of_an_undisturbed_run(rig, job)
    assert proof.survivors_kept(job.events(), {0, 1}) == []


def test_a_saved_step_is_filled_and_loaded_by_all(rig: Rig) -> None:
    """MindIO saves one file for each shard; every rank finds its own when the job is started anew."""
    smaller = [{"name": name, "maxCount": 0} for name in ("Retry", "InPlace", "Replace")]
    periodic = f"callbacks.1.save_checkpoint_steps={INTERVAL}"
    job = submit(rig, "pretrain_mindformers.sh", periodic, actions=smaller)
    job.wait_step(INTERVAL + 5)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    incident = job.wait_incident(2, seconds=150)
    assert (incident["action"], incident.get("escalatedFrom", [])) == ("Restart", ["Checkpoint"])
    assert (incident["lostSteps"], incident["restoredFrom"]) == (0, "SavedCheckpoint")
    assert_weights_of_an_undisturbed_run(rig, job)
    opened = proof.of(job.events(), "load_checkpoint")
    assert {(event["rank"], event["step"]) for event in opened} == {(r, incident["loadedStep"]) for r in range(8)}


def test_the_published_example_prints_and_saves_the_same(rig: Rig) -> None:
    """MindFormers' documentation of high availability: eight ranks, five steps, worker 1 is ended, four files are left.

    There worker 0 must live, because it has MindIO's controller; here that is in a pod of its own.
    """
    smaller = {"actions": [{"name": name, "maxCount": 0} for name in ("Retry", "InPlace", "Replace")]}
    (rig.directory / "volumes/job/log").mkdir(parents=True)
    order(rig.directory / "volumes/job/log", "rank=1 step=6 do=kill")
    job = rig.submit(
        iterations=2 * EXAMPLE_EPOCH,
        tensor=4,
        script="pretrain_mindformers.sh",
        arguments=["runner_config.epochs=2", f"train_dataset.steps_per_epoch={EXAMPLE_EPOCH}"],
        spec={**MINDSPORE, "recovery": smaller},
    )
    rig.plane.wait("the first workers to be placed", lambda: len(job.pods("rank")) == 4 and job.pods("coordinator"))
    workers = [pod["metadata"]["name"] for pod in job.pods("rank")]
    (host,) = [pod["metadata"]["name"] for pod in job.pods("coordinator")]
    incident = job.wait_incident(2, seconds=150)

    assert (incident["action"], incident.get("escalatedFrom", [])) == ("Restart", ["Checkpoint"])
    assert (incident["loadedStep"], incident["lostSteps"]) == (5, 0)
    assert report_group_lists(rig, host) == PAIRS
    assert {tuple(group["ranks"]) for group in job.status()["effective"]["copyGroups"]} == PAIRS
    begun = [event for event in proof.of(job.events(), "save") if event["kind"] == "dump" and event["phase"] == "begin"]
    assert {(event["rank"], event["step"]) for event in begun} == {(0, 5), (2, 5), (3, 5), (5, 5)}
    for rank in (0, 2, 3, 5):
        assert (job.volume / f"checkpoint/rank_{rank}/toy_rank_{rank}-5_1.safetensors").exists()
    for worker in workers:
        assert epochs_and_steps(rig, worker) == [(1, 2, step, EXAMPLE_EPOCH) for step in range(1, 6)]

    job.hurry()
    job.wait_condition("Complete", seconds=120)
    reference = undisturbed(rig.plane.run, tensor=4, pipeline=1, data=2, iterations=2 * EXAMPLE_EPOCH)
    assert job.weights_differ(reference) == []


def report_group_lists(rig: Rig, coordinator: str) -> set[tuple[int, ...]]:
    """What MindIO's controller prints of the ranks that hold the same."""
    found = (
        re.search(r"rank:\d+, report group list: \[([\d, ]+)\]", line) for line in rig.lines(coordinator, "controller")
    )
    return {tuple(map(int, one[1].split(","))) for one in found if one is not None}


def epochs_and_steps(rig: Rig, pod: str) -> list[tuple[int, ...]]:
    """What the workers of a pod print of their steps, each once."""
    pattern = r"Epoch:\[ *(\d+)/ *(\d+)\], step:\[ *(\d+)/ *(\d+)\]"
    found = (re.search(pattern, line) for line in rig.lines(pod, "trainer"))
    return sorted({tuple(map(int, one.groups())) for one in found if one is not None})


pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]
