"""The ways in which a move can fail: each leaves the job unharmed and says why its pods are still there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hajob.domain.facts import FactKind
from hajob.plan import events as e
from hajob.plan.state import JobPhase
from tests.rigs.plan_rig import Rig, from_dict, to_dict
from tests.rigs.plan_worlds import VIEW


def moving() -> Rig:
    rig = Rig.running()
    rig.tell(e.MigrateRequested(nodes=(1,), avoid=("sick",)))
    assert rig.at(JobPhase.MIGRATING)
    return rig


def no_node(rig: Rig) -> None:
    """The second pod finds no node, or does not come to its gate: nothing is heard of it until the deadline."""
    rig.view = replace(VIEW, free_nodes=0)
    rig.deadline("Recovery")


def second_pod_dies(rig: Rig) -> None:
    """It fails before the switch: it is none of the job's ranks yet, so nothing is told but that it never comes."""
    rig.deadline("Recovery")


def no_pause(rig: Rig) -> None:
    """MindIO cannot hold the ranks at a step, and offers nothing but the end."""
    rig.tell(e.ReplacementsReady(2, 1))
    rig.tell(e.StrategiesOffered(2, names=("exit",)))
    rig.tell(e.ResultReported(2, 499, "nobody could be held"))


def no_repair(rig: Rig) -> None:
    """The groups are not rebuilt, or the state is not given over."""
    rig.tell(e.ReplacementsReady(2, 1))
    rig.tell(e.StrategiesOffered(2, names=("migration", "exit")))
    rig.tell(e.ResultReported(2, 406, "rollback failed"))


def another_fault(rig: Rig) -> None:
    """A rank dies while the second pods start."""
    rig.exits(5)


FAILURES: list[tuple[Callable[[Rig], None], JobPhase, str]] = [
    (no_node, JobPhase.RUNNING, "the second pods were not ready in time"),
    (second_pod_dies, JobPhase.RUNNING, "the second pods were not ready in time"),
    (no_pause, JobPhase.RESTARTING, "interrupted by a fault, Restart follows"),
    (no_repair, JobPhase.SAVING, "interrupted by a fault, Checkpoint follows"),
    (another_fault, JobPhase.GATHERING, "interrupted by a fault, InPlace follows"),
]


@pytest.mark.parametrize(("fails", "phase", "why"), FAILURES, ids=lambda value: getattr(value, "__name__", None))
def test_a_move_that_fails_says_so_and_harms_nothing(fails: Callable[[Rig], None], phase: JobPhase, why: str) -> None:
    rig = moving()
    fails(rig)
    assert rig.at(phase)
    assert rig.state.unmoved == f"node ranks [1]: {why}"
    assert from_dict(to_dict(rig.state)).unmoved == rig.state.unmoved
    assert [pod.node_rank for pod in rig.pods.ranks] == [0, 1, 2, 3], "one pod of each node rank, no second places"


def test_the_start_after_a_failed_switch_tells_what_mindio_said() -> None:
    rig = moving()
    no_repair(rig)
    assert (rig.incident.cause.code, rig.incident.cause.message) == ("ResultReported", "406 rollback failed")


def test_a_move_that_works_after_one_that_failed_is_forgotten() -> None:
    rig = moving()
    rig.deadline("Recovery")
    rig.tell(e.MigrateRequested(nodes=(1,)))
    rig.tell(e.Resumed(rig.incident.incarnation, 9))
    assert (rig.state.phase, rig.state.unmoved) == (JobPhase.RUNNING, "")


def test_a_move_that_is_refused_says_so() -> None:
    rig = Rig.running(view=replace(VIEW, coordinator_ready=False))
    rig.tell(e.MigrateRequested(nodes=(2,)))
    assert rig.at(JobPhase.RUNNING)
    assert rig.state.unmoved == "node ranks [2]: the MindIO controller does not serve"


def test_a_sick_node_that_is_well_again_leaves_no_trace() -> None:
    rig = Rig.running()
    rig.see(FactKind.SUB_HEALTH, ranks=(2,))
    assert rig.at(JobPhase.MIGRATING)
    rig.tell(e.FactsWithdrawn(ids=(rig.last_fact.id,)))
    assert (rig.state.phase, rig.state.unmoved) == (JobPhase.RUNNING, "")
