"""The list of jobs as the page shows it. Pure: a function of the jobs' objects and the time."""

from __future__ import annotations

from typing import Final

from hajob.api.base import Json
from hajob.api.status import MAX_INCIDENTS
from hajob.cli.job_view import JobView, outage_milliseconds
from hajob.cli.jobs import jobs_of_namespace, order_by_trouble
from hajob.cli.objects import ReadObjects
from hajob.cli.status import goodput_since_start
from hajob.cli.watch import is_training
from hajob.domain.actions import Action
from hajob.sources.reading import mapping, milliseconds_of, parse_whole_number, text

DAY_MS: Final = 24 * 3600 * 1000
_RESIZES: Final = frozenset({Action.SHRINK, Action.EXPAND})


def list_of_jobs(objects: ReadObjects, namespace: str, now_ms: int) -> Json:
    """Return the jobs of a namespace (empty: of all), those in trouble first.

    Raises:
        ClusterError: they may not be read.
    """
    return {"jobs": [row_of_job(job) for job in order_by_trouble(jobs_of_namespace(objects, namespace, now_ms))]}


def row_of_job(job: JobView) -> Json:
    """Return what the list shows of a job; times are RFC 3339, so that the page counts ages by itself."""
    incidents = job.incidents
    return {
        "namespace": job.namespace,
        "name": job.name,
        "state": job.state,
        "reason": text(job.summary.get("reason")),
        "trains": is_training(job),
        "size": text(job.summary.get("size")),
        "nodes": text(job.summary.get("nodes")),
        "step": job.step,
        "stepMilliseconds": parse_whole_number(job.progress.get("stepMilliseconds")),
        "observed": text(job.progress.get("observedTime")),
        "created": text(job.metadata.get("creationTimestamp")),
        "goodput": goodput_of_day(job),
        "protected": text(job.summary.get("protected")),
        "spares": text(job.summary.get("spares")),
        "restarts": text(job.summary.get("restarts")),
        "incidents": {
            "number": len(incidents),
            "more": len(incidents) >= MAX_INCIDENTS,
            "open": sum(one.get("outcome") == "Open" for one in incidents),
            "lostSteps": sum(parse_whole_number(one.get("lostSteps")) or 0 for one in incidents),
        },
        "message": job.why(),
        "healthy": job.is_well,
    }


def goodput_of_day(job: JobView) -> Json | None:
    """Return the goodput of the last 24 h, in percent; since the start where the job is younger, or nobody knows.

    The account of the status counts from the start of the job. What a day lost is known from its incidents, as long as
    the status still has all of them and the job has kept its size.
    """
    whole = goodput_since_start(job.seconds_by_bucket())
    if whole is None:
        return None
    since_start: Json = {"percent": round(whole, 1), "ofDay": False}
    begun = milliseconds_of(job.status.get("startTime"))
    day = job.now_ms - DAY_MS
    if begun is None or begun >= day or job.status.get("completionTime"):
        return since_start
    within = [one for one in job.incidents if (milliseconds_of(one.get("endTime")) or job.now_ms) > day]
    all_are_known = len(job.incidents) < MAX_INCIDENTS or len(within) < len(job.incidents)
    data = mapping(job.status.get("dataParallel"))
    resized = data.get("current") != data.get("desired") or any(one.get("action") in _RESIZES for one in within)
    # A figure that might be wrong is not shown: what is certain takes its place.
    if not all_are_known or resized or not is_training(job):
        return since_start
    step_ms = parse_whole_number(job.progress.get("stepMilliseconds")) or 0
    lost = 0
    # An outage that began before the day counts with the part that lies in it.
    for one in within:
        at = milliseconds_of(one.get("startTime")) or day
        lost += min(outage_milliseconds(one), max(at + outage_milliseconds(one) - day, 0))
        lost += (parse_whole_number(one.get("lostSteps")) or 0) * step_ms
    return {"percent": round(100 * max(DAY_MS - lost, 0) / DAY_MS, 1), "ofDay": True}
