"""status.dataParallel: sizes, throughput, what is waited for; and when it is worth a write."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hajob.api.status import DataParallel, HATrainingJobStatus
from hajob.domain.batch import Batch
from hajob.job.status.build import is_worth_a_write
from hajob.job.status.data_parallel import data_parallel
from hajob.plan.state import JobState, Shrunk, Smaller
from hajob.plan.waits import Wait, WaitReason

GONE = Shrunk(dropped=(2,), ranks=(4, 5), nodes=(2,), lost_nodes=(2,), since_ms=1_500, full_step_ms=300)


def test_at_full_size_nothing_else_is_said() -> None:
    assert data_parallel(4, JobState(), None, Batch(64, 4), 300) == DataParallel(desired=4, current=4)


def test_a_job_that_waits_for_a_node_says_so_before_it_shrinks() -> None:
    waiting = data_parallel(4, JobState(), Wait(WaitReason.REPLACEMENT, "x" * 2000), None, None)
    assert (waiting.current, waiting.wait_reason, waiting.wait_message) == (4, "Replacement", "x" * 1024)


def test_a_shrunk_job_says_since_when_and_what_it_achieves() -> None:
    less = data_parallel(4, JobState(shrunk=GONE), None, Batch(64, 4), 420)
    assert (less.current, less.dropped, less.since) == (3, (2,), datetime.fromtimestamp(1, UTC))
    assert (less.expected_throughput_percent, less.measured_throughput_percent) == (72, 71)


@pytest.mark.parametrize(("shrunk", "current", "percent"), [(None, 2, 50), (Shrunk(dropped=(1,)), 1, 25)])
def test_a_smaller_start_counts_like_a_shrink(shrunk: Shrunk | None, current: int, percent: int) -> None:
    state = JobState(smaller=Smaller(nodes=2, missing=2, since_ms=7_500), shrunk=shrunk)
    less = data_parallel(4, state, None, Batch(64, 4), 420)
    assert (less.current, less.dropped, less.since) == (
        current,
        shrunk.dropped if shrunk else (),
        datetime.fromtimestamp(7, UTC),
    )
    assert (less.expected_throughput_percent, less.measured_throughput_percent) == (percent, None)


@pytest.mark.parametrize(("full", "now"), [(0, 400), (300, None)])
def test_without_both_measures_only_what_is_expected_is_told(full: int, now: int | None) -> None:
    less = data_parallel(4, JobState(shrunk=Shrunk(dropped=(2,), full_step_ms=full)), None, None, now)
    assert (less.expected_throughput_percent, less.measured_throughput_percent) == (75, None)


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [(None, 70, True), (70, 71, False), (70, 70, False)],
)
def test_the_first_measure_is_news_and_later_ones_ride_along(before: int | None, after: int, *, news: bool) -> None:
    old, new = (
        HATrainingJobStatus(data_parallel=DataParallel(desired=4, current=3, measured_throughput_percent=percent))
        for percent in (before, after)
    )
    assert is_worth_a_write(old, new) is news


def test_another_reason_to_wait_is_news() -> None:
    old, new = (
        HATrainingJobStatus(
            data_parallel=DataParallel(desired=4, current=3, measured_throughput_percent=7, wait_reason=reason)
        )
        for reason in (WaitReason.DELAY, WaitReason.NO_FREE_NODE)
    )
    assert is_worth_a_write(old, new)
