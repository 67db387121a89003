"""Condition Degraded: which precondition of which action is missing, and the refused actions of an incident."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from hajob.api.enums import ConditionStatus
from hajob.api.job import HATrainingJob
from hajob.api.status import ActionRecoverability, Condition, UnmetPrecondition
from hajob.domain.actions import Action
from hajob.domain.facts import Origin
from hajob.domain.incidents import Cause, Incident, Purpose, RefusedAction
from hajob.job.status.build import MESSAGE_LIMIT, CoordinatorView, Snapshot, build_status
from hajob.job.status.incident_entry import Record, entry
from hajob.plan.policy import layout_of
from hajob.plan.state import JobPhase, JobState

EXAMPLE = Path(__file__).parents[4] / "examples" / "quickstart.yaml"
JOB = HATrainingJob.model_validate(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")))


def evaluated(action: Action, status: ConditionStatus, *names: str) -> ActionRecoverability:
    return ActionRecoverability(action=action, status=status, unmet=tuple(UnmetPrecondition(name=one) for one in names))


def degraded(*recoverability: ActionRecoverability) -> Condition:
    state = JobState(phase=JobPhase.RUNNING)
    snapshot = Snapshot(JOB, state, 1, 1_000, recoverability=recoverability)
    return next(each for each in build_status(snapshot).conditions if each.type == "Degraded")


FINE = evaluated(Action.RETRY, ConditionStatus.TRUE)
NO_NODE = evaluated(Action.REPLACE, ConditionStatus.FALSE, "FreeNode")
MANY = evaluated(Action.SHRINK, ConditionStatus.FALSE, "PodsAligned", "MinDataParallel")
HIDDEN = evaluated(Action.CHECKPOINT, ConditionStatus.UNKNOWN, "CheckpointFormatTorch")


@pytest.mark.parametrize(
    ("recoverability", "status", "reason", "message"),
    [
        ((FINE, NO_NODE), "True", "ProtectionMissing", "Replace: FreeNode"),
        ((NO_NODE, MANY), "True", "ProtectionMissing", "Replace: FreeNode; Shrink: PodsAligned, MinDataParallel"),
        (
            (FINE, HIDDEN),
            "False",
            "Protected",
            "Every allowed recovery action has its preconditions met, as far as known.",
        ),
        ((), "Unknown", "NotTraining", "Protection is evaluated while the job trains."),
    ],
)
def test_degraded_names_what_is_missing(
    recoverability: Sequence[ActionRecoverability], status: str, reason: str, message: str
) -> None:
    found = degraded(*recoverability)
    assert (found.status, found.reason, found.message) == (status, reason, message)


def test_a_long_list_of_what_is_missing_is_cut() -> None:
    names = [f"Precondition{number:02}" + "x" * 40 for number in range(32)]
    assert len(degraded(evaluated(Action.RESTART, ConditionStatus.FALSE, *names)).message) == MESSAGE_LIMIT


def test_an_entry_says_which_smaller_actions_were_refused() -> None:
    refused = (RefusedAction(Action.RETRY, ("ProcessAlive",)), RefusedAction(Action.IN_PLACE, ("PodAlive", "Bf16")))
    incident = Incident(
        2, 2, 1, Purpose.FAULT, Origin.INFRASTRUCTURE, Action.REPLACE, Cause(), opened_ms=0, refused=refused
    )
    told = entry(Record(incident), layout_of(JOB.spec)).model_dump(by_alias=True, exclude_unset=True, mode="json")
    assert told["refused"] == [
        {"action": "Retry", "unmet": ["ProcessAlive"]},
        {"action": "InPlace", "unmet": ["PodAlive", "Bf16"]},
    ]


def test_a_log_rule_that_is_off_degrades_the_job_and_is_no_fault() -> None:
    off = {"LogRuleOff": "the log rule nan is off: the pattern '(nan' is no regular expression of RE2: missing )"}
    snapshot = Snapshot(JOB, JobState(phase=JobPhase.RUNNING), 1, 1_000, coordinator=CoordinatorView(problems=off))
    found = next(each for each in build_status(snapshot).conditions if each.type == "Degraded")
    assert (found.status, found.reason, found.message) == ("True", "LogRuleOff", off["LogRuleOff"])
