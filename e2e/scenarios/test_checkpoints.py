"""What a restart loads, and a repair where no copy is left: complete checkpoints only, and the account says which."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e.harness.job import Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig
from e2e.scenarios.proofs import assert_weights_equal
from e2e.trainer import proof
from e2e.trainer.faults import Fault

STEPS = 200
INTERVAL = 30
SMALL: dict[str, Any] = {"tensor": 2, "nodes": 2, "iterations": STEPS}
RESTART_ONLY = [{"name": name, "maxCount": 0} for name in ("Retry", "InPlace", "Replace", "Shrink", "Checkpoint")]


def loaded(job: Job) -> set[int]:
    """Steps of the checkpoints that ranks opened."""
    return {int(event["step"]) for event in proof.of(job.events(), "load_checkpoint")}


def unmet(job: Job, action: str) -> set[str]:
    """Names of what an action lacks; before the first step it is everything."""
    evaluated = [each for each in job.status().get("recoverability", []) if each["action"] == action]
    return {one["name"] for each in evaluated for one in each.get("unmet", [])} if evaluated else {"CheckpointPresent"}


def stood_at(job: Job, loaded_step: int, killed: list[int]) -> int:
    """The last step before a checkpoint was opened that all who lived on had finished.

    They are what MindIO would have repaired the killed ones to, and what is done again. A killed rank's own word for
    that step may be missing, but it had begun to end it: no rank ends a step that another has not begun to end.
    """
    events = job.events()
    opened = min(int(event["t"]) for event in proof.of(events, "load_checkpoint") if event["step"] == loaded_step)
    before = [event for event in events if int(event["t"]) < opened]
    lived_on = [event for event in before if event["rank"] not in killed]
    told_by_all = proof.common_steps(before, job.world())[-1][0]
    step = proof.common_steps(lived_on, job.world() - len(killed))[-1][0]
    assert told_by_all <= step <= told_by_all + 1
    return step


def kill_at_once(rig: Rig, ranks: list[int]) -> None:
    """Kill ranks together: one that dies after MindIO's order to stop costs its action limit (mindio.md, 7.12)."""
    processes = [rig.nodes.control.kill("CONT", namespace=rig.namespace, rank=rank)["pid"] for rank in ranks]
    for pid in processes:
        os.kill(pid, signal.SIGKILL)


def test_a_truncated_checkpoint_is_refused_the_older_loaded(rig: Rig) -> None:
    recovery = {"recovery": {"actions": RESTART_ONLY}}
    standing = Fault.parse(f"rank=0 step={2 * INTERVAL + 4} do=hang")  # so that no newer one is saved
    arguments = ["--save-interval", str(INTERVAL), "--fault", standing.line]
    job = rig.submit(arguments=arguments, spec=recovery, **SMALL)
    rig.plane.wait("the training to stand still", standing.mark(job.logs, rank=0).exists)
    damaged = job.volume / f"iter_{2 * INTERVAL:07d}" / "mp_rank_01" / "distrib_optim.pt"
    content = damaged.read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    incident = job.wait_incident(2)
    assert (incident["action"], incident["restoredFrom"]) == ("Restart", "PeriodicCheckpoint")
    assert incident["loadedStep"] == INTERVAL
    (refused,) = incident["refusedCheckpoints"]
    assert (refused["name"], refused["reason"]) == (f"iter_{2 * INTERVAL:07d}", "TruncatedFile")
    assert incident["stateSources"][0]["numRanks"] == job.world()
    assert_weights_equal(job, STEPS)
    assert loaded(job) == {INTERVAL}
    assert incident["lostSteps"] == stood_at(job, INTERVAL, [3]) - INTERVAL


@only_e2e
def test_a_checkpoint_that_no_rank_can_load_is_passed_over(rig: Rig) -> None:
    """It looks whole, and an array is missing in it: two starts end at it, the third goes on from the one before."""
    standing = Fault.parse("rank=0 step=24 do=hang")
    arguments = ["--save-interval", "10", "--fault", standing.line]
    spec = {"recovery": {"actions": RESTART_ONLY}}
    job = rig.submit(arguments=arguments, spec=spec, tensor=1, nodes=2, chips=1, iterations=40)
    rig.plane.wait("the training to stand still", standing.mark(job.logs, rank=0).exists)
    leave_out_an_array(job.volume / "iter_0000020" / "mp_rank_00" / "distrib_optim.pt")
    rig.nodes.control.kill(namespace=rig.namespace, rank=1)
    job.wait_condition("Complete", seconds=240)
    incident = job.incidents()[0]
    assert (incident["loadedStep"], incident["outcome"]) == (10, "Recovered")
    (refused,) = incident["refusedCheckpoints"]
    assert (refused["name"], refused["reason"]) == ("iter_0000020", "LoadFailed")
    opened = proof.of(job.events(), "load_checkpoint")
    assert {(event["attempt"], event["step"]) for event in opened} == {(2, 20), (3, 20), (4, 10)}


def leave_out_an_array(path: Path) -> None:
    """Write the file anew without its last array; an archive that is whole."""
    with np.load(path) as archive:
        kept = {name: archive[name] for name in archive.files[:-1]}
    with path.open("wb") as file:
        np.savez(file, **kept)


@pytest.mark.parametrize(
    ("flags", "spec", "killed"),
    [
        pytest.param(
            ["--distributed-optimizer-no-replica"],
            {"optimizer": {"copies": 1}},
            [2],
            id="one copy by choice",
            marks=only_e2e,
        ),
        pytest.param([], {}, [0, 2], id="both partners lost"),
    ],
)
@pytest.mark.slow
def test_without_a_copy_the_periodic_checkpoint_repairs(
    rig: Rig, flags: list[str], spec: dict[str, Any], killed: list[int]
) -> None:
    job = rig.submit(arguments=["--save-interval", str(INTERVAL), *flags], spec=spec, **SMALL)
    job.wait_step(2 * INTERVAL)
    rig.plane.wait("the operator to know of a checkpoint", lambda: "CheckpointPresent" not in unmet(job, "InPlace"))
    kill_at_once(rig, killed)
    incident = job.wait_incident(2)
    assert (incident["action"], incident["restoredFrom"]) == ("InPlace", "PeriodicCheckpoint")
    step = incident["loadedStep"]
    assert incident["stateSources"][0] | {"firstRanks": []} == {
        "name": "PeriodicCheckpoint",
        "numRanks": job.world(),
        "firstRanks": [],
    }
    assert_weights_equal(job, STEPS)
    assert proof.survivors_kept(job.events(), killed) == []
    assert loaded(job) == {step}
    assert incident["lostSteps"] == stood_at(job, step, killed) - step
