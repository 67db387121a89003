"""What is done on purpose has a budget of its own: it never makes the next real fault the last one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.actions import Action
from hajob.domain.facts import FactKind, Source
from hajob.plan import events as e
from hajob.plan.policy import DEFAULT_ACTION_LIMITS, ActionLimits, CoordinatorLossPolicy, Policy
from hajob.plan.state import MAINTENANCE_BUDGET, JobPhase
from tests.rigs.plan_rig import Rig

ONCE = {action: ActionLimits(1, 86_400, 60) for action in DEFAULT_ACTION_LIMITS}


def budgets(rig: Rig) -> set[str]:
    return {spend.budget for spend in rig.state.spent}


def drained(rig: Rig) -> None:
    rig.see(FactKind.POD_LOST, node=2, code="EvictionByEvictionAPI", source=Source.POD)


def again(rig: Rig) -> None:
    """It trains again after a restart."""
    rig.tell(e.PodsReady())
    rig.tell(e.AllRanksStarted(attempt=rig.state.attempt))
    rig.tell(e.Resumed(0, rig.state.step + 1))
    assert rig.at(JobPhase.RUNNING)


def test_drains_spend_no_budget_of_faults() -> None:
    rig = Rig.running(policy=Policy(limits=ONCE))
    for _ in range(5):
        drained(rig)
        assert rig.action is Action.REPLACE
        rig.recover()
    assert budgets(rig) == {MAINTENANCE_BUDGET}
    rig.silent(1)
    assert rig.action is Action.REPLACE


def test_a_drain_that_ends_in_a_restart_leaves_the_restarts() -> None:
    rig = Rig.running(policy=Policy(limits=ONCE))
    drained(rig)
    rig.tell(e.ResultReported(rig.incident.incarnation, 499))
    assert rig.at(JobPhase.RESTARTING)
    again(rig)
    assert budgets(rig) == {MAINTENANCE_BUDGET}


@pytest.mark.parametrize("phase", [JobPhase.STARTING, JobPhase.UNPROTECTED])
def test_lost_coordinators_leave_the_restarts(phase: JobPhase) -> None:
    rig = Rig.running(policy=Policy(limits=ONCE))
    rig.lose_for_good()
    if phase is JobPhase.STARTING:
        rig.state = replace(rig.state, phase=phase)
        rig.tell(e.CoordinatorLost())
    else:
        rig.tell(e.CheckpointVerified(step=9))
    assert rig.at(JobPhase.RESTARTING)
    assert budgets(rig) == {MAINTENANCE_BUDGET}


def test_restarts_for_lost_coordinators_keep_their_distance() -> None:
    rig = Rig.running(policy=Policy(coordinator_loss=CoordinatorLossPolicy.IMMEDIATELY))
    rig.lose_for_good()
    assert rig.at(JobPhase.RESTARTING)
    again(rig)
    rig.lose_for_good()
    assert rig.at(JobPhase.UNPROTECTED)
    rig.tell(e.CheckpointVerified(step=9), rig.now + 50_000)
    assert rig.at(JobPhase.UNPROTECTED)
    rig.tell(e.CheckpointVerified(step=10), rig.now + 10_000)
    assert rig.at(JobPhase.RESTARTING)


def test_a_coordinator_that_is_lost_for_ever_ends_the_job() -> None:
    rig = Rig.running(policy=Policy(limits=ONCE))
    rig.tell(e.CoordinatorLost())
    rig.state = replace(rig.state, phase=JobPhase.STARTING)
    for _ in range(20):
        rig.tell(e.CoordinatorLost())
    assert rig.at(JobPhase.FAILED)


def test_a_program_that_fails_pays_as_before() -> None:
    rig = Rig.running(policy=Policy(limits=ONCE))
    rig.state = replace(rig.state, phase=JobPhase.STARTING)
    rig.tell(e.CoordinatorLost(program=True))
    assert MAINTENANCE_BUDGET not in budgets(rig)
