"""Recoveries of a network in real MindSpore, its scheduler in the coordinator's pod: weights as without a fault.

`make e2e TRAINER=mindspore` plays them. What needs a chip is played (e2e/mindspore_trainer/chips.py); msrun's command
line, scheduler, `init()`, `Model.train`, `_tft_handler` and `TrainFaultTolerance` are MindSpore's.
"""

from __future__ import annotations

import functools
import os
import subprocess

import pytest

from e2e.bootstrap.paths import CHECKOUT
from e2e.harness.controllers import coordinator_node
from e2e.harness.images import is_mindspore
from e2e.harness.job import CHECKPOINT_MOUNT, Job, manifest
from e2e.harness.rig import Rig, RigLayout
from e2e.trainer import proof
from e2e.trainer.framework_python import mindspore_python

pytestmark = [
    pytest.mark.skipif(not is_mindspore(), reason="make e2e TRAINER=mindspore plays it"),
    pytest.mark.timeout(900),
]

PROGRAM = CHECKOUT / "e2e/mindspore_trainer/train.py"
STEPS = 60
LONG = 400
"""Steps of a training that its coordinator's node is lost under: to be noticed that takes a minute and more."""
STEP_MILLISECONDS = 500
INTERVAL = 10
RANKS, ITERATIONS, OWN = "Ranks", "Iterations", "Own"
"""Forms in which the trainer saves (e2e/mindspore_trainer/saving.py)."""
REPAIRS = ("Retry", "InPlace", "Replace")
SECONDS = 300.0
"""For a start, or a recovery with one: the import of MindSpore alone takes 3 s of processor time in each of five."""


@functools.cache
def undisturbed(iterations: int) -> str:
    """The weights after so many steps of one process without MindIO."""
    words = [
        str(mindspore_python()),
        str(PROGRAM),
        "--alone",
        "--iterations",
        str(iterations),
        "--directory",
        os.devnull,
    ]
    environment = {"PATH": os.defpath, "PYTHONPATH": str(CHECKOUT), "HOME": os.environ["HOME"]}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


def started(rig: Rig, iterations: int = STEPS, form: str = RANKS, without: tuple[str, ...] = ()) -> Job:
    """A job of two nodes with two ranks each that trains and saves in a form; some actions are not allowed."""
    words: list[object] = ["msrun", "--worker_num=4", "--local_worker_num=2", "--join=True", PROGRAM]
    words += ["--iterations", iterations, "--step-milliseconds", STEP_MILLISECONDS, "--directory", CHECKPOINT_MOUNT]
    words += ["--form", form, "--save-interval", INTERVAL]
    spec: dict[str, object] = {"framework": "MindSpore", "optimizer": {"sharding": "None"}}
    if without:
        spec["recovery"] = {"actions": [{"name": name, "maxCount": 0} for name in without]}
    volume = rig.directory / "volumes" / "job"
    content = manifest("job", rig.namespace, volume, nodes=2, tensor=1, spec=spec)
    (container,) = content["spec"]["template"]["spec"]["containers"]
    container["command"], container["args"] = [str(word) for word in words], []
    job = rig.apply(content, volume)
    job.wait_step(6, seconds=SECONDS)
    return job


def assert_weights(job: Job, iterations: int = STEPS) -> None:
    """The job ends with the weights of an undisturbed run on every rank."""
    job.hurry()
    job.wait_condition("Complete", seconds=SECONDS)
    digests = {event["rank"]: event["digest"] for event in proof.of(job.events(), "weights")}
    assert digests == dict.fromkeys(range(4), undisturbed(iterations))


def assert_recovered(job: Job, lost: set[int], iterations: int = STEPS) -> None:
    """The job ends with the right weights on every rank, and only the lost ones have another process."""
    assert_weights(job, iterations)
    events = job.events()
    assert proof.survivors_kept(events, lost) == []
    assert proof.steps_went_back(events) == []


def loads(job: Job) -> set[tuple[int, int]]:
    """Which rank has loaded which step."""
    return {(event["rank"], event["step"]) for event in proof.of(job.events(), "load_checkpoint")}


@pytest.mark.parametrize("rank", [3, 0])
def test_a_killed_worker_comes_back_in_place(rig: Rig, rank: int) -> None:
    job = started(rig)
    rig.nodes.control.kill(namespace=rig.namespace, rank=rank)
    assert job.wait_incident(2, seconds=SECONDS)["action"] == "InPlace"
    assert_recovered(job, {rank})


def test_the_node_of_the_first_workers_is_replaced(rig: Rig) -> None:
    job = started(rig)
    rig.nodes.control.power_off(job.node_of(0))
    assert job.wait_incident(2, seconds=SECONDS)["action"] == "Replace"
    assert_recovered(job, {0, 1})


