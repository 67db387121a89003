"""How the steps of jobs went: what the status tells of the past, and what was seen since the page was opened. Pure.

A status holds the newest step and, of each incident, the step before it. That is enough for a curve that shows where a
training stood; what is seen while somebody looks makes it finer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hajob.api.base import Json
from hajob.cli.job_view import JobView
from hajob.sources.reading import mapping, milliseconds_of, parse_whole_number, text

MOST_POINTS: Final = 600
"""Of one job: more than a plot has pixels for. Of more, every other old one is forgotten."""

Point = tuple[int, int]
"""Milliseconds since 1970, and the newest step that all ranks had finished."""


@dataclass(slots=True)
class StepHistory:
    """What was seen of each job, by its UID."""

    seen: dict[str, list[Point]] = field(default_factory=dict)

    def note_job(self, raw: Json, now_ms: int) -> None:
        """Note the newest step of a job."""
        point = newest_point(JobView(raw, now_ms))
        if point is None:
            return
        points = self.seen.setdefault(text(mapping(raw.get("metadata")).get("uid")), [])
        # The status is written for many reasons; only a newer look at the steps is a point.
        if points and points[-1][0] >= point[0]:
            return
        points.append(point)
        if len(points) > MOST_POINTS:
            points[: MOST_POINTS // 2] = points[: MOST_POINTS // 2 : 2]

    def points_of_job(self, job: JobView) -> list[Point]:
        """Return the curve of a job, oldest first: of the past its corners, since it is watched what was seen."""
        seen = self.seen.get(text(job.metadata.get("uid")), [])
        began = seen[0][0] if seen else job.now_ms
        past = [point for point in points_of_status(job) if point[0] < began]
        return [*past, *seen]


def newest_point(job: JobView) -> Point | None:
    """Return the newest step of a job and when it was seen; None before the first."""
    at = milliseconds_of(job.progress.get("observedTime"))
    return (at, job.step) if at is not None and job.step is not None else None


def points_of_status(job: JobView) -> list[Point]:
    """Return the corners of a job's curve that its status knows, oldest first."""
    found: list[Point] = []
    begun = milliseconds_of(job.status.get("startTime"))
    if begun is not None:
        found.append((begun, 0))
    for one in reversed(job.incidents):
        found += _points_of_incident(one)
    newest = newest_point(job)
    if newest is not None:
        found.append(newest)
    return list(_points_in_order(found))


def _points_of_incident(incident: Mapping[str, object]) -> Iterable[Point]:
    began, ended = (milliseconds_of(incident.get(name)) for name in ("startTime", "endTime"))
    step, lost = parse_whole_number(incident.get("step")), parse_whole_number(incident.get("lostSteps")) or 0
    if step is None or began is None:
        return
    yield began, step
    # Between both the training stood; after it the steps since the restored state are done again.
    if ended is not None:
        yield ended, max(step - lost, 0)


def _points_in_order(points: Iterable[Point]) -> Iterable[Point]:
    before = -1
    for at, step in sorted(points):
        if at > before:
            yield at, step
            before = at
