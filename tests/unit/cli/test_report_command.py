"""`kubectl hajob report`: where the time of a job went, and what its incidents cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from hajob.api.status import MAX_INCIDENTS
from hajob.cli import report
from hajob.cli.cluster import ClusterError
from hajob.cli.output import UNKNOWN, plain_lines
from tests.rigs.told_job import NAME, NAMESPACE, NOW_MS, told_job
from tests.rigs.told_server import ToldServer


def lines_for(job: dict[str, Any], since: timedelta | None = None) -> list[str]:
    return list(plain_lines(report.report_of_job(ToldServer(job), NAMESPACE, NAME, NOW_MS, since).told))


def with_buckets(**seconds: int) -> dict[str, Any]:
    job = told_job()
    job["status"]["goodput"]["buckets"] = [{"name": name, "seconds": number} for name, number in seconds.items()]
    return job


def test_the_time_is_told_by_what_it_went_into() -> None:
    assert lines_for(with_buckets(Training=7_200, StartUp=300, Recovery=100, Suspended=3_600, Newer=400)) == [
        "team-a/quickstart on 8 chips: 90.0% of 133m went into training, 1.8 chip hours did not",
        "TIME   SHARE         WENT INTO   WHICH IS",
        "120m   90.0%         Training    steps that count",
        "60m    not counted   Suspended   suspended by request",
        "6m     5.0%          Newer",
        "5m     3.8%          StartUp     processes, links, first step",
        "100s   1.2%          Recovery    recovered",
        "1 incident (Replace 1): 6.2s outage, 0 steps done again",
    ]


def test_only_incidents_of_a_while_are_counted() -> None:
    assert lines_for(told_job(), timedelta(seconds=60))[-1] == "no incident in the last 60s"
    assert lines_for(told_job(), timedelta(hours=1))[-1].startswith("1 incident in the last 60m (Replace 1): 6.2s")


def test_how_much_of_a_while_went_into_training_is_told() -> None:
    job = told_job()
    assert f"how much of the last 24h00m went into training is {UNKNOWN}" in lines_for(job, timedelta(hours=24))[-2]
    job["status"]["startTime"] = "2025-01-01T00:00:00Z"
    assert lines_for(job, timedelta(hours=24))[-2] == "of the last 24h00m 100.0% went into training"
    assert lines_for(job, timedelta(minutes=62))[-2] == "of the last 62m 99.8% went into training"


def test_incidents_that_the_status_has_lost_are_not_denied() -> None:
    job = told_job()
    job["status"]["incidents"] *= MAX_INCIDENTS
    assert " at least; the status keeps the newest 16 only: " in lines_for(job)[-1]
    job["status"]["incidents"][-1] = {**job["status"]["incidents"][-1], "startTime": "2025-01-01T00:00:00Z"}
    assert "at least" not in lines_for(job, timedelta(days=1))[-1], "the oldest is from before"


def test_a_job_without_an_account_says_so() -> None:
    job = told_job()
    del job["status"]["goodput"]
    assert lines_for(job)[0] == "team-a/quickstart on 8 chips: no time is booked yet"


def test_programs_get_the_numbers() -> None:
    data = report.report_of_job(ToldServer(told_job()), NAMESPACE, NAME, NOW_MS).data
    assert (data["goodputPercent"], data["buckets"]) == (93.33, {"Training": 280, "StartUp": 20})
    assert data["incidents"] == {"number": 1, "outageMilliseconds": 6200, "lostSteps": 0, "byAction": {"Replace": 1}}


def test_there_is_no_report_of_a_job_that_is_not_there() -> None:
    with pytest.raises(ClusterError, match="there is no HATrainingJob other in namespace team-a"):
        report.report_of_job(ToldServer(), NAMESPACE, "other", NOW_MS)
