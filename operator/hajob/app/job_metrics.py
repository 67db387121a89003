"""Metrics of each job, read from its status when Prometheus asks: they go when the job goes.

A collector in place of gauges that somebody sets: nothing is counted twice, no event costs more, and no series of a job
that was deleted is left. Counters begin at 0 with this process, as Prometheus expects of a process that starts, and
never fall while it lives: it would take the whole value for new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hajob.api.conditions import ConditionType, find_condition
from hajob.api.enums import ConditionStatus
from hajob.api.job import HATrainingJob
from hajob.api.status import GoodputBucket, HATrainingJobStatus, IncidentEntry
from hajob.clock import Clock
from hajob.domain.actions import Action
from hajob.domain.incidents import IncidentOutcome
from hajob.domain.pace import StepTimes
from hajob.domain.timeline import PHASE_ENDING_AT

MOST_JOBS: Final = 1_000
"""Each job has some sixty series; of more jobs only the first so many are told, and that others are missing."""
_WAITING_STATES: Final = frozenset({"Pending"})

Labels = tuple[str, ...]
Sample = tuple[str, Labels, float]


class JobMetric(NamedTuple):
    """A metric with a job's namespace and name, and perhaps more labels."""

    name: str
    kind: Literal["gauge", "counter"]
    told: str
    labels: Labels = ()


JOB_METRICS: Final = (
    JobMetric("hajob_job_info", "gauge", "Always 1; what the job is.", ("product", "framework")),
    JobMetric("hajob_job_state", "gauge", "1 for the state that the job is in.", ("state", "reason")),
    JobMetric("hajob_job_condition", "gauge", "1 for the status of each condition.", ("type", "status", "reason")),
    JobMetric("hajob_job_chips", "gauge", "Chips of the job at full size, spare nodes not counted."),
    JobMetric("hajob_job_step", "gauge", "Newest finished step."),
    JobMetric("hajob_job_step_seconds", "gauge", "Time that a step takes at the present size."),
    JobMetric(
        "hajob_job_step_duration_seconds",
        "gauge",
        "How long the last hundred steps took: the median, and what 95 of 100 did not exceed. Told from twenty on.",
        ("percentile",),
    ),
    JobMetric("hajob_job_goodput_seconds", "counter", "Where the job's time went, since its start.", ("bucket",)),
    JobMetric("hajob_job_protected", "gauge", "1 for each action that would work now, else 0.", ("action",)),
    JobMetric(
        "hajob_job_unmet_precondition", "gauge", "1 for each precondition that keeps an action from working.", ("name",)
    ),
    JobMetric("hajob_job_data_parallel_ranks", "gauge", "Data-parallel ranks, current and desired.", ("kind",)),
    JobMetric("hajob_job_spare_nodes", "gauge", "Spare nodes, ready and desired.", ("kind",)),
    JobMetric("hajob_job_restarts", "counter", "Restarts of the whole job, since its start.", ("cause",)),
    JobMetric("hajob_job_takeovers", "counter", "Lost MindIO controllers that were replaced, since the job's start."),
    JobMetric("hajob_job_incidents", "counter", "Incidents that closed.", ("action", "outcome", "code")),
    JobMetric("hajob_job_open_incident_seconds", "gauge", "For how long the open incident has lasted; 0 without one."),
    JobMetric("hajob_job_outage_seconds", "counter", "Outage of incidents that closed, by its parts.", ("phase",)),
    JobMetric("hajob_job_lost_steps", "counter", "Steps done again after incidents that closed."),
    JobMetric("hajob_job_checkpoints_refused", "counter", "Checkpoints not loaded, by reason.", ("reason",)),
    JobMetric("hajob_job_last_checkpoint_step", "gauge", "Step of the newest complete checkpoint."),
    JobMetric("hajob_job_last_checkpoint_timestamp_seconds", "gauge", "When that checkpoint was first seen."),
    JobMetric("hajob_job_waiting_seconds", "gauge", "How long the job has waited to be started.", ("reason",)),
    JobMetric("hajob_job_budget_left", "gauge", "How often each action may still be taken in its window.", ("action",)),
    JobMetric("hajob_job_coordinator_up", "gauge", "1 while the coordinator and its MindIO controller serve."),
)
"""What is told of each job; docs/admin/operator.md lists them."""


class JobReading(NamedTuple):
    """A job and its status as it is now."""

    job: HATrainingJob
    status: HATrainingJobStatus
    budgets_left: Mapping[Action, int] = MappingProxyType({})
    step_times: StepTimes | None = None


