"""Type of each Event: a Warning may need a person (`kubectl get events --field-selector type=Warning`)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import Action
from hajob.domain.facts import Origin
from hajob.domain.incidents import Cause, Incident, IncidentOutcome, Purpose
from hajob.job.status.announcements import event_of_closing, event_of_effect, event_of_opening
from hajob.plan import effects


@pytest.mark.parametrize(
    "word",
    [
        "CoordinatorLost",
        "ControllerLost",
        "CoordinatorUnreachable",
        "CoordinatorSharesNode",
        "MoveRefused",
        "MigrateGivenUp",
        "PauseRefused",
        "WaitingForCapacity",
        "PodUnstartable",
        "Held",
    ],
)
def test_what_may_need_a_person_is_a_warning(word: str) -> None:
    said = event_of_effect(effects.Announce(EventReason(word), "why"))
    assert said is not None
    assert (said.reason, said.message, said.is_warning) == (word, "why", True)


@pytest.mark.parametrize(
    "word", ["ControllerTakenOver", "CoordinatorMoving", "PodMadeAnew", "Suspended", "PauseEnds", "PlannedWork"]
)
def test_what_goes_by_plan_or_ended_well_is_normal(word: str) -> None:
    said = event_of_effect(effects.Announce(EventReason(word), "why"))
    assert said is not None
    assert not said.is_warning


def test_every_event_says_when_it_comes() -> None:
    assert [reason for reason in EventReason if not reason.when.endswith(".") or not reason.when[0].isupper()] == []


@pytest.mark.parametrize(
    ("purpose", "begins", "ends"),
    [
        (Purpose.FAULT, "Recovering", "Recovered"),
        (Purpose.MIGRATE, "PlannedWork", "PlannedWorkDone"),
        (Purpose.EXPAND, "PlannedWork", "PlannedWorkDone"),
    ],
)
def test_planned_work_warns_nobody(purpose: Purpose, begins: str, ends: str) -> None:
    incident = Incident(2, 2, 1, purpose, Origin.INFRASTRUCTURE, Action.REPLACE, Cause(), opened_ms=0)
    closed = event_of_closing(effects.CloseIncident(2, IncidentOutcome.RECOVERED), incident, 1_500, 0)
    assert closed is not None
    assert (event_of_opening(incident).reason, closed.reason) == (begins, ends)
    assert closed.message == "training again after 1.5 s, no step lost (Replace)"


def test_a_plan_that_is_given_up_has_its_own_event() -> None:
    incident = Incident(2, 2, 1, Purpose.MIGRATE, Origin.INFRASTRUCTURE, Action.MIGRATE, Cause(), opened_ms=0)
    given_up = effects.CloseIncident(2, IncidentOutcome.FAILED, "no node")
    assert event_of_closing(given_up, incident, None) is None
    fault = event_of_closing(given_up, replace(incident, purpose=Purpose.FAULT), None)
    assert fault is not None
    assert (fault.reason, fault.message) == ("NotRecovered", "Migrate did not work: no node")
