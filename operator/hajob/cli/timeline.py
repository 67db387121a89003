"""`kubectl hajob timeline`: what happened to a job, in order, from its status and its Events."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import yaml

from hajob.api import constants as names
from hajob.cli.cluster import ClusterError, ForbiddenError
from hajob.cli.exits import run_reported
from hajob.cli.job_view import JobView, one_line, outage_milliseconds, read_time, short_duration, time_of_day
from hajob.cli.language import in_language
from hajob.cli.objects import ReadObjects, find_job, job_asked_for, listed
from hajob.cli.options import Commands, add_context_option, add_job, add_output_option, add_verb
from hajob.cli.output import FORMATS, UNKNOWN, Answer, Block, Table, print_answer
from hajob.domain.text import counted_noun
from hajob.sources.reading import items, last_time_of_event, mapping, parse_whole_number, text

if TYPE_CHECKING:
    from hajob.api.base import Json

_IN_INCIDENTS: Final = frozenset({"Recovering", "Recovered", "NotRecovered", "PlannedWork", "PlannedWorkDone"})
"""Events that say what an incident of the status says, too."""
_COLUMNS: Final = ("TIME", "STEP", "WHAT", "ACTION", "OUTAGE", "LOST", "NODES")
_WHAT_WIDTH: Final = 100


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "timeline")
    add_job(parser)
    parser.add_argument("--incident", type=int, metavar="N", help="show everything that is known of one incident")
    add_context_option(parser)
    add_output_option(parser, FORMATS)
    parser.set_defaults(run=run_timeline)


def run_timeline(arguments: argparse.Namespace) -> int:
    """Print what happened."""
    return run_reported(
        lambda: print_answer(history_of_job(*job_asked_for(arguments), arguments.incident), arguments.output)
    )


def history_of_job(objects: ReadObjects, namespace: str, name: str, now_ms: int, incident: int | None = None) -> Answer:
    """Return what happened to a job, or all of one incident.

    Raises:
        ClusterError: there is no such job or incident.
    """
    job = JobView(find_job(objects, namespace, name), now_ms)
    if incident is not None:
        found = next((one for one in job.incidents if one.get("incarnation") == incident), None)
        if found is None:
            known = ", ".join(str(one.get("incarnation")) for one in job.incidents) or "none"
            raise ClusterError(f"{name} has no incident {incident}; its status has {known}")
        return Answer(list(_lines_of_incident(found)), dict(found), [job.resource_name])
    # Events live for an hour; the status has the newest incidents for as long as the job lives.
    events, unread = events_of(objects, job.namespace, names.KIND, job.name)
    rows = sorted([*_rows_of_job(job), *_rows_of_incidents(job), *_rows_of_events(events)], key=lambda row: row["time"])
    table = Table(_COLUMNS, [_as_table_row(row, now_ms) for row in rows])
    told: list[Block] = [table, *_total_of_incidents(job)]
    if unread:
        told.append(f"Events: {UNKNOWN}, {unread}")
    return Answer(told, rows, [job.resource_name])


def events_of(objects: ReadObjects, namespace: str, kind: str, name: str) -> tuple[list[Json], str]:
    """Return the Events about an object, oldest first, and which right is missing to read them; empty: none."""
    fields = f"involvedObject.kind={kind},involvedObject.name={name}"
    try:
        found = listed(objects, f"/api/v1/namespaces/{namespace}/events", fieldSelector=fields)
    except ForbiddenError:
        return [], f"needs the right to list events in {namespace}"
    # A server that does not know a field selector answers with more than was asked for.
    about = [one for one in found if _is_event_about(one, kind, name)]
    return sorted(about, key=event_time), ""


def _is_event_about(event: Json, kind: str, name: str) -> bool:
    told = mapping(event.get("involvedObject"))
    return (told.get("kind"), told.get("name")) == (kind, name)


def event_time(event: Json) -> str:
    """Return when an Event happened last, as text that sorts."""
    found = read_time(last_time_of_event(event))
    return found.isoformat() if found is not None else ""


def _rows_of_job(job: JobView) -> Iterator[Json]:
    made, begun, ended = (
        job.metadata.get("creationTimestamp"),
        job.status.get("startTime"),
        job.status.get("completionTime"),
    )
    if made:
        yield _row_of_moment(made, "created")
    if begun:
        yield _row_of_moment(begun, "started")
    if ended:
        yield _row_of_moment(ended, f"{job.state}: {job.why()}" if job.why() else job.state, step=job.step)


def _rows_of_incidents(job: JobView) -> Iterator[Json]:
    for one in job.incidents:
        left, taken = (", ".join(map(text, items(one.get(part)))) for part in ("fromNodes", "toNodes"))
        moved = f"{left} -> {taken or '?'}" if left else text(mapping(one.get("cause")).get("nodeName"))
        step = parse_whole_number(one.get("step"))
        yield {
            **_row_of_moment(one.get("startTime"), _what_happened(one), step=step),
            "incident": one.get("incarnation"),
            "action": text(one.get("action")),
            "outcome": text(one.get("outcome")),
            "outageMilliseconds": outage_milliseconds(one),
            "lostSteps": parse_whole_number(one.get("lostSteps")) or 0,
            "nodes": moved,
        }


def _what_happened(incident: Mapping[str, Any]) -> str:
    """Return the cause alone: what was done and what it cost has columns of its own."""
    told, follows, _ = what_of(incident).partition("; ")
    restarts = parse_whole_number(incident.get("restarts")) or 0
    # Each start anew that failed again is in this one line.
    told += f" ({restarts} restarts)" if restarts > 1 else ""
    still = {"Open": " (not done yet)", "Failed": " (did not work)"}.get(text(incident.get("outcome")), "")
    return told + still if follows else told


def what_of(incident: Mapping[str, Any]) -> str:
    """Return the sentence of an incident; of one that an older operator wrote its code and message."""
    if incident.get("message"):
        return text(incident["message"])
    cause = mapping(incident.get("cause"))
    return ": ".join(filter(None, (text(cause.get("code")), one_line(text(cause.get("message")), _WHAT_WIDTH))))


def _rows_of_events(events: list[Json]) -> Iterator[Json]:
    for one in events:
        if one.get("reason") not in _IN_INCIDENTS:
            yield _row_of_moment(
                event_time(one), f"{text(one.get('reason'))}: {text(one.get('message'))}", kind=text(one.get("type"))
            )


def _row_of_moment(time: object, what: str, *, step: int | None = None, kind: str = "") -> Json:
    at = read_time(time)
    return {"time": at.isoformat() if at is not None else "", "step": step, "what": what, "type": kind}


def _as_table_row(row: Json, now_ms: int) -> tuple[str, ...]:
    step, number = row["step"], row.get("incident")
    # A sentence that is cut short is none that the catalogue knows.
    told = in_language(row["what"])
    what = f"#{number} {told}" if number is not None else told
    acts = number is not None
    return (
        time_of_day(row["time"], now_ms),
        "" if step is None else str(step),
        one_line(what, _WHAT_WIDTH),
        row.get("action", ""),
        short_duration(row["outageMilliseconds"]) if acts and row["outageMilliseconds"] else "",
        str(row["lostSteps"]) if acts else "",
        row.get("nodes", ""),
    )


def _total_of_incidents(job: JobView) -> Iterator[str]:
    if not job.incidents:
        yield "no incident"
        return
    done = [one for one in job.incidents if one.get("outcome") == "Recovered"]
    total = sum(map(outage_milliseconds, done))
    lost = sum(parse_whole_number(one.get("lostSteps")) or 0 for one in job.incidents)
    each = f", {short_duration(total // len(done))} on average" if done else ""
    listed = counted_noun(len(job.incidents), "incident")
    told = f"total: {listed}, {len(done)} recovered, {short_duration(total)} outage{each}"
    yield f"{told}, {counted_noun(lost, 'step')} done again   (--incident N shows everything of one)"


def _lines_of_incident(incident: Mapping[str, Any]) -> Iterator[str]:
    """Everything of one incident: its sentence, its phases as parts of the outage, the rest as it stands."""
    yield f"incident {incident.get('incarnation')}: {what_of(incident)}"
    for one in map(mapping, items(incident.get("phases"))):
        took, whole_outage = parse_whole_number(one.get("milliseconds")) or 0, max(outage_milliseconds(incident), 1)
        yield f"  {text(one.get('name')):<10} {short_duration(took):>7}  {'█' * max(1, 40 * took // whole_outage)}"
    rest = {key: value for key, value in incident.items() if key not in {"incarnation", "message", "phases"}}
    yield from yaml.safe_dump(rest, sort_keys=False, allow_unicode=True).splitlines()
