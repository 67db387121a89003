"""A coordinator that falls silent in the middle of an action has a successor, which is told the same and goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hajob.domain.actions import OrderCommand
from hajob.domain.facts import FactKind, Source
from hajob.plan import events as e
from hajob.plan.policy import (
    CONTINUE_SECONDS,
    COORDINATOR_SECONDS,
    HELD_SECONDS,
    SUCCESSOR_SECONDS,
    UNREACHABLE_SECONDS,
    Policy,
)
from hajob.plan.state import JobPhase
from tests.rigs.plan_moments import confirming, expanding, gathering, migrating, pausing, shrinking
from tests.rigs.plan_rig import Rig

Make = Callable[[], Rig]


def replacing() -> Rig:
    """A pod is being made anew."""
    rig = Rig.running()
    rig.silent(2)
    return rig


def saving() -> Rig:
    rig = Rig.running()
    rig.tell(e.RestartRequested())
    return rig


def saving_amid_a_replacement() -> Rig:
    rig = replacing()
    rig.tell(e.RestartRequested())
    return rig


def suspending() -> Rig:
    rig = Rig.running()
    rig.tell(e.SuspendRequested())
    return rig


ACTIONS = (gathering, replacing, Rig.naming, shrinking, saving, suspending, pausing)
"""Every rank stands, or is about to: a successor goes on with it."""
BESIDE = (confirming, migrating, expanding)
"""The training goes on beside it: it is given up, and begun anew later."""


def out_of_earshot(rig: Rig) -> Rig:
    """Nobody hears the coordinator from now on."""
    rig.view = replace(rig.view, coordinator_ready=False, coordinator_silent=True)
    return rig


def silent(make: Make) -> Rig:
    """As `make` leaves it, but nobody hears the coordinator any more."""
    rig = out_of_earshot(make())
    rig.tell(e.CoordinatorUnreachable())
    return rig


def succeeded(make: Make) -> Rig:
    """For so long that another one is made."""
    rig = silent(make)
    rig.deadline("Unreachable")
    rig.deadline("Coordinator")
    return rig


def heard(rig: Rig) -> Rig:
    """Somebody serves again."""
    rig.view = replace(rig.view, coordinator_ready=True, coordinator_silent=False)
    rig.tell(e.CoordinatorReachable())
    rig.tell(e.CoordinatorReady())
    return rig


def untouched(rig: Rig) -> bool:
    return rig.state.restarts_infrastructure == 0 and not rig.at(JobPhase.RESTARTING)


@pytest.mark.parametrize("make", ACTIONS)
def test_its_successor_is_made_after_15_seconds(make: Make) -> None:
    before, rig = make(), silent(make)
    begin, phase = rig.now, rig.state.phase
    rig.deadline("Unreachable")
    rig.deadline("Coordinator")
    assert rig.now - begin <= 1000 * (UNREACHABLE_SECONDS + COORDINATOR_SECONDS)
    assert rig.pods.coordinator != before.pods.coordinator
    assert rig.at(phase)
    assert rig.incident.number == before.incident.number
    assert untouched(rig)


@pytest.mark.parametrize("make", ACTIONS)
def test_a_silent_one_that_is_heard_again_goes_on(make: Make) -> None:
    before = make().state
    rig = heard(silent(make))
    assert replace(rig.state, deadlines={}) == replace(before, deadlines={})
    assert rig.state.deadlines.keys() == before.deadlines.keys()


@pytest.mark.parametrize("make", ACTIONS)
def test_it_is_heard_in_the_last_moment(make: Make) -> None:
    """Its channel is up again, and nothing has been told yet when it would have been given up."""
    rig = silent(make)
    rig.deadline("Unreachable")
    before = rig.pods.coordinator
    rig.view = replace(rig.view, coordinator_ready=True, coordinator_silent=False)
    rig.deadline("Coordinator")
    assert rig.pods.coordinator == before
    assert "Coordinator" not in rig.state.deadlines


@pytest.mark.parametrize("make", ACTIONS)
def test_the_successor_has_time_to_come(make: Make) -> None:
    """A pod has to start: what was nearly over when the coordinator was lost is not over before."""
    rig = out_of_earshot(make())
    limit = rig.state.deadlines["Recovery"]
    rig.tell(e.CoordinatorUnreachable(), limit - 1000)
    phase = rig.state.phase
    if rig.at(JobPhase.PAUSED):
        return
    rig.deadline("Recovery")
    assert rig.at(phase)
    rig.deadline("Unreachable")
    rig.deadline("Coordinator")
    assert rig.at(phase)
    assert rig.state.deadlines["Recovery"] >= rig.now + 1000 * HELD_SECONDS


@pytest.mark.parametrize(
    ("make", "seconds"),
    [
        (gathering, 120),
        (replacing, 270),
        (Rig.naming, 120),
        (shrinking, 300),
    ],
)
def test_the_action_has_its_own_time_from_the_successor_on(make: Make, seconds: int) -> None:
    rig = heard(succeeded(make))
    assert rig.state.deadlines == {"Recovery": rig.now + 1000 * seconds}


@pytest.mark.parametrize("make", [saving, saving_amid_a_replacement])
def test_a_save_keeps_its_time(make: Make) -> None:
    """It has more of it than a successor needs."""
    assert heard(succeeded(make)).state.deadlines == make().state.deadlines


@pytest.mark.parametrize("make", ACTIONS)
def test_one_that_is_silent_again_is_followed_no_more(make: Make) -> None:
    rig = succeeded(make)
    rig.tell(e.CoordinatorUnreachable())
    rig.deadline("Unreachable")
    assert rig.state.deadlines["Coordinator"] == rig.now + 1000 * SUCCESSOR_SECONDS
    rig.deadline("Coordinator")
    assert rig.at(JobPhase.SUSPENDED if make is suspending else JobPhase.RESTARTING)


@pytest.mark.parametrize("make", ACTIONS)
def test_a_successor_that_never_comes_ends_it(make: Make) -> None:
    """Its pod finds no node, or its image does not come; a pause is over before."""
    rig = succeeded(make)
    if rig.at(JobPhase.PAUSED):
        rig.deadline("Recovery")
    rig.deadline("Recovery")
    ends = {suspending: JobPhase.SUSPENDED, pausing: JobPhase.RUNNING}
    assert rig.at(ends.get(make, JobPhase.RESTARTING))


def test_a_pause_ends_in_time_though_nobody_is_heard() -> None:
    """Whoever comes is told to have them go on."""
    rig = pausing()
    end = rig.state.deadlines["Recovery"]
    out_of_earshot(rig)
    rig.tell(e.CoordinatorUnreachable())
    rig.deadline("Unreachable")
    rig.deadline("Coordinator")
    assert rig.state.deadlines == {"Recovery": end}
    done = rig.deadline("Recovery")
    assert rig.order(done).command is OrderCommand.CONTINUE
    assert rig.state.deadlines == {"Recovery": rig.now + 1000 * HELD_SECONDS}
    heard(rig)
    assert rig.state.deadlines == {"Recovery": rig.now + 1000 * CONTINUE_SECONDS}


def test_the_loss_of_its_pod_leaves_as_much_time() -> None:
    rig = out_of_earshot(gathering())
    rig.tell(e.CoordinatorLost(message="deleted"))
    assert rig.state.deadlines == {"Recovery": rig.now + 1000 * HELD_SECONDS}
    rig.now += 100_000
    rig.tell(e.CoordinatorLost(message="deleted"))
    assert rig.state.deadlines["Recovery"] < rig.now + 1000 * HELD_SECONDS, "not for ever"
    assert rig.at(JobPhase.GATHERING)


# ---------------------------------------------------------------------- a fault meanwhile, from Kubernetes


def lose_another_pod(rig: Rig) -> None:
    rig.see(FactKind.POD_LOST, node=3, source=Source.POD, incarnation=rig.state.pod_incarnation(3))


@pytest.mark.parametrize("make", [*(one for one in ACTIONS if one not in (saving, suspending)), *BESIDE])
def test_a_fault_beside_a_silent_one_starts_nothing_anew(make: Make) -> None:
    """No operator has heard it yet, or it is gone: it carries out what is wanted then, or its successor does."""
    rig = out_of_earshot(make())
    lose_another_pod(rig)
    assert untouched(rig)
    assert rig.incident.fact_ids
    rig.tell(e.CoordinatorUnreachable())
    rig.deadline("Unreachable" if "Unreachable" in rig.state.deadlines else "Coordinator")
    if "Coordinator" in rig.state.deadlines:
        rig.deadline("Coordinator")
    assert untouched(rig)
    assert rig.pods.coordinator is not None
    assert rig.pods.coordinator.incarnation > make().state.coordinator


@pytest.mark.parametrize("make", [one for one in ACTIONS if one not in (saving, suspending)])
def test_a_fault_beside_a_silent_one_is_ordered_at_once(make: Make) -> None:
    rig, other = out_of_earshot(make()), make()
    lose_another_pod(rig)
    lose_another_pod(other)
    assert (rig.state.phase, rig.action) == (other.state.phase, other.action)
    assert rig.order() == other.order()


@pytest.mark.parametrize("make", BESIDE)
def test_a_fault_beside_a_silent_one_waits_for_it(make: Make) -> None:
    rig, other = out_of_earshot(make()), make()
    lose_another_pod(rig)
    assert rig.at(JobPhase.HELD)
    rig.view = replace(rig.view, coordinator_ready=True, coordinator_silent=False)
    rig.tell(e.CoordinatorReady())
    lose_another_pod(other)
    if make is confirming:  # the result it waits for has come meanwhile, or never will
        other = Rig.running()
        lose_another_pod(other)
    assert (rig.state.phase, rig.action) == (other.state.phase, other.action)


@pytest.mark.parametrize(("make", "command"), [(migrating, OrderCommand.CONTINUE), (expanding, OrderCommand.SHRINK)])
def test_what_went_on_beside_is_given_up_by_name(make: Make, command: OrderCommand) -> None:
    rig = out_of_earshot(make())
    lose_another_pod(rig)
    assert rig.order().command is command
    rig.tell(e.FactsWithdrawn(ids=rig.incident.fact_ids))
    assert rig.state.phase in {JobPhase.UNPROTECTED, JobPhase.SHRUNK, JobPhase.RUNNING}


def test_ranks_that_come_back_are_given_up_without_a_coordinator() -> None:
    """They do not train: nothing has to be decided, nobody has to be heard."""
    rig = out_of_earshot(expanding())
    rig.see(FactKind.POD_LOST, node=2, source=Source.POD, incarnation=rig.state.pod_incarnation(2))
    assert rig.at(JobPhase.SHRUNK)


def test_time_is_up_and_no_controller_is_there_to_save() -> None:
    """Nobody comes, and the job has no controller to shrink or to save with."""
    rig = out_of_earshot(replacing())
    rig.policy = Policy()
    rig.tell(e.CoordinatorLost(message="deleted"))
    rig.deadline("Recovery")
    assert rig.at(JobPhase.RESTARTING)
