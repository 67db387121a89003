"""A fault while the coordinator is silent waits for it, or for its successor, but not for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.actions import Action
from hajob.domain.facts import FactKind, Source
from hajob.plan import events as e
from hajob.plan.placements import CoordinatorPlacement
from hajob.plan.policy import COORDINATOR_SECONDS, HELD_SECONDS, SUCCESSOR_SECONDS, Mode, Policy
from hajob.plan.state import JobPhase
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_worlds import VIEW


def missed(*, told: bool = False) -> Rig:
    """A training whose coordinator is silent; `told`: for so long that it was spoken of."""
    rig = Rig.running()
    rig.view = replace(VIEW, coordinator_ready=False)
    rig.tell(e.CoordinatorUnreachable())
    if told:
        rig.deadline("Unreachable")
    return rig


def lose_a_pod(rig: Rig) -> None:
    """What Kubernetes alone can tell."""
    rig.see(FactKind.POD_LOST, node=1, source=Source.POD)


@pytest.mark.parametrize("told", [False, True])
def test_a_fault_waits_for_a_silent_coordinator(told: bool) -> None:
    rig = missed(told=told)
    lose_a_pod(rig)
    assert rig.at(JobPhase.HELD)
    assert rig.state.deadlines["Coordinator"] <= rig.now + 1000 * COORDINATOR_SECONDS
    rig.view = VIEW
    rig.tell(e.CoordinatorReachable())
    assert rig.state.deadlines.keys() == {"Recovery"}
    rig.tell(e.CoordinatorReady())
    assert rig.at(JobPhase.GATHERING)
    assert (rig.action, rig.state.restarts_infrastructure) == (Action.REPLACE, 0)


def test_the_successor_of_a_silent_one_is_told_of_the_fault() -> None:
    rig = missed()
    lose_a_pod(rig)
    rig.deadline("Coordinator")
    assert rig.at(JobPhase.HELD)
    assert rig.pods.coordinator == CoordinatorPlacement(rig.state.incarnation)
    rig.view = VIEW
    rig.tell(e.ControllerTakenOver(duration_ms=40, store_kept=True))
    rig.tell(e.CoordinatorReady())
    assert rig.at(JobPhase.GATHERING)
    assert (rig.action, rig.state.restarts_infrastructure) == (Action.REPLACE, 0)


def test_a_fault_does_not_wait_for_silent_ones_for_ever() -> None:
    rig = missed()
    lose_a_pod(rig)
    rig.deadline("Coordinator")
    assert rig.state.deadlines.keys() == {"Recovery"}, "its successor is not there yet"
    rig.tell(e.CoordinatorUnreachable())
    rig.deadline("Unreachable")
    assert rig.state.deadlines["Coordinator"] == rig.now + 1000 * SUCCESSOR_SECONDS
    rig.deadline("Coordinator")
    assert rig.at(JobPhase.RESTARTING)


def test_a_fault_waits_ten_minutes_for_a_controller_at_most() -> None:
    """Its pod finds no node, or its image does not come."""
    rig = missed()
    lose_a_pod(rig)
    rig.deadline("Coordinator")
    rig.tell(e.CoordinatorReachable())
    assert rig.state.deadlines.keys() == {"Recovery"}
    rig.deadline("Recovery")
    assert rig.at(JobPhase.RESTARTING)


def test_a_fault_that_is_over_is_waited_for_no_more() -> None:
    rig = missed()
    lose_a_pod(rig)
    rig.tell(e.FactsWithdrawn(ids=rig.incident.fact_ids))
    assert rig.at(JobPhase.RUNNING)
    assert rig.state.deadlines.keys() == {"Coordinator"}


def test_each_successor_in_vain_is_waited_for_twice_as_long() -> None:
    """Where only this operator cannot hear them, each of them may protect the job."""
    rig = Rig.running()
    rig.view = replace(VIEW, coordinator_ready=False)
    rig.tell(e.CoordinatorLost())
    waits = []
    for _ in range(6):
        rig.out_of_reach()
        waits.append((rig.state.deadlines["Coordinator"] - rig.now) // 1000)
        rig.deadline("Coordinator")
        assert rig.at(JobPhase.UNPROTECTED)
    assert waits == [60, 120, 240, 480, 960, 960]
    rig.tell(e.CoordinatorReachable())
    rig.out_of_reach()
    assert rig.state.deadlines["Coordinator"] == rig.now + 60_000


def test_a_successor_heard_late_is_waited_for() -> None:
    rig = missed()
    lose_a_pod(rig)
    rig.deadline("Coordinator")
    rig.tell(e.CoordinatorUnreachable())
    rig.deadline("Unreachable")
    rig.tell(e.CoordinatorReachable())
    assert rig.state.deadlines.keys() == {"Recovery"}
    assert rig.at(JobPhase.HELD)


def test_a_small_job_waits_for_its_silent_coordinator() -> None:
    rig = Rig.shrunk()
    rig.tell(e.CoordinatorUnreachable())
    rig.view = replace(rig.view, coordinator_ready=False)
    rig.exits(7)
    assert rig.at(JobPhase.HELD)
    rig.view = replace(rig.view, coordinator_ready=True)
    rig.tell(e.CoordinatorReady())
    assert rig.at(JobPhase.SAVING)


def test_another_spec_decides_nothing_without_a_controller() -> None:
    """Each operator begins with it, before it has heard the coordinator."""
    rig = missed()
    lose_a_pod(rig)
    before = rig.state.deadlines
    rig.tell(e.PolicyChanged())
    assert rig.at(JobPhase.HELD)
    assert rig.state.deadlines == before
    rig.view = VIEW
    rig.tell(e.PolicyChanged())
    assert rig.at(JobPhase.GATHERING)


def test_what_was_held_by_policy_waits_for_a_controller_as_long() -> None:
    rig = Rig.running(policy=Policy(mode=Mode.HOLD))
    lose_a_pod(rig)
    rig.policy, rig.view = Policy(), replace(VIEW, coordinator_ready=False)
    rig.tell(e.PolicyChanged())
    assert rig.at(JobPhase.HELD)
    assert rig.state.deadlines == {"Recovery": rig.now + 1000 * HELD_SECONDS}
    rig.deadline("Recovery")
    assert rig.at(JobPhase.RESTARTING)


@pytest.mark.parametrize("mode", [Mode.HOLD, Mode.OBSERVE])
def test_what_the_policy_holds_is_not_started_anew_by_the_clock(mode: Mode) -> None:
    """It came while another controller was awaited, and that one serves; nobody has let it go since."""
    rig = Rig.running(policy=Policy(mode=mode))
    rig.view = replace(VIEW, coordinator_ready=False)
    rig.tell(e.CoordinatorLost(message="gone"))
    lose_a_pod(rig)
    rig.view = VIEW
    rig.tell(e.ControllerTakenOver(duration_ms=40, store_kept=True))
    rig.tell(e.CoordinatorReady())
    rig.deadline("Recovery")
    assert rig.at(JobPhase.HELD)
    assert not rig.state.deadlines
    rig.policy = Policy()
    rig.tell(e.PolicyChanged())
    assert rig.at(JobPhase.GATHERING)


def test_what_the_policy_holds_gets_coordinators_for_ever() -> None:
    rig = Rig.running(policy=Policy(mode=Mode.HOLD))
    lose_a_pod(rig)
    rig.view = replace(VIEW, coordinator_ready=False)
    for _ in range(3):
        before = rig.pods.coordinator
        rig.out_of_reach()
        rig.deadline("Coordinator")
        assert rig.at(JobPhase.HELD)
        assert rig.pods.coordinator != before
    assert rig.state.restarts_infrastructure == 0


def test_a_fault_leaves_a_successor_the_time_to_start() -> None:
    rig = Rig.running()
    rig.view = replace(VIEW, coordinator_ready=False)
    rig.tell(e.CoordinatorLost(message="gone"))
    rig.tell(e.CoordinatorUnreachable())
    lose_a_pod(rig)
    assert rig.at(JobPhase.HELD)
    assert rig.state.deadlines["Coordinator"] == rig.now + 1000 * SUCCESSOR_SECONDS


def test_a_fault_is_over_and_the_job_is_unprotected() -> None:
    """Its successor is still to come: the next fault waits for it, too."""
    rig = missed()
    lose_a_pod(rig)
    rig.deadline("Coordinator")
    rig.tell(e.FactsWithdrawn(ids=rig.incident.fact_ids))
    assert rig.at(JobPhase.UNPROTECTED)
    lose_a_pod(rig)
    assert rig.at(JobPhase.HELD)
    rig.tell(e.FactsWithdrawn(ids=rig.incident.fact_ids))
    rig.view = VIEW
    rig.tell(e.CoordinatorReady())
    assert rig.at(JobPhase.RUNNING)


def test_a_small_job_whose_fault_is_over_looks_for_nodes_again() -> None:
    rig = Rig.shrunk()
    rig.tell(e.CapacityAvailable(nodes=rig.view.layout.num_nodes))
    rig.tell(e.CoordinatorUnreachable())
    rig.view = replace(rig.view, coordinator_ready=False)
    rig.exits(7)
    rig.tell(e.CoordinatorReachable())
    rig.deadline("Expand")
    assert rig.at(JobPhase.HELD)
    rig.view = replace(rig.view, coordinator_ready=True, free_nodes=rig.view.layout.num_nodes)
    rig.tell(e.FactsWithdrawn(ids=rig.incident.fact_ids))
    assert rig.at(JobPhase.SHRUNK)
    rig.deadline("Expand")
    rig.deadline("Expand")
    assert rig.at(JobPhase.EXPANDING)


def test_a_fault_before_the_first_word_of_one_that_is_back_waits() -> None:
    """The channel is up; whether it takes over is said when agents have told of their ranks."""
    rig = missed()
    rig.tell(e.CoordinatorReachable())
    assert not rig.state.deadlines
    rig.view = replace(rig.view, coordinator_silent=True)
    lose_a_pod(rig)
    assert rig.at(JobPhase.HELD)
    rig.view = VIEW
    rig.tell(e.CoordinatorReady())
    assert rig.at(JobPhase.GATHERING)
    assert (rig.action, rig.state.restarts_infrastructure) == (Action.REPLACE, 0)