_COUNTS_BEFORE_INCIDENTS: Final[Mapping[tuple[str, Labels], float]] = {
    ("hajob_job_lost_steps", ()): 0.0,
    **{("hajob_job_outage_seconds", (phase,)): 0.0 for phase in PHASE_ENDING_AT.values()},
}


@dataclass(slots=True)
class _Tally:
    """What is counted of a job.

    Attributes:
        newest: number of the last incident that is counted.
        counts: of incidents; those whose labels are known before one comes begin at 0, so that its first is seen.
        goodput: most seconds that each bucket had.
    """

    newest: int
    counts: dict[tuple[str, Labels], float] = field(default_factory=lambda: dict(_COUNTS_BEFORE_INCIDENTS))
    goodput: dict[str, int] = field(default_factory=dict)

    def add_closed(self, incidents: Iterable[IncidentEntry]) -> None:
        """Count the incidents that have closed since the last look."""
        closed = [one for one in incidents if one.outcome is not IncidentOutcome.OPEN]
        for one in sorted(closed, key=lambda each: each.incarnation):
            if one.incarnation > self.newest:
                self.newest = one.incarnation
                for name, labels, amount in _samples_of_incident(one):
                    self.counts[name, labels] = self.counts.get((name, labels), 0.0) + amount

    def add_goodput(self, buckets: Iterable[GoodputBucket]) -> Iterator[Sample]:
        """Yield the seconds of each bucket; one that lost some to another stands until it has more than ever."""
        for one in buckets:
            most = self.goodput[one.name] = max(one.seconds, self.goodput.get(one.name, 0))
            yield "hajob_job_goodput_seconds", (one.name,), most


class JobSource:
    """Who knows the jobs: the operator's core. This one knows none."""

    def read_jobs(self) -> Iterable[JobReading]:
        """Return the jobs that this operator manages, with their statuses as they are now."""
        return ()


