"""How far a training is, while nobody can say it."""

from __future__ import annotations

from hajob.api.status import HATrainingJobStatus, Progress
from hajob.job.status.build import CoordinatorView, Snapshot, build_status, to_status_time
from hajob.plan.state import JobPhase, JobState
from tests.rigs.example_jobs import example_job

SEEN_MS, NOW_MS = 1_767_225_900_000, 1_767_225_960_000


def progress_told(step: int, of_state: int) -> Progress | None:
    """The progress of a job whose status has step 178, of a coordinator that knows this step."""
    known = Progress(step=178, observed_time=to_status_time(SEEN_MS))
    job = example_job("quickstart").model_copy(update={"status": HATrainingJobStatus(progress=known)})
    state = JobState(phase=JobPhase.UNPROTECTED, attempt=1, step=of_state)
    return build_status(Snapshot(job, state, 1, NOW_MS, step=step, coordinator=CoordinatorView())).progress


def test_a_coordinator_that_knows_no_step_takes_none_back() -> None:
    """The step that the state has is that of its newest incident, which may be hours old."""
    told = progress_told(-1, 84)
    assert told is not None
    assert (told.step, told.observed_time) == (178, to_status_time(SEEN_MS))


def test_a_step_that_is_told_counts_even_if_it_is_older() -> None:
    told = progress_told(100, 84)
    assert told is not None
    assert (told.step, told.observed_time) == (100, to_status_time(NOW_MS))
