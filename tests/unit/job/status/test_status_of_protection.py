"""How well a job is protected, as its status says it: what is missing, what is not seen, and nothing of what is met."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest

from hajob.api.enums import ConditionStatus
from hajob.api.status import ActionRecoverability, HATrainingJobStatus, UnmetPrecondition
from hajob.domain.actions import Action
from hajob.job.status.build import MESSAGE_LIMIT, CoordinatorView, Snapshot, build_status
from hajob.job.status.journal import Journal
from hajob.plan.policy import layout_from_spec, policy_from_spec
from hajob.plan.protection import REMEDIES
from hajob.plan.recoverability import recoverability
from hajob.plan.state import JobPhase, JobState
from hajob.plan.view import ClusterView
from tests.rigs.example_jobs import example_job

JOB = example_job("quickstart")
RUNNING = JobState(phase=JobPhase.RUNNING, step=5, attempt=1)


def evaluated(action: Action, status: ConditionStatus, *names: str) -> ActionRecoverability:
    unmet = tuple(UnmetPrecondition(name=one, message=f"{one} is missing") for one in names)
    return ActionRecoverability(action=action, status=status, unmet=unmet)


FINE = evaluated(Action.RETRY, ConditionStatus.TRUE)
NO_NODE = evaluated(Action.REPLACE, ConditionStatus.FALSE, "FreeNode")
MANY = evaluated(Action.SHRINK, ConditionStatus.FALSE, "FreeNode", "PodsAligned")
HIDDEN = evaluated(Action.CHECKPOINT, ConditionStatus.UNKNOWN, "NoLora", "GlooGroups")


BOTH_WORDS = (
    "Replace, Shrink would not work: FreeNode is missing (FreeNode); "
    "Shrink would not work: PodsAligned is missing (PodsAligned)"
)


def status(*found: ActionRecoverability) -> HATrainingJobStatus:
    return build_status(Snapshot(JOB, RUNNING, 1, 1_000, recoverability=found))


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ((FINE,), ("True", "PreconditionsMet", "Hajob can recover a lost process or node.")),
        (
            (FINE, HIDDEN),
            (
                "True",
                "PreconditionsUnknown",
                "2 preconditions cannot be seen from outside, taken as met (status.protection)",
            ),
        ),
        (
            (FINE, NO_NODE, HIDDEN),
            ("False", "PreconditionsUnmet", "Replace would not work: FreeNode is missing (FreeNode)"),
        ),
        (
            (NO_NODE, MANY),
            (
                "False",
                "PreconditionsUnmet",
                BOTH_WORDS,
            ),
        ),
        ((), ("Unknown", "NotTraining", "Recovery is evaluated while the job trains.")),
    ],
)
def test_one_condition_says_how_well(found: Sequence[ActionRecoverability], told: tuple[str, str, str]) -> None:
    conditions = {one.type: one for one in status(*found).conditions}
    recoverable = conditions["Recoverable"]
    assert (recoverable.status, recoverable.reason, recoverable.message) == told
    assert conditions["Degraded"].status == "False", "one thing has one condition"


def test_each_missing_thing_is_told_once_with_what_to_change() -> None:
    found = status(FINE, NO_NODE, MANY, HIDDEN)
    assert found.protection is not None
    assert [(one.name, one.actions) for one in found.protection.unmet] == [
        ("FreeNode", ("Replace", "Shrink")),
        ("PodsAligned", ("Shrink",)),
    ]
    assert found.protection.unmet[0].remedy == REMEDIES["FreeNode"]
    assert found.protection.unknown.endswith("taken as met: GlooGroups, NoLora")
    lists = {one.action: [unmet.name for unmet in one.unmet] for one in found.recoverability}
    assert lists == {"Retry": [], "Replace": ["FreeNode"], "Shrink": ["FreeNode", "PodsAligned"], "Checkpoint": []}


def test_nothing_is_told_while_the_job_does_not_train() -> None:
    assert status().protection is None


def test_a_long_list_of_what_is_missing_is_cut() -> None:
    names = [f"Precondition{number:02}" + "x" * 40 for number in range(32)]
    found = status(evaluated(Action.RESTART, ConditionStatus.FALSE, *names))
    recoverable = next(one for one in found.conditions if one.type == "Recoverable")
    assert len(recoverable.message) == MESSAGE_LIMIT
    assert found.protection is not None
    assert len(found.protection.unmet) == 16


@pytest.mark.parametrize("name", ["quickstart", "mindspeed-llm-a2", "mindformers"])
def test_a_healthy_job_is_green_and_its_status_small(name: str) -> None:
    job = example_job(name)
    view = ClusterView(layout_from_spec(job.spec), step=5, free_nodes=2, checkpoint_step=3, coordinator_apart=True)
    snapshot = Snapshot(
        job,
        RUNNING,
        1,
        1_000,
        step=5,
        step_ms=1_420,
        coordinator=CoordinatorView(connected=True, serving=True),
        recoverability=recoverability(RUNNING, view, policy_from_spec(job.spec.to_json())),
        journal=Journal(RUNNING).to_text(1_000),
    )
    told = build_status(snapshot)
    bad = {one.action: [unmet.name for unmet in one.unmet] for one in told.recoverability if one.unmet}
    assert bad.keys() <= {"Shrink"}, "MindSpore and some sizes cannot shrink"
    assert len(json.dumps(told.to_json(), separators=(",", ":"))) <= 3_700, "as the API server stores it"
    assert not re.search(r'":(""|\[\])[,}]', json.dumps(told.to_json()["recoverability"], separators=(",", ":")))