class JobMetrics(Collector):
    """Collects the metrics of all jobs.

    Args:
        source: of the jobs.
        clock: the machine's.
    """

    def __init__(self, source: JobSource, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._began_ms = clock.now_milliseconds()
        self._tallies: dict[str, _Tally] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each metric."""
        readings = list(self._source.read_jobs())
        told = list(islice(readings, MOST_JOBS))
        families = {metric.name: _family_of(metric) for metric in JOB_METRICS}
        now_ms = self._clock.now_milliseconds()
        for job, status, budgets_left, step_times in told:
            identity = job.metadata.namespace, job.metadata.name
            tally = self._tally_of(job, status)
            for action, left in budgets_left.items():
                families["hajob_job_budget_left"].add_metric([*identity, str(action)], left)
            for percentile, seconds in _percentiles_of_steps(step_times):
                families["hajob_job_step_duration_seconds"].add_metric([*identity, percentile], seconds)
            counted = ((name, labels, amount) for (name, labels), amount in tally.counts.items())
            spent = tally.add_goodput(status.goodput.buckets if status.goodput is not None else ())
            for name, labels, value in (*samples_of_job(job, status, now_ms), *spent, *counted):
                families[name].add_metric([*identity, *labels], value)
        # Whoever was deleted is counted no more: a job of the same name is another one.
        known = {one.job.metadata.uid for one in told}
        self._tallies = {uid: tally for uid, tally in self._tallies.items() if uid in known}
        yield from families.values()
        missing = GaugeMetricFamily("hajob_jobs_without_metrics", "Jobs beyond the number that metrics are told of.")
        missing.add_metric([], len(readings) - len(told))
        yield missing

    def _tally_of(self, job: HATrainingJob, status: HATrainingJobStatus) -> _Tally:
        """Return the tally of a job; what closed before this process began was counted by the one before."""
        uid = job.metadata.uid
        if uid not in self._tallies:
            created = _milliseconds_of(job.metadata.creation_timestamp)
            closed = (one.incarnation for one in status.incidents if one.outcome is not IncidentOutcome.OPEN)
            # Only a job that is younger than this process can have had none that another one has counted.
            is_older = created is None or created < self._began_ms
            self._tallies[uid] = _Tally(max(closed, default=0) if is_older else 0)
        self._tallies[uid].add_closed(status.incidents)
        return self._tallies[uid]


def _family_of(metric: JobMetric) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return kind(metric.name, metric.told, labels=["namespace", "job", *metric.labels])


def samples_of_job(job: HATrainingJob, status: HATrainingJobStatus, now_ms: int) -> Iterator[Sample]:
    """Yield what a status tells: name, further labels, value."""
    spec, summary = job.spec, status.summary
    yield "hajob_job_info", (str(spec.accelerator.product), str(spec.framework)), 1
    state, reason = (summary.state, summary.reason) if summary is not None else ("New", "")
    yield "hajob_job_state", (state, reason), 1
    for condition in status.conditions:
        yield "hajob_job_condition", (condition.type, str(condition.status), condition.reason), 1
    yield from _samples_of_progress(status)
    for one in status.recoverability:
        yield "hajob_job_protected", (str(one.action),), one.status is not ConditionStatus.FALSE
    for missing in status.protection.unmet if status.protection is not None else ():
        yield "hajob_job_unmet_precondition", (missing.name,), 1
    yield from _samples_of_sizes(status)
    yield "hajob_job_open_incident_seconds", (), _seconds_of_open_incident(status.incidents, now_ms)
    yield "hajob_job_restarts", ("infrastructure",), status.restarts.infrastructure
    yield "hajob_job_restarts", ("program",), status.restarts.program
    yield "hajob_job_takeovers", (), status.takeovers.count
    serving = find_condition(status.conditions, ConditionType.COORDINATOR_READY)
    yield "hajob_job_coordinator_up", (), serving is not None and serving.status is ConditionStatus.TRUE
    if state in _WAITING_STATES:
        yield "hajob_job_waiting_seconds", (reason,), _waiting_seconds(job, status, now_ms)


def _samples_of_progress(status: HATrainingJobStatus) -> Iterator[Sample]:
    progress = status.progress
    if progress is None:
        return
    if progress.step >= 0:
        yield "hajob_job_step", (), progress.step
    if progress.step_milliseconds is not None:
        yield "hajob_job_step_seconds", (), progress.step_milliseconds / 1000
    if progress.checkpoint_step is not None:
        yield "hajob_job_last_checkpoint_step", (), progress.checkpoint_step
    if progress.checkpoint_time is not None:
        yield "hajob_job_last_checkpoint_timestamp_seconds", (), progress.checkpoint_time.timestamp()


def _percentiles_of_steps(times: StepTimes | None) -> Iterator[tuple[str, float]]:
    """Yield how long steps took, in seconds, by percentile."""
    if times is not None:
        yield "50", times.median
        yield "95", times.slow


def _samples_of_sizes(status: HATrainingJobStatus) -> Iterator[Sample]:
    if status.effective is not None:
        yield "hajob_job_chips", (), status.effective.world_size
    if status.data_parallel is not None:
        yield "hajob_job_data_parallel_ranks", ("current",), status.data_parallel.current
        yield "hajob_job_data_parallel_ranks", ("desired",), status.data_parallel.desired
    if status.spares is not None:
        yield "hajob_job_spare_nodes", ("ready",), status.spares.ready
        yield "hajob_job_spare_nodes", ("desired",), status.spares.desired


def _samples_of_incident(one: IncidentEntry) -> Iterator[Sample]:
    """Yield what a closed incident adds to the counters."""
    yield "hajob_job_incidents", (str(one.action or "None"), str(one.outcome), one.cause.code), 1
    for phase in one.phases:
        yield "hajob_job_outage_seconds", (phase.name,), phase.milliseconds / 1000
    yield "hajob_job_lost_steps", (), one.lost_steps
    for refused in one.refused_checkpoints:
        yield "hajob_job_checkpoints_refused", (refused.reason,), 1


def _seconds_of_open_incident(incidents: Iterable[IncidentEntry], now_ms: int) -> float:
    begun = [_milliseconds_of(one.start_time) for one in incidents if one.outcome is IncidentOutcome.OPEN]
    return max((max(now_ms - ms, 0) / 1000 for ms in begun if ms is not None), default=0.0)


def _waiting_seconds(job: HATrainingJob, status: HATrainingJobStatus, now_ms: int) -> float:
    scheduled = find_condition(status.conditions, ConditionType.SCHEDULED)
    since = scheduled.last_transition_time if scheduled is not None else job.metadata.creation_timestamp
    since_ms = _milliseconds_of(since)
    return max(now_ms - since_ms, 0) / 1000 if since_ms is not None else 0.0


def _milliseconds_of(moment: datetime | None) -> int | None:
    return int(moment.timestamp() * 1000) if moment is not None else None
