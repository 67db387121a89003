"""Conditions and reasons: each with its sentence, times that mean something."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hajob.api.conditions import (
    QUIET_REASONS,
    ConditionType,
    Reason,
    build_condition,
    find_condition,
    with_condition,
)
from hajob.api.enums import ConditionStatus
from hajob.api.status import ActionRecoverability
from hajob.domain.actions import Action

_BAD = {
    ("Accepted", "False"),
    ("Accepted", "Unknown"),
    ("Scheduled", "False"),
    ("Recoverable", "False"),
    ("CoordinatorReady", "False"),
    ("SparesReady", "False"),
    ("Degraded", "True"),
    ("Held", "True"),
    ("Failed", "True"),
    ("Shrunk", "True"),
}
_PASSES_BY_ITSELF = {
    Reason.NOT_CHECKED,
    Reason.COORDINATOR_NOT_NEEDED,
    Reason.COORDINATOR_STARTING,
    Reason.TAKING_OVER,
    Reason.SPARES_AFTER_START,
}
_BAD_ALL_THE_SAME = {Reason.COORDINATOR_SHARES_NODE, Reason.SCRIPT_DISAGREES, Reason.FAULT_HELD, *QUIET_REASONS}
NOW = datetime(2026, 11, 21, 9, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)


def test_reasons_have_sentences_and_are_unique_in_a_condition() -> None:
    for reason in Reason:
        assert reason.word.isalnum(), reason
        assert reason.word[0].isupper(), reason
        assert reason.sentence.endswith("."), reason
    assert len({(reason.type, reason.word) for reason in Reason}) == len(Reason)


def test_exactly_the_bad_reasons_have_a_remedy() -> None:
    bad = {reason for reason in Reason if (reason.type, reason.status) in _BAD} - _PASSES_BY_ITSELF | _BAD_ALL_THE_SAME
    assert {reason for reason in Reason if reason.remedy} == bad
    assert [reason.word for reason in bad if not reason.remedy.endswith((".", ")."))] == []


def test_the_time_changes_only_with_the_status() -> None:
    conditions = with_condition((build_condition(Reason.NOT_FAILED, NOW),), build_condition(Reason.NOT_STARTED, NOW))
    conditions = with_condition(conditions, build_condition(Reason.STARTING, LATER))
    running = find_condition(conditions, ConditionType.RUNNING)
    assert running is not None
    assert (running.reason, running.last_transition_time) == ("Starting", NOW.replace(microsecond=0))
    conditions = with_condition(conditions, build_condition(Reason.TRAINING, LATER, message="step 7", generation=2))
    training = find_condition(conditions, ConditionType.RUNNING)
    assert training is not None
    assert training.to_json() == {
        "type": "Running",
        "status": "True",
        "reason": "Training",
        "message": "step 7",
        "lastTransitionTime": "2026-11-21T09:05:00Z",
        "observedGeneration": 2,
    }
    assert [entry.type for entry in conditions] == ["Running", "Failed"]


def test_a_refusal_longer_than_a_condition_holds_is_cut() -> None:
    """The server lists all that is wrong with a template, such as two hundred names of variables."""
    wrong = "; ".join(f"spec.containers[0].env[{number}].name: Invalid value{'.' * 200}" for number in range(200))
    refused = build_condition(Reason.POD_REFUSED, NOW, message=wrong)
    assert (len(refused.message), refused.message[:20]) == (32768, wrong[:20])
    assert (
        ActionRecoverability(action=Action.RETRY, status=ConditionStatus.FALSE, message=wrong).message
        == f"{wrong[:4095]}…"
    )
