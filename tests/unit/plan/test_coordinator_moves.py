"""A coordinator whose node is to be emptied is moved by a save and a restart, which spend no budget of faults."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.actions import Action
from hajob.domain.incidents import RestoredFrom
from hajob.plan import events as e
from hajob.plan.policy import DEFAULT_ACTION_LIMITS, ActionLimits, CoordinatorLossPolicy, Mode, Policy
from hajob.plan.state import MAINTENANCE_BUDGET, JobPhase
from tests.unit.plan.plan_rig import Rig

ONCE = {action: ActionLimits(1, 86_400, 60) for action in DEFAULT_ACTION_LIMITS}
ASKED = e.CoordinatorMoveRequested(message="node-9 of the coordinator is to be emptied")


def said(rig: Rig) -> str:
    assert rig.transition is not None
    return str(rig.transition.effects)


def test_it_saves_and_starts_anew_with_another_coordinator() -> None:
    rig = Rig.running(policy=Policy(limits=ONCE))
    before = rig.state.coordinator
    rig.tell(ASKED)
    assert (rig.state.phase, rig.action, rig.incident.cause.message) == (
        JobPhase.SAVING,
        Action.CHECKPOINT,
        ASKED.message,
    )
    rig.tell(e.ResultReported(rig.incident.incarnation, 0, "", "dump"))
    assert rig.at(JobPhase.RESTARTING)
    assert rig.state.coordinator > before
    assert rig.incident.restored_from is RestoredFrom.SAVED_CHECKPOINT
    assert {spend.budget for spend in rig.state.spent} == {MAINTENANCE_BUDGET}


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Policy(coordinator_loss=CoordinatorLossPolicy.NEVER), "coordinatorLossPolicy is Never"),
        (Policy(mode=Mode.OBSERVE), "recovery.mode is Observe"),
    ],
)
def test_what_the_user_forbids_is_refused_in_words(policy: Policy, why: str) -> None:
    rig = Rig.running(policy=policy)
    rig.tell(ASKED)
    assert rig.at(JobPhase.RUNNING)
    assert why in said(rig)


def test_where_nothing_can_be_saved_the_training_goes_on() -> None:
    rig = Rig.running(policy=Policy())
    rig.view = replace(rig.view, coordinator_ready=False)
    rig.tell(ASKED)
    assert rig.at(JobPhase.RUNNING)
    assert "nothing could be saved" in said(rig)


def test_two_moves_in_a_row_keep_their_distance() -> None:
    rig = Rig.running(policy=Policy())
    rig.tell(ASKED)
    rig.tell(e.ResultReported(rig.incident.incarnation, 0, "", "dump"))
    rig.tell(e.PodsReady())
    rig.tell(e.AllRanksStarted(attempt=rig.state.attempt))
    rig.tell(e.Resumed(0, rig.state.step + 1))
    rig.tell(ASKED)
    assert rig.at(JobPhase.RUNNING)
    assert "a moment ago" in said(rig)
    rig.tell(ASKED, rig.now + 61_000)
    assert rig.at(JobPhase.SAVING)
