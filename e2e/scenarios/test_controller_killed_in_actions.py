"""The MindIO controller dies in the middle of every action but the repairs in place: another one goes on with it.

The repairs in place are in `test_controller_killed`; what each stage allows stands in docs/protocols/mindio.md §11.5.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.controllers import kill_mindio
from e2e.harness.job import IMPATIENT, Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios.long_actions import NOW, PATCH, STEPS, assert_none_restarted, slow_down, training
from e2e.scenarios.proofs import assert_weights_equal
from e2e.scenarios.repairs_in_place import PATIENCE

pytestmark = [
    only_e2e,
    pytest.mark.timeout(1200),
]


def lose(rig: Rig, job: Job) -> None:
    """Kill it, and wait for another one."""
    before = job.takeovers()
    kill_mindio(rig, job)
    job.plane.wait("the takeover", lambda: job.takeovers() > before, PATIENCE)


def test_lost_in_a_replacement(rig: Rig) -> None:
    job = training(rig)
    stands = slow_down(rig, job, 0, "rebuild")
    rig.nodes.control.power_off(job.node_of(1))
    stands()
    lose(rig, job)
    assert job.wait_incident(2, seconds=PATIENCE)["action"] == "Replace"
    assert_none_restarted(job)


def test_lost_while_it_shrinks_is_small_and_grows(start_rig: Callable[[RigLayout], Rig]) -> None:
    rig = start_rig(RigLayout(chip_nodes=4))
    job = training(rig, IMPATIENT)
    node = job.node_of(2)
    stands = slow_down(rig, job, 0, "rebuild")
    rig.nodes.control.power_off(node)
    stands()
    lose(rig, job)
    assert job.wait_incident(2, seconds=PATIENCE)["action"] == "Shrink"
    job.wait_condition("Shrunk")
    job.wait_condition("CoordinatorReady")
    lose(rig, job)
    job.wait_condition("CoordinatorReady")
    job.wait_condition("Shrunk")
    stands = slow_down(rig, job, 5, "ready")
    rig.nodes.control.power_on(node)
    stands()
    lose(rig, job)
    rig.plane.wait("the original size", lambda: job.status()["dataParallel"]["current"] == 4, PATIENCE)
    assert [incident["action"] for incident in job.incidents()] == ["Expand", "Shrink"]
    assert_none_restarted(job)


def test_lost_in_a_move(rig: Rig) -> None:
    job = training(rig)
    stands = slow_down(rig, job, 1, "ready")
    rig.plane.kubectl("cordon", job.node_of(0))
    stands()
    lose(rig, job)
    incident = job.wait_incident(2, seconds=PATIENCE)
    assert (incident["action"], incident["lostSteps"]) == ("Migrate", 0)
    assert_none_restarted(job)


def test_lost_while_every_rank_is_held(rig: Rig) -> None:
    job = training(rig)
    job.plane.kubectl(*PATCH, job.namespace, job.name, f'-p={{"spec":{{"pause":{{"requestTime":"{NOW}"}}}}}}')
    assert job.wait_condition("Running", "False")["reason"] == "Paused"
    lose(rig, job)
    stood = job.common_step()
    job.plane.kubectl(*PATCH, job.namespace, job.name, '-p={"spec":{"pause":null}}')
    job.wait_step(stood + 3)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    job.plane.wait("a recovery", lambda: job.incidents()[0].get("action") == "InPlace", PATIENCE)
    job.plane.wait("its end", lambda: job.incidents()[0].get("outcome") == "Recovered", PATIENCE)
    assert_none_restarted(job)


def test_lost_while_it_is_saved(rig: Rig) -> None:
    """The step is saved again, and nothing of it is lost."""
    job = training(rig)
    stands = slow_down(rig, job, 0, "dump")
    job.patch({"spec": {"restartRequestTime": NOW}})
    stands()
    lose(rig, job)
    job.plane.wait("the restart", lambda: any(one["outcome"] == "Recovered" for one in job.incidents()), PATIENCE)
    (incident,) = job.incidents()
    assert (incident["restoredFrom"], incident["lostSteps"]) == ("SavedCheckpoint", 0)
    assert_weights_equal(job, STEPS)
