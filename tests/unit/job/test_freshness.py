"""The step of a status is fresh while somebody looks, and all jobs together write rarely."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from hajob.api import constants as names
from hajob.api.status import HATrainingJobStatus, Progress
from hajob.job.status.build import Snapshot, build_status
from hajob.job.status.freshness import OFTEN_SECONDS, RARELY_SECONDS, RATE, Refreshes, longest_age_of_progress
from hajob.job.status_publisher import Draft, StatusPublisher, WritePace
from hajob.job.status_writer import StatusWriter
from hajob.plan.state import JobPhase, JobState
from hajob.sources.pod import PodView
from tests.rigs.example_jobs import example_job
from tests.rigs.fake_clock import FakeClock

START_MS = 1_000_000


def status(seconds: float, phase: JobPhase = JobPhase.RUNNING) -> HATrainingJobStatus:
    """The status of a job that was started so many seconds ago."""
    job, state = example_job("quickstart"), JobState(phase=phase, attempt=1, step=5)
    job = job.model_copy(update={"status": build_status(Snapshot(job, state, 1, START_MS, step=5))})
    return build_status(Snapshot(job, state, 1, START_MS + int(seconds * 1000), step=5))


@pytest.mark.parametrize(
    ("seconds", "phase", "age"),
    [
        (0, JobPhase.RUNNING, OFTEN_SECONDS),
        (599, JobPhase.RUNNING, OFTEN_SECONDS),
        (600, JobPhase.RUNNING, RARELY_SECONDS),
        (5_000, JobPhase.GATHERING, OFTEN_SECONDS),
        (5_000, JobPhase.SUSPENDED, RARELY_SECONDS),
        (5_000, JobPhase.PAUSED, RARELY_SECONDS),
        (5, JobPhase.FAILED, RARELY_SECONDS),
    ],
)
def test_who_is_young_or_in_trouble_is_refreshed_often(seconds: float, phase: JobPhase, age: int) -> None:
    assert longest_age_of_progress(status(seconds, phase)) == age


def test_a_hundred_jobs_at_rest_leave_little_for_others() -> None:
    pace, hour = Refreshes(), 3_600
    rare = [second for second in range(hour) if second % 6 == 0 and pace.take_refresh(float(second), always=True)]
    often = [second for second in range(hour, 2 * hour) if pace.take_refresh(float(second))]
    assert len(rare) == hour / 6, "a job at rest is refreshed whatever the others do"
    assert len(often) <= RATE * hour + 5


def test_one_young_job_is_refreshed_each_time() -> None:
    pace = Refreshes()
    assert all(pace.take_refresh(second) for second in range(0, 600, OFTEN_SECONDS))


class Written:
    """A writer that only counts."""

    def __init__(self) -> None:
        self.number = 0

    def hand_over_status(self, _: HATrainingJobStatus) -> int:
        self.number += 1
        return self.number

    async def wait_until_written(self, _: int) -> None:
        """At once."""


def publisher(clock: FakeClock, written: Written, pace: WritePace, began: HATrainingJobStatus) -> StatusPublisher:
    opened = clock.seconds

    def build(before: HATrainingJobStatus) -> Draft:
        assert began.progress is not None
        at = began.progress.observed_time + timedelta(seconds=int(clock.seconds - opened))
        return before.model_copy(update={"progress": Progress(step=7, observed_time=at)}), lambda: None

    return StatusPublisher(clock, cast("StatusWriter", written), began, build, pace)


async def test_a_young_job_is_written_by_itself_until_it_is_old() -> None:
    clock, written = FakeClock(), Written()
    one: Any = publisher(clock, written, WritePace(), status(0))
    one.publish_status(lazy=True)
    for _ in range(60):
        await clock.advance(10.0)
    assert 45 <= written.number <= 61
    before = written.number
    for _ in range(600):
        await clock.advance(10.0)
    assert written.number - before <= 3, "nothing looks at an old job that reports nothing"
    one.stop_publishing()


def waiting(told: str) -> HATrainingJobStatus:
    """The status of a job that waits for nodes."""
    pod = PodView("team", "job-0", "uid", "uid-1", names.ROLE_RANK, 0, 1, gate=0)
    state = JobState(phase=JobPhase.PENDING, attempt=1)
    return build_status(Snapshot(example_job("quickstart"), state, 1, START_MS, pods=[pod], shortfall=told))


async def test_numbers_of_nodes_cost_no_more_than_other_refreshes() -> None:
    clock, written, pace, hour = FakeClock(), Written(), WritePace(), 3_600
    told = iter(range(10_000))
    one = StatusPublisher(
        clock,
        cast("StatusWriter", written),
        waiting("at first"),
        lambda _: (waiting(f"{next(told)} are free"), lambda: None),
        pace,
    )
    for _ in range(hour):
        one.publish_status(lazy=True)
        await clock.advance(1.0)
    assert 0.5 * RATE * hour <= written.number <= RATE * hour + 6
    one.stop_publishing()
