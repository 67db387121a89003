"""A coordinator whose node is being drained, or that is lost: another one takes over while the training goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hajob.domain.actions import Action, OrderCommand
from hajob.plan import events as e
from hajob.plan.effects import SendOrder
from hajob.plan.placements import CoordinatorPlacement
from hajob.plan.policy import CoordinatorLossPolicy, Mode, Policy
from hajob.plan.state import Deadline, JobPhase
from tests.rigs.plan_rig import Rig

ASKED = e.CoordinatorMoveRequested(message="node-9 of the coordinator is being drained")


def said(rig: Rig) -> str:
    assert rig.transition is not None
    return str(rig.transition.effects)


def shrunk(policy: Policy | None = None) -> Rig:
    """Ranks of one node are left out."""
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


def moving(rig: Rig) -> Rig:
    """The new one's pod is on its way; the old one is still heard."""
    rig.tell(ASKED)
    rig.view = replace(rig.view, relieved_heard=True)
    return rig


def left(rig: Rig) -> Rig:
    """The new one's pod runs, and is spoken to from now on."""
    rig.view = replace(rig.view, relieved_heard=False, coordinator_ready=False)
    rig.tell(e.CoordinatorReachable())
    return rig


@pytest.mark.parametrize(("make", "phase"), [(Rig.running, JobPhase.GATHERING), (shrunk, JobPhase.SAVING)])
def test_the_one_that_serves_decides_until_the_new_one_runs(make: Callable[[], Rig], phase: JobPhase) -> None:
    rig, other = make(), make()
    before = rig.state
    moving(rig).exits(7)
    other.exits(7)
    assert (rig.state.phase, rig.action) == (other.state.phase, other.action)
    assert rig.at(phase)
    assert rig.pods.coordinator == CoordinatorPlacement(before.coordinator), "it stays, and the new one goes"
    assert rig.state.deadlines.keys() == {"Recovery"}


def test_a_move_that_a_fault_has_ended_begins_anew() -> None:
    rig = moving(Rig.running())
    given_up = rig.state.coordinator
    rig.exits(5)
    rig.view = replace(rig.view, relieved_heard=False)
    rig.recover()
    rig.tell(ASKED)
    assert rig.pods.coordinator is not None
    assert rig.pods.coordinator.incarnation > given_up
    assert rig.pods.coordinator.relieves == 1


def test_the_one_that_is_relieved_is_heard_again() -> None:
    """Its channel was away for a moment: the job is not protected by it for long, and the new one still comes."""
    rig = moving(Rig.running())
    placement = rig.pods.coordinator
    rig.tell(e.CoordinatorReachable())
    rig.tell(e.CoordinatorReady())
    assert rig.at(JobPhase.UNPROTECTED)
    assert rig.pods.coordinator == placement
    assert rig.state.relieved == 1
    rig.exits(5)
    assert rig.action is Action.IN_PLACE, "its store is as it was"


def test_a_store_that_is_not_kept_is_lost_with_the_one_relieved() -> None:
    for kept, action in ((True, Action.IN_PLACE), (False, Action.CHECKPOINT)):
        rig = left(moving(Rig.running()))
        rig.tell(e.ControllerTakenOver(duration_ms=40, store_kept=kept))
        rig.view = replace(rig.view, coordinator_ready=True)
        rig.tell(e.CoordinatorReady())
        rig.exits(5)
        assert rig.action is action


def test_another_controller_of_the_one_that_is_relieved() -> None:
    """Its controller was lost while the new pod was on its way: it goes on serving until that one runs."""
    rig = moving(Rig.running())
    before = rig.state
    rig.tell(e.ControllerTakenOver(duration_ms=40, store_kept=False))
    assert (rig.state.relieved, rig.state.store_lost) == (before.relieved, False)


