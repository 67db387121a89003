"""No step ends: the status says so in the condition Running, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hajob.api.job import HATrainingJob
from hajob.api.status import HATrainingJobStatus
from hajob.job.status.build import CoordinatorView, Snapshot, build_status
from hajob.plan.state import JobPhase, JobState

EXAMPLE = Path(__file__).parents[4] / "examples" / "quickstart.yaml"
JOB = HATrainingJob.model_validate(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")))
UNSTARTED = {"NoRankStarted": "no rank has been started for more than 90 s since all pods are there"}
QUIET = {"NoStepEnded": "no step has ended for more than 90 s since the start; not registered with MindIO: rank 2"}


def status_with(problems: dict[str, str], phase: JobPhase) -> HATrainingJobStatus:
    """Return the status of a job in this phase, whose coordinator tells of these problems."""
    view = CoordinatorView(connected=True, serving=True, problems=problems)
    return build_status(Snapshot(JOB, JobState(phase=phase, attempt=1), 1, 1_000, coordinator=view))


def assert_said(status: HATrainingJobStatus, state: str, reason: str, message: str) -> None:
    """The condition Running says it, and the columns."""
    running = next(each for each in status.conditions if each.type == "Running")
    assert (running.status, running.reason, running.message) == ("False", reason, message)
    assert status.summary is not None
    assert (status.summary.state, status.summary.reason) == (state, reason)


@pytest.mark.parametrize(
    ("phase", "state"),
    [(JobPhase.STARTING, "Starting"), (JobPhase.WARMING, "Starting"), (JobPhase.RUNNING, "Running")],
)
def test_a_quiet_start_is_said_in_running(phase: JobPhase, state: str) -> None:
    status = status_with(QUIET, phase)
    assert_said(status, state, "NoStepEnded", QUIET["NoStepEnded"])
    failing = {each.type for each in status.conditions if each.type in {"Failed", "Degraded"} and each.status == "True"}
    assert not failing, "it may compile"


@pytest.mark.parametrize(
    ("phase", "state"),
    [(JobPhase.PENDING, "Starting"), (JobPhase.RESTARTING, "Restarting"), (JobPhase.STARTING, "Starting")],
)
def test_ranks_that_are_not_started_are_said_in_running(phase: JobPhase, state: str) -> None:
    status = status_with(UNSTARTED, phase)
    assert_said(status, state, "NoRankStarted", UNSTARTED["NoRankStarted"])


@pytest.mark.parametrize("phase", [JobPhase.PENDING, JobPhase.GATHERING, JobPhase.FAILED, JobPhase.SUSPENDED])
def test_what_is_said_of_another_phase_stays(phase: JobPhase) -> None:
    status = status_with(QUIET, phase)
    assert all(each.reason != "NoStepEnded" for each in status.conditions)
