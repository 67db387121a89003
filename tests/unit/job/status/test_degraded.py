"""Condition Degraded, and the refused actions of an incident."""

from __future__ import annotations

from pathlib import Path

import yaml

from hajob.api.job import HATrainingJob
from hajob.domain.actions import Action
from hajob.domain.facts import Origin
from hajob.domain.incidents import Cause, Incident, Purpose, RefusedAction
from hajob.job.status.build import CoordinatorView, Snapshot, build_status
from hajob.job.status.incidents import Record, build_entry
from hajob.plan.policy import layout_from_spec
from hajob.plan.state import JobPhase, JobState

EXAMPLE = Path(__file__).parents[4] / "examples" / "quickstart.yaml"
JOB = HATrainingJob.model_validate(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")))


def test_an_entry_says_which_smaller_actions_were_refused() -> None:
    refused = (RefusedAction(Action.RETRY, ("ProcessAlive",)), RefusedAction(Action.IN_PLACE, ("PodAlive", "Bf16")))
    incident = Incident(
        2, 2, 1, Purpose.FAULT, Origin.INFRASTRUCTURE, Action.REPLACE, Cause(), opened_ms=0, refused=refused
    )
    told = build_entry(Record(incident), layout_from_spec(JOB.spec)).model_dump(
        by_alias=True, exclude_unset=True, mode="json"
    )
    assert told["refused"] == [
        {"action": "Retry", "unmet": ["ProcessAlive"]},
        {"action": "InPlace", "unmet": ["PodAlive", "Bf16"]},
    ]


def test_a_log_rule_that_is_off_degrades_the_job_and_is_no_fault() -> None:
    off = {"LogRuleOff": "the log rule nan is off: the pattern '(nan' is no regular expression of RE2: missing )"}
    snapshot = Snapshot(JOB, JobState(phase=JobPhase.RUNNING), 1, 1_000, coordinator=CoordinatorView(problems=off))
    found = next(each for each in build_status(snapshot).conditions if each.type == "Degraded")
    assert (found.status, found.reason, found.message) == ("True", "LogRuleOff", off["LogRuleOff"])


FULL = {"CheckpointVolumeFull": "the volume of checkpoint.path (/ckpt) is full: 0 B of 1.0 TiB are free"}


def degraded_after(job: HATrainingJob, phase: JobPhase, problems: dict[str, str]) -> tuple[HATrainingJob, list[str]]:
    """Build a status on the one before; the job with it, and reason and message of Degraded."""
    snapshot = Snapshot(job, JobState(phase=phase), 1, 1_000, coordinator=CoordinatorView(problems=problems))
    status = build_status(snapshot)
    (found,) = [each for each in status.conditions if each.type == "Degraded"]
    return job.model_copy(update={"status": status}), [found.reason, found.message]


def test_a_failed_job_keeps_that_its_volume_was_full() -> None:
    said = [*FULL, *FULL.values()]
    job, found = degraded_after(JOB, JobPhase.RUNNING, FULL)
    assert found == said
    failed, found = degraded_after(job, JobPhase.FAILED, {})
    assert found == said, "its pods are gone, and nobody looks any more"
    assert degraded_after(failed, JobPhase.FAILED, {})[1] == said
    assert degraded_after(failed, JobPhase.STARTING, {})[1][0] == "NotDegraded"
    assert degraded_after(job, JobPhase.RUNNING, {})[1][0] == "NotDegraded"
    assert degraded_after(job, JobPhase.COMPLETE, {})[1][0] == "NotDegraded"
