"""Every incident says which smaller actions were refused, and by which preconditions."""

from __future__ import annotations

from hajob.domain.actions import Action
from hajob.plan import events as e
from hajob.plan.incident_state import UNMET_LIMIT
from hajob.plan.policy import Policy, Refusal
from tests.rigs.plan_rig import Rig


def refused(rig: Rig) -> dict[Action, tuple[str, ...]]:
    return {one.action: one.unmet for one in rig.incident.refused}


def test_an_incident_says_why_smaller_actions_were_refused() -> None:
    rig = Rig.running()
    rig.silent(2)
    assert rig.action is Action.REPLACE
    assert refused(rig) == {Action.RETRY: ("PodAlive",), Action.IN_PLACE: ("PodAlive",)}


def test_an_action_that_was_tried_is_not_among_the_refused() -> None:
    rig = Rig.running()
    rig.silent(2)
    rig.deadline("Recovery")
    assert (rig.action, rig.incident.escalated_from) == (Action.SHRINK, (Action.REPLACE,))
    assert refused(rig) == {Action.RETRY: ("PodAlive",), Action.IN_PLACE: ("PodAlive",)}


def test_the_first_reason_of_a_refused_action_counts() -> None:
    rig = Rig.running()
    rig.exits(5)
    rig.tell(e.Named(2, 1))
    rig.exits(3)
    assert rig.action is Action.CHECKPOINT
    assert refused(rig) == {
        Action.RETRY: ("ProcessAlive",),
        Action.REPLACE: ("StillPossible",),
        Action.SHRINK: ("StillPossible",),
    }


def test_a_refused_action_names_a_bounded_number_of_reasons() -> None:
    many = tuple(Refusal(f"N{number}", "words") for number in range(20))
    rig = Rig.running(policy=Policy(refusals={Action.IN_PLACE: many}))
    rig.exits(5)
    assert refused(rig)[Action.IN_PLACE] == tuple(f"N{number}" for number in range(UNMET_LIMIT))


def test_what_was_asked_for_refuses_nothing() -> None:
    rig = Rig.running()
    rig.tell(e.RestartRequested())
    assert rig.incident.refused == ()
