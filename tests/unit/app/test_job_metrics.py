"""Metrics of each job: what a status becomes, what is counted, and that nothing stays of a job that has gone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from hajob import metrics
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.app import job_metrics
from hajob.app.job_metrics import JOB_METRICS, JobMetrics, JobReading, JobSource
from hajob.domain.actions import Action
from hajob.domain.pace import StepTimes
from hajob.plan.state import JobPhase
from tests.rigs.fake_clock import FakeClock
from tests.rigs.told_job import NAME, NAMESPACE, NOW_MS, told_job

JOB = f'job="{NAME}",namespace="{NAMESPACE}"'


class Jobs(JobSource):
    """Jobs as an operator has them, scraped as Prometheus does."""

    def __init__(self, *jobs: Json) -> None:
        self.clock = FakeClock()
        self.clock.step_wall(NOW_MS / 1000 - self.clock.now_milliseconds() / 1000)
        self.jobs = list(jobs)
        self.step_times: StepTimes | None = None
        self.registry = CollectorRegistry()
        self.registry.register(JobMetrics(self, self.clock))

    def read_jobs(self) -> Iterable[JobReading]:
        for raw in self.jobs:
            job = HATrainingJob.from_object(raw)
            yield JobReading(job, job.status, {Action.RESTART: 9}, self.step_times)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"namespace": NAMESPACE, "job": NAME, **labels})

    def scrape(self) -> str:
        return generate_latest(self.registry).decode()


def with_incident(number: int, **changes: Any) -> Json:
    """Return the job with one incident more than it had, the newest of this number."""
    job = told_job()
    (before,) = job["status"]["incidents"]
    job["status"]["incidents"] = [{**before, "incarnation": number, **changes}, before]
    return job


def test_a_status_becomes_metrics() -> None:
    jobs = Jobs(told_job())
    assert jobs.value("hajob_job_info", product="A2", framework="PyTorch") == 1
    assert jobs.value("hajob_job_state", state="Running", reason="") == 1
    assert jobs.value("hajob_job_condition", type="Running", status="True", reason="Training") == 1
    assert (jobs.value("hajob_job_step"), jobs.value("hajob_job_step_seconds")) == (212, 1.42)
    assert jobs.value("hajob_job_goodput_seconds_total", bucket="Training") == 280
    assert jobs.value("hajob_job_protected", action="Replace") == 0
    assert jobs.value("hajob_job_protected", action="Restart") == 1
    assert jobs.value("hajob_job_chips") == 8
    assert jobs.value("hajob_job_data_parallel_ranks", kind="current") == 4
    assert jobs.value("hajob_job_restarts_total", cause="program") == 0
    assert jobs.value("hajob_job_last_checkpoint_step") == 200
    assert jobs.value("hajob_job_last_checkpoint_timestamp_seconds") == (NOW_MS - 5_000) // 1000
    assert jobs.value("hajob_job_coordinator_up") == 1
    assert jobs.value("hajob_job_budget_left", action="Restart") == 9
    assert jobs.value("hajob_job_waiting_seconds", reason="") is None, "it waits for nothing"


def test_step_times_are_two_series_of_a_job() -> None:
    jobs = Jobs(told_job())
    assert "hajob_job_step_duration_seconds{" not in jobs.scrape(), "what is not known is not told"
    jobs.step_times = StepTimes(1.42, 1.51)
    assert jobs.value("hajob_job_step_duration_seconds", percentile="50") == 1.42
    assert jobs.value("hajob_job_step_duration_seconds", percentile="95") == 1.51
    assert jobs.scrape().count("hajob_job_step_duration_seconds{") == 2


def test_a_job_that_waits_says_how_long() -> None:
    job = told_job(JobPhase.PENDING, pods=[])
    jobs = Jobs(job)
    reason = job["status"]["summary"].get("reason", "")
    assert jobs.value("hajob_job_waiting_seconds", reason=reason) == pytest.approx(5, abs=1)


def test_no_counter_falls_when_time_moves_to_another_bucket() -> None:
    """What an outage began with is moved to Detection; Prometheus would take a smaller value for a new beginning."""
    jobs, less = Jobs(told_job()), told_job()
    assert jobs.value("hajob_job_goodput_seconds_total", bucket="Training") == 280
    less["status"]["goodput"]["buckets"] = [{"name": "Training", "seconds": 277}]
    jobs.jobs = [less]
    assert jobs.value("hajob_job_goodput_seconds_total", bucket="Training") == 280


def test_what_is_counted_of_incidents_begins_at_0() -> None:
    jobs = Jobs(told_job())
    assert jobs.value("hajob_job_lost_steps_total") == 0
    assert jobs.value("hajob_job_outage_seconds_total", phase="Detection") == 0


def test_an_open_incident_says_for_how_long() -> None:
    jobs = Jobs(told_job())
    assert jobs.value("hajob_job_open_incident_seconds") == 0
    jobs.jobs = [with_incident(3, outcome="Open", startTime="2026-01-01T00:00:00Z")]
    assert (jobs.value("hajob_job_open_incident_seconds") or 0) > 0


def test_an_incident_is_counted_once_it_has_closed() -> None:
    jobs = Jobs(told_job())
    closed = {"action": "Replace", "outcome": "Recovered", "code": "AgentSilent"}
    assert jobs.value("hajob_job_incidents_total", **closed) is None, "the process before has counted it"
    jobs.jobs = [with_incident(3, outcome="Open")]
    assert jobs.value("hajob_job_incidents_total", **closed) is None
    jobs.jobs = [with_incident(3, lostSteps=7)]
    for _ in range(3):
        assert jobs.value("hajob_job_incidents_total", **closed) == 1
    assert jobs.value("hajob_job_lost_steps_total") == 7
    assert jobs.value("hajob_job_outage_seconds_total", phase="Detection") == 3.2
    refused = [{"name": "iter_5", "reason": "Torn"}]
    jobs.jobs = [with_incident(4, refusedCheckpoints=refused)]
    assert jobs.value("hajob_job_incidents_total", **closed) == 2
    assert jobs.value("hajob_job_checkpoints_refused_total", reason="Torn") == 1


def test_all_incidents_of_a_younger_job_are_counted() -> None:
    job = told_job()
    job["metadata"] = {**job["metadata"], "creationTimestamp": "2026-01-01T00:10:00Z"}
    assert Jobs(job).value("hajob_job_incidents_total", action="Replace", outcome="Recovered", code="AgentSilent") == 1


def test_nothing_is_left_of_a_job_that_has_gone() -> None:
    jobs = Jobs(with_incident(3))
    jobs.scrape()
    jobs.jobs = [with_incident(4)]
    assert "hajob_job_incidents_total" in jobs.scrape()
    jobs.jobs = []
    assert f'job="{NAME}"' not in jobs.scrape()
    other = with_incident(4)
    other["metadata"] = {**other["metadata"], "uid": "another"}
    jobs.jobs = [other]
    assert "hajob_job_incidents_total{" not in jobs.scrape(), "a job of the same name is another one"


def test_the_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_metrics, "MOST_JOBS", 2)
    made = []
    for number in range(5):
        job = told_job()
        job["metadata"] = {**job["metadata"], "name": f"job-{number}", "uid": f"u{number}"}
        made.append(job)
    jobs = Jobs(*made)
    told = jobs.scrape()
    assert len(set(re.findall(r'job="([^"]+)"', told))) == 2
    assert "hajob_jobs_without_metrics 3.0" in told
    assert max(told.count(f'job="job-{number}"') for number in range(5)) <= 70


def test_names_follow_the_rules_of_prometheus() -> None:
    """https://prometheus.io/docs/practices/naming/: a prefix, base units, `_total` of counters only."""
    # Not what the common registry collects: an operator of another test may have left its jobs' collector there.
    shared = [one for one in vars(metrics).values() if isinstance(one, MetricWrapperBase)]
    families = [*Jobs(told_job()).registry.collect(), *(family for one in shared for family in one.collect())]
    assert len(shared) > 10
    for family in families:
        assert re.fullmatch(r"hajob(_[a-z0-9]+)+", family.name), family.name
        assert not re.search(r"_(milliseconds|ms|minutes|percent|kb)(_|$)", family.name), family.name
        assert family.documentation.endswith("."), family.name
        if family.type == "counter":
            assert all(one.name.endswith(("_total", "_created")) for one in family.samples), family.name
        else:
            assert not family.name.endswith("_total"), family.name
    assert len({family.name for family in families}) == len(families)


def test_every_metric_of_the_table_can_be_told() -> None:
    told = Jobs(with_incident(3)).registry.collect()
    assert {one.name for one in JOB_METRICS} <= {family.name for family in told}
