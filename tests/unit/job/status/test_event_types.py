"""Type of each Event: a Warning may need a person (`kubectl get events --field-selector type=Warning`)."""

from __future__ import annotations

import pytest

from hajob.api.event_reasons import EventReason
from hajob.job.status.announcements import of_effect
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
    said = of_effect(effects.Announce(EventReason(word), "why"))
    assert said is not None
    assert (said.reason, said.message, said.warning) == (word, "why", True)


@pytest.mark.parametrize("word", ["ControllerTakenOver", "CoordinatorMoving", "PodMadeAnew", "Suspended", "PauseEnds"])
def test_what_goes_by_plan_or_ended_well_is_normal(word: str) -> None:
    said = of_effect(effects.Announce(EventReason(word), "why"))
    assert said is not None
    assert not said.warning


def test_every_event_says_when_it_comes() -> None:
    assert [reason for reason in EventReason if not reason.when.endswith(".") or not reason.when[0].isupper()] == []
