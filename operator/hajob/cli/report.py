"""`kubectl hajob report`: where a job's time went, and what the incidents of a while cost, for whoever pays for it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from hajob.api.status import MAX_INCIDENTS
from hajob.cli.exits import run_reported
from hajob.cli.goodput import goodput_of_last
from hajob.cli.job_view import JobView, age_in_words, outage_milliseconds, read_time, short_duration
from hajob.cli.objects import ReadObjects, find_job, job_asked_for
from hajob.cli.options import Commands, add_context_option, add_job, add_output_option, add_verb
from hajob.cli.output import FORMATS, UNKNOWN, Answer, Block, Table, print_answer
from hajob.cli.quarantine import parse_duration
from hajob.cli.status import goodput_since_start, seconds_wanted
from hajob.domain.goodput import ASKED_FOR, Bucket
from hajob.domain.text import counted_noun
from hajob.sources.reading import mapping, parse_whole_number, text

if TYPE_CHECKING:
    from hajob.api.base import Json

_MEANINGS: Final = {
    Bucket.TRAINING: "steps that count",
    Bucket.SCHEDULING: "pods placed and started, images, the script up to torchrun",
    Bucket.START_UP: "processes, links, first step",
    Bucket.LOST_STEPS: "steps that had to be done again",
    Bucket.DETECTION: "faults before they were noticed",
    Bucket.DECISION: "decided what to do",
    Bucket.RECOVERY: "recovered",
    Bucket.CHECKPOINTING: "saved because of a fault",
    Bucket.PAUSED: "planned pauses",
    Bucket.SHRUNK: "the part of a smaller training that is missing to the full one",
    Bucket.WAITING: "waited for nodes",
    Bucket.SUSPENDED: "suspended by request",
}


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "report")
    add_job(parser)
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="tell of this last while, such as 24h or 7d (default: since the start)",
    )
    add_context_option(parser)
    add_output_option(parser, FORMATS)
    parser.set_defaults(run=run_report)


def run_report(arguments: argparse.Namespace) -> int:
    """Print where the time went."""

    def print_report() -> None:
        since = parse_duration(arguments.since) if arguments.since else None
        print_answer(report_of_job(*job_asked_for(arguments), since), arguments.output)

    return run_reported(print_report)


def report_of_job(
    objects: ReadObjects, namespace: str, name: str, now_ms: int, since: timedelta | None = None
) -> Answer:
    """Return where a job's time went since its start, and what its incidents of a while cost.

    Raises:
        ClusterError: there is no such job, or the cluster refuses.
    """
    job = JobView(find_job(objects, namespace, name), now_ms)
    buckets = dict(sorted(job.seconds_by_bucket().items(), key=lambda one: -one[1]))
    wanted, percent = seconds_wanted(buckets), goodput_since_start(buckets)
    told: list[Block] = [_headline_of_report(job, percent, wanted)]
    if buckets:
        told.append(Table(("TIME", "SHARE", "WENT INTO", "WHICH IS"), list(_rows_of_buckets(buckets, wanted))))
    incidents, all_known = _incidents_since(job, since)
    of_while = None if since is None else goodput_of_last(job, int(since.total_seconds() * 1000))
    if since is not None:
        told.append(_line_of_while(age_in_words(int(since.total_seconds())), of_while))
    told += _lines_of_incidents(incidents, since, all_known=all_known)
    data: Json = {
        "job": name,
        "namespace": namespace,
        "goodputPercent": round(percent, 2) if percent is not None else None,
        "buckets": buckets,
        "goodputPercentSince": round(of_while, 2) if of_while is not None else None,
        "since": None if since is None else int(since.total_seconds()),
        "incidents": _totals_of_incidents(incidents),
        "incidentsAreAllKnown": all_known,
    }
    return Answer(told, data, [job.resource_name])


def _headline_of_report(job: JobView, percent: float | None, wanted: int) -> str:
    chips = parse_whole_number(mapping(job.status.get("effective")).get("worldSize"))
    size = f" on {counted_noun(chips, 'chip')}" if chips else ""
    if percent is None:
        return f"{job.namespace}/{job.name}{size}: no time is booked yet"
    lost = f", {wanted * (1 - percent / 100) * chips / 3600:,.1f} chip hours did not" if chips else ""
    return f"{job.namespace}/{job.name}{size}: {percent:.1f}% of {age_in_words(wanted)} went into training{lost}"


def _line_of_while(duration: str, percent: float | None) -> str:
    if percent is None:
        return f"how much of the last {duration} went into training is {UNKNOWN}: the figures above are since the start"
    return f"of the last {duration} {percent:.1f}% went into training"


def _rows_of_buckets(buckets: Mapping[str, int], wanted: int) -> Iterator[tuple[str, ...]]:
    for name, seconds in buckets.items():
        meaning = _MEANINGS[Bucket(name)] if name in set(Bucket) else ""
        share = f"{100 * seconds / wanted:.1f}%" if wanted and name not in ASKED_FOR else "not counted"
        yield age_in_words(seconds), share, name, meaning


def _incidents_since(job: JobView, since: timedelta | None) -> tuple[list[Mapping[str, Any]], bool]:
    """Return the incidents of a while, and whether the status still has all of them."""
    if since is None:
        return job.incidents, len(job.incidents) < MAX_INCIDENTS
    # An incident counts where it began: one that is still open has no end.
    begin_ms = job.now_ms - since.total_seconds() * 1000
    times = [(one, read_time(one.get("startTime"))) for one in job.incidents]
    found = [one for one, at in times if at is not None and at.timestamp() * 1000 >= begin_ms]
    return found, len(job.incidents) < MAX_INCIDENTS or len(found) < len(job.incidents)


def _totals_of_incidents(incidents: Sequence[Mapping[str, Any]]) -> Json:
    actions: dict[str, int] = {}
    for one in incidents:
        action = text(one.get("action")) or "none"
        actions[action] = actions.get(action, 0) + 1
    return {
        "number": len(incidents),
        "outageMilliseconds": sum(map(outage_milliseconds, incidents)),
        "lostSteps": sum(parse_whole_number(one.get("lostSteps")) or 0 for one in incidents),
        "byAction": actions,
    }


def _lines_of_incidents(
    incidents: Sequence[Mapping[str, Any]], since: timedelta | None, *, all_known: bool
) -> Iterator[str]:
    while_in_words = f" in the last {age_in_words(int(since.total_seconds()))}" if since is not None else ""
    if not incidents:
        yield f"no incident{while_in_words}"
        return
    totals = _totals_of_incidents(incidents)
    actions = ", ".join(f"{action} {number}" for action, number in sorted(totals["byAction"].items()))
    least = "" if all_known else f" at least; the status keeps the newest {MAX_INCIDENTS} only"
    yield (
        f"{counted_noun(totals['number'], 'incident')}{while_in_words} ({actions}){least}: "
        f"{short_duration(totals['outageMilliseconds'])} outage, {counted_noun(totals['lostSteps'], 'step')} done again"
    )
