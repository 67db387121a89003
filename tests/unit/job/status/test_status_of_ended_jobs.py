"""What a status says about a job that has no coordinator any more, or soon will have none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hajob.api.job import HATrainingJob
from hajob.job.status.build import CoordinatorView, Snapshot, build_status
from hajob.plan.state import JobPhase, JobState
from hajob.sources.pod import PodView

EXAMPLES = Path(__file__).parents[4] / "examples"
SILENT = CoordinatorView(problem="UNAVAILABLE: Cancelling all calls")


@pytest.mark.parametrize("phase", [JobPhase.COMPLETE, JobPhase.FAILED, JobPhase.SUSPENDED])
def test_a_coordinator_that_was_ended_with_its_job_is_no_problem(phase: JobPhase) -> None:
    content = yaml.safe_load((EXAMPLES / "quickstart.yaml").read_text(encoding="utf-8"))
    job = HATrainingJob.model_validate(content)
    status = build_status(Snapshot(job, JobState(phase=phase), 1, 1_000, coordinator=SILENT))
    ready = next(each for each in status.conditions if each.type == "CoordinatorReady")
    assert (ready.status, ready.reason) == ("False", "NotNeeded")
    assert "UNAVAILABLE" not in ready.message


def test_a_coordinator_that_is_being_deleted_is_not_unreachable() -> None:
    job = HATrainingJob.model_validate(yaml.safe_load((EXAMPLES / "quickstart.yaml").read_text(encoding="utf-8")))
    pod = PodView("default", "c-1", "uid-1", "uid", "coordinator", -1, 1, phase="Running", node_name="node-1")
    for deleting, reason in ((False, "Unreachable"), (True, "NoPod")):
        pods = [replace(pod, deleting=deleting)]
        snapshot = Snapshot(job, JobState(phase=JobPhase.RESTARTING), 1, 1_000, pods=pods, coordinator=SILENT)
        ready = next(each for each in build_status(snapshot).conditions if each.type == "CoordinatorReady")
        assert ready.reason == reason


def test_a_doubting_coordinator_says_so_while_it_serves() -> None:
    job = HATrainingJob.model_validate(yaml.safe_load((EXAMPLES / "quickstart.yaml").read_text(encoding="utf-8")))
    problems = {"AgentsUnreachable": "3 of 4 agents fell silent", "StrangersHeld": "connections are held"}
    view = CoordinatorView(connected=True, serving=True, problems=problems)
    status = build_status(Snapshot(job, JobState(phase=JobPhase.RUNNING), 1, 1_000, coordinator=view))
    ready = next(each for each in status.conditions if each.type == "CoordinatorReady")
    assert (ready.status, ready.reason) == ("True", "Serving")
    assert ready.message.endswith("3 of 4 agents fell silent; connections are held")


def suspended(phase: JobPhase, problem: str = "") -> tuple[str, str, str]:
    """The condition of a job that is to be suspended."""
    content = yaml.safe_load((EXAMPLES / "quickstart.yaml").read_text(encoding="utf-8"))
    content["spec"]["suspend"] = True
    job = HATrainingJob.model_validate(content)
    status = build_status(Snapshot(job, JobState(phase=phase, problem=problem), 1, 1_000))
    found = next(each for each in status.conditions if each.type == "Suspended")
    return found.status, found.reason, found.message


def test_a_suspended_job_says_how_far_it_was_saved() -> None:
    assert suspended(JobPhase.SAVING) == ("False", "Suspending", "Hajob saves the training first.")
    status, reason, message = suspended(JobPhase.SUSPENDED, "the current step is saved")
    assert (status, reason) == ("True", "Suspended")
    assert message.endswith("the current step is saved")
    assert suspended(JobPhase.COMPLETE)[:2] == ("False", "NotSuspended")


def test_a_failures_reason_outlives_the_pods_that_showed_it() -> None:
    content = yaml.safe_load((EXAMPLES / "quickstart.yaml").read_text(encoding="utf-8"))
    job = HATrainingJob.model_validate(content)
    pod = PodView("default", "one", "uid", "job", "rank", 0, 1, trouble_code="ImagePullBackOff")
    snapshot = Snapshot(
        job,
        JobState(phase=JobPhase.FAILED),
        1,
        1_000,
        failed_reason="StartupDeadlineExceeded",
        failed_message="ImagePullBackOff: no such image",
        pods=[pod],
    )
    first = build_status(snapshot)
    later = build_status(replace(snapshot, job=job.model_copy(update={"status": first}), pods=[], now_ms=2_000))
    for status in (first, later):
        failed = next(each for each in status.conditions if each.type == "Failed")
        assert (failed.reason, failed.message) == ("ImageUnavailable", "ImagePullBackOff: no such image")
