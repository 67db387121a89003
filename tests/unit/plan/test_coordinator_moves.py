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


def shrunk(policy: Policy | None = None) -> Rig:
    """No other controller can take over: nobody could tell it which ranks take part."""
    rig = Rig.shrunk()
    rig.policy = policy or Policy()
    return rig


@pytest.mark.parametrize("policy", CoordinatorLossPolicy)
def test_it_is_relieved_with_the_training_running(policy: CoordinatorLossPolicy) -> None:
    rig = Rig.running(policy=Policy(coordinator_loss=policy))
    before = rig.state.coordinator
    rig.tell(ASKED)
    assert rig.at(JobPhase.UNPROTECTED)
    placement = rig.pods.coordinator
    assert placement is not None
    assert (placement.incarnation, placement.relieves) == (rig.state.coordinator, before)
    assert rig.state.coordinator > before
    rig.tell(e.ControllerTakenOver(duration_ms=40, store_kept=True))
    rig.tell(e.CoordinatorReady())
    assert rig.at(JobPhase.RUNNING)
    assert rig.pods.coordinator is not None
    assert rig.pods.coordinator.relieves == 0, "the former one goes last"
    assert (rig.state.restarts_infrastructure, rig.state.spent) == (0, ())


def test_a_fault_meanwhile_waits_for_the_other_one() -> None:
    rig = Rig.running()
    rig.tell(ASKED)
    rig.exits(5)
    assert rig.at(JobPhase.HELD)
    assert rig.pods.coordinator is not None
    assert rig.pods.coordinator.relieves
    rig.tell(e.ControllerTakenOver(duration_ms=40, store_kept=True))
    rig.tell(e.CoordinatorReady())
    assert rig.at(JobPhase.GATHERING)


def test_of_a_shrunk_job_it_is_moved_by_a_save_and_a_restart() -> None:
    rig = shrunk(Policy(limits=ONCE))
    before, spent = rig.state.coordinator, rig.state.spent
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
    assert {spend.budget for spend in rig.state.spent[len(spent) :]} == {MAINTENANCE_BUDGET}


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Policy(coordinator_loss=CoordinatorLossPolicy.NEVER), "coordinatorLossPolicy is Never"),
        (Policy(mode=Mode.OBSERVE), "recovery.mode is Observe"),
    ],
)
def test_what_the_user_forbids_is_refused_in_words(policy: Policy, why: str) -> None:
    rig = shrunk(policy)
    rig.tell(ASKED)
    assert rig.at(JobPhase.SHRUNK)
    assert why in said(rig)


def test_where_no_controller_serves_the_training_goes_on() -> None:
    rig = Rig.running(policy=Policy())
    rig.view = replace(rig.view, coordinator_ready=False)
    rig.tell(ASKED)
    assert rig.at(JobPhase.RUNNING)
    assert "nothing could be saved" in said(rig)
