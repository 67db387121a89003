"""The list of jobs as the page shows it. Pure: a function of the jobs' objects and the time."""

from __future__ import annotations

from typing import Final

from hajob.api.base import Json
from hajob.api.status import MAX_INCIDENTS
from hajob.cli.goodput import goodput_of_last
from hajob.cli.job_view import JobView
from hajob.cli.jobs import jobs_of_namespace, order_by_trouble
from hajob.cli.objects import ReadObjects
from hajob.cli.status import goodput_since_start
from hajob.cli.watch import is_training
from hajob.sources.reading import parse_whole_number, text

DAY_MS: Final = 24 * 3600 * 1000


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
    """Return the goodput of the last 24 h, in percent; since the start where the job is younger, or nobody knows."""
    whole = goodput_since_start(job.seconds_by_bucket())
    if whole is None:
        return None
    of_day = goodput_of_last(job, DAY_MS)
    return {"percent": round(whole if of_day is None else of_day, 1), "ofDay": of_day is not None}