def test_a_fault_meanwhile_waits_for_the_other_one() -> None:
    rig = left(moving(Rig.running()))
    rig.exits(5)
    assert rig.at(JobPhase.HELD)
    assert rig.pods.coordinator is not None
    assert rig.pods.coordinator.relieves
    rig.view = replace(rig.view, coordinator_ready=True)
    rig.tell(e.ControllerTakenOver(duration_ms=40, store_kept=True))
    rig.tell(e.CoordinatorReady())
    assert rig.at(JobPhase.GATHERING)
    assert rig.pods.coordinator.relieves == 0


def test_that_of_a_shrunk_job_is_relieved_as_well() -> None:
    """Another controller is told who takes part; the job grows later, as it would have."""
    rig = shrunk()
    before = rig.state.coordinator
    rig.tell(ASKED)
    assert rig.at(JobPhase.UNPROTECTED)
    assert rig.pods.coordinator is not None
    assert rig.pods.coordinator.relieves == before
    rig.tell(e.ControllerTakenOver(duration_ms=40, store_kept=True))
    rig.tell(e.CoordinatorReady())
    assert rig.at(JobPhase.SHRUNK)
    assert Deadline.EXPAND in rig.state.deadlines
    assert rig.state.restarts_infrastructure == 0


def test_a_smaller_job_whose_coordinator_is_lost_stays_smaller() -> None:
    rig = shrunk()
    rig.tell(e.CoordinatorLost())
    assert rig.at(JobPhase.UNPROTECTED)
    rig.silent(2)
    assert rig.at(JobPhase.UNPROTECTED), "it left with the shrink"
    rig.tell(e.ControllerTakenOver(duration_ms=40, store_kept=True))
    rig.tell(e.CoordinatorReady())
    assert rig.at(JobPhase.SHRUNK)
    rig.view = replace(rig.view, free_nodes=9)
    rig.tell(e.CapacityAvailable(nodes=9))
    rig.deadline("Expand")
    assert rig.at(JobPhase.EXPANDING)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_a_fault_of_a_smaller_job_waits_for_protection(rank: int) -> None:
    """Then it is decided as ever: MindIO repairs nothing while ranks are missing."""
    rig, other = shrunk(), shrunk()
    rig.tell(e.CoordinatorLost())
    rig.exits(rank)
    assert rig.at(JobPhase.HELD)
    rig.tell(e.CoordinatorReady())
    other.exits(rank)
    assert other.state.phase in (JobPhase.SAVING, JobPhase.RESTARTING)
    assert (rig.state.phase, rig.action) == (other.state.phase, other.action)


def test_where_it_cannot_stay_smaller_it_is_saved() -> None:
    """The store was lost with the coordinator's pod: the ranks cannot meet to be left out again."""
    rig = shrunk()
    rig.tell(e.CoordinatorLost())
    rig.tell(e.ResultReported(rig.state.incarnation, 406, "no store", "downgrade"))
    assert (rig.state.phase, rig.action) == (JobPhase.SAVING, Action.CHECKPOINT)


def order_after(rig: Rig, event: e.JobEvent) -> OrderCommand:
    return next(one.command for one in rig.tell(event) if isinstance(one, SendOrder))


def test_growing_begins_anew_after_a_lost_coordinator() -> None:
    rig = shrunk()
    rig.view = replace(rig.view, free_nodes=9)
    rig.tell(e.CapacityAvailable(nodes=9))
    rig.deadline("Expand")
    assert rig.at(JobPhase.EXPANDING)
    assert order_after(rig, e.CoordinatorLost()) is OrderCommand.SHRINK
    assert rig.at(JobPhase.UNPROTECTED)
    rig.tell(e.CoordinatorReady())
    assert rig.at(JobPhase.SHRUNK)


def test_a_move_is_given_up_with_a_lost_coordinator() -> None:
    rig = Rig.running()
    rig.tell(e.MigrateRequested(nodes=(1,)))
    assert rig.at(JobPhase.MIGRATING)
    assert order_after(rig, e.CoordinatorLost()) is OrderCommand.CONTINUE
    rig.tell(e.CoordinatorReady())
    assert rig.at(JobPhase.RUNNING)


@pytest.mark.parametrize(
    ("policy", "why"),
    [
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
    assert "does not serve" in said(rig)