@pytest.mark.parametrize("rig", [RigLayout(plain_nodes=2)], indirect=True)
def test_workers_outlive_their_scheduler(rig: Rig) -> None:
    """The coordinator is lost with scheduler and controller. A later process would not find the others: it is saved."""
    job = started(rig, LONG)
    rig.nodes.control.power_off(coordinator_node(job))
    job.plane.wait("another controller", lambda: job.takeovers() == 1, SECONDS)
    job.wait_condition("CoordinatorReady", seconds=SECONDS)
    job.wait_step(job.common_step() + 3)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    ended = job.wait_incident(3, seconds=SECONDS)  # 2 was the takeover's
    assert (ended["action"], ended["escalatedFrom"]) == ("Restart", ["Checkpoint"])
    assert {one["action"]: one["unmet"] for one in ended["refused"]}["InPlace"] == ["StoreKept"]
    assert (ended["restoredFrom"], ended["lostSteps"]) == ("SavedCheckpoint", 0)


@pytest.mark.parametrize("form", [RANKS, OWN])
def test_what_mindio_saved_is_loaded(rig: Rig, form: str) -> None:
    """One rank's file stands for all: the others are filled, and MindSpore loads what Hajob has put there."""
    job = started(rig, form=form, without=REPAIRS)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    ended = job.wait_incident(2, seconds=SECONDS)
    assert (ended["action"], ended["escalatedFrom"]) == ("Restart", ["Checkpoint"])
    assert (ended["restoredFrom"], ended["lostSteps"]) == ("SavedCheckpoint", 0)
    assert loads(job) == {(rank, ended["loadedStep"]) for rank in range(4)}
    assert_weights(job)


@pytest.mark.parametrize(("form", "left"), [(RANKS, "Retry"), (ITERATIONS, "")])
def test_a_restart_loads_the_periodic_checkpoint(rig: Rig, form: str, left: str) -> None:
    """The second job trains without MindIO: nothing that it could do is allowed."""
    job = started(rig, form=form, without=tuple({*REPAIRS, "Checkpoint"} - {left}))
    job.wait_step(INTERVAL + 3, seconds=SECONDS)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    ended = job.wait_incident(2, seconds=SECONDS)
    assert (ended["action"], ended["restoredFrom"]) == ("Restart", "PeriodicCheckpoint")
    assert ended["loadedStep"] % INTERVAL == 0
    assert loads(job) == {(rank, ended["loadedStep"]) for rank in range(4)}
    assert_weights(job)


def test_a_node_is_left_by_a_hot_switch_of_mindspore(rig: Rig) -> None:
    """Second processes join while the first ones train, and take their places at the end of a step."""
    job = started(rig, LONG)
    node = job.node_of(1)
    rig.plane.kubectl("cordon", node)
    ended = job.wait_incident(2, seconds=SECONDS)
    assert (ended["action"], ended["lostSteps"]) == ("Migrate", 0)
    assert job.node_of(1) != node
    assert_recovered(job, {2, 3}, LONG)


def test_a_pause_holds_mindspore_and_is_taken_back(rig: Rig) -> None:
    job = started(rig, LONG)
    job.patch({"spec": {"pause": {"requestTime": "2026-11-22T01:00:00Z"}}})
    job.wait_condition("Running", "False", seconds=SECONDS)
    job.patch({"spec": {"pause": None}})
    ended = job.wait_incident(2, seconds=SECONDS)
    assert (ended["action"], ended["lostSteps"]) == ("Pause", 0)
    assert_recovered(job, set(), LONG)


def test_after_a_resume_the_second_fault_restarts(rig: Rig) -> None:
    """MindSpore adds the step it resumed at to a step that has it already, but in the new process: MindIO gives up."""
    job = started(rig, LONG)
    job.patch({"spec": {"suspend": True}})
    job.wait_condition("Suspended", seconds=SECONDS)
    job.patch({"spec": {"suspend": False}})
    job.plane.wait("the load", lambda: len(loads(job)) == 4, SECONDS)
    job.wait_step(job.common_step() + 5, seconds=SECONDS)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    job.plane.wait("the repair", lambda: job.incidents()[0]["action"] == "InPlace", SECONDS)
    ended = job.wait_incident(job.incidents()[0]["incarnation"], seconds=SECONDS)
    assert (ended["action"], ended["lostSteps"]) == ("InPlace", 0)
    job.wait_step(job.common_step() + INTERVAL, seconds=SECONDS)
    rig.nodes.control.kill(namespace=rig.namespace, rank=2)
    again = job.wait_incident(ended["incarnation"] + 1, seconds=SECONDS)
    assert (again["action"], again["restoredFrom"]) == ("Restart", "PeriodicCheckpoint")
    assert_weights(job, LONG)
