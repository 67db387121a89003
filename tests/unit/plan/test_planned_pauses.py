"""A planned pause: the ranks wait, work is done, the training goes on; whatever comes between ends it well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import Action, OrderCommand
from hajob.domain.facts import FactKind, Source
from hajob.plan import events as e
from hajob.plan.effects import Announce, CloseIncident, SendOrder
from hajob.plan.policy import Mode, Policy
from hajob.plan.state import JobPhase
from tests.rigs.plan_rig import Rig, from_dict, to_dict
from tests.rigs.plan_worlds import VIEW

REQUEST = e.PauseRequested(request="2026-11-22T10:00:00Z", seconds=600, reason="a test of all nodes")


def paused() -> Rig:
    rig = Rig.running()
    rig.tell(REQUEST)
    rig.tell(e.Stopped(2))
    return rig


def command(rig: Rig) -> tuple[OrderCommand, int, int]:
    """The newest order of the last transition."""
    assert rig.transition is not None
    (order,) = (effect for effect in rig.transition.effects if isinstance(effect, SendOrder))
    return order.command, order.revision, order.timeout_seconds


def test_mindio_waits_longer_than_the_pause_may_last() -> None:
    rig = Rig.running()
    rig.tell(REQUEST)
    assert (rig.state.phase, command(rig)) == (JobPhase.PAUSED, (OrderCommand.PAUSE, 1, 660))
    assert not rig.state.holds_still
    rig.tell(e.Stopped(2))
    assert rig.state.holds_still
    assert from_dict(to_dict(rig.state)) == rig.state


@pytest.mark.parametrize(
    "end", [e.PauseEnded(message="done"), e.SuspendRequested(), e.DeadlineReached(name="Recovery")]
)
def test_the_training_goes_on_whatever_ends_the_pause(end: e.JobEvent) -> None:
    rig = paused()
    rig.tell(end, now=rig.state.deadlines["Recovery"])
    assert (rig.state.phase, command(rig)) == (JobPhase.PAUSED, (OrderCommand.CONTINUE, 2, 0))
    assert not rig.state.holds_still
    assert not rig.tell(e.PauseEnded()), "it is told to go on once"
    done = rig.tell(e.ResultReported(2, 0, "", "continue"))
    assert (rig.state.phase, rig.state.incident) == (JobPhase.RUNNING, None)
    assert [effect.outcome for effect in done if isinstance(effect, CloseIncident)] == ["Recovered"]


def test_a_node_found_bad_is_replaced_out_of_the_pause() -> None:
    rig = paused()
    rig.see(FactKind.CHIP_FAULT, node=1, source=Source.POD, node_name="node-1", incarnation=1)
    assert (rig.state.phase, rig.incident.action) == (JobPhase.GATHERING, Action.REPLACE)
    assert (rig.incident.lost_ranks, rig.incident.replaced_nodes) == ((2, 3), (1,))
    assert command(rig)[0] is OrderCommand.REPLACE


def test_a_rank_that_dies_in_a_pause_is_restarted_in_place() -> None:
    rig = paused()
    rig.exits(5)
    assert (rig.state.phase, rig.incident.action) == (JobPhase.GATHERING, Action.IN_PLACE)


def test_a_pause_that_mindio_gives_up_leaves_the_job_training() -> None:
    rig = paused()
    done = rig.tell(e.ResultReported(2, 406, "Controller do pause wait failed.", ""))
    assert (rig.state.phase, rig.state.incident) == (JobPhase.RUNNING, None)
    assert [effect.reason for effect in done if isinstance(effect, Announce)] == ["PauseGivenUp"]


def test_without_a_word_about_going_on_the_job_is_watched_again() -> None:
    rig = paused()
    rig.deadline("Recovery")
    rig.deadline("Recovery")
    assert rig.state.phase is JobPhase.RUNNING


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Policy(mode=Mode.OBSERVE), "recovery.mode is Observe"),
        (
            Policy(hot_switch=False),
            "ProcessRecovery: MindSpore holds at the end of a step only where InPlace or Replace can work",
        ),
    ],
)
def test_a_pause_that_can_never_be_is_refused_by_name(policy: Policy, why: str) -> None:
    rig = Rig.running(policy=policy)
    (said,) = rig.tell(REQUEST)
    assert said == Announce(EventReason.PAUSE_REFUSED, f"the training is not paused: {why}")
    assert (rig.state.phase, rig.state.pause_seen) == (JobPhase.RUNNING, REQUEST.request)


@pytest.mark.parametrize("view", [replace(VIEW, step=0), replace(VIEW, coordinator_ready=False)])
def test_a_pause_that_cannot_be_yet_is_asked_for_again(view: object) -> None:
    rig = Rig.running(view=view)  # type: ignore[arg-type]
    rig.tell(REQUEST)
    assert (rig.state.phase, rig.state.pause_seen) == (JobPhase.RUNNING, "")
