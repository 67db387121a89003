"""Statuses that nobody waits for: one after the other, however many jobs there are, and none for ever."""

from __future__ import annotations

from itertools import pairwise

from hajob.job.status_publisher import GAP_SECONDS, LAZY_SECONDS, LONGEST_SECONDS, WritePace


def test_one_job_waits_for_company_only() -> None:
    pace = WritePace()
    assert [pace.next_delay(now) for now in (0.0, 10.0, 20.0)] == [LAZY_SECONDS] * 3


def test_many_jobs_are_written_one_after_the_other() -> None:
    pace = WritePace()
    times = [pace.next_delay(7.0) for _ in range(100)]
    assert all(after - before > 0.9 * GAP_SECONDS for before, after in pairwise(times))
    assert times[0] == LAZY_SECONDS


def test_no_status_waits_longer_than_the_longest() -> None:
    pace = WritePace()
    assert max(pace.next_delay(7.0) for _ in range(5000)) == LONGEST_SECONDS
    assert pace.next_delay(100.0) == LAZY_SECONDS
