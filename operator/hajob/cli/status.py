"""`kubectl hajob status`: one job on one screen: step, goodput, protection, its nodes and its newest incident."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hajob.api import constants as names
from hajob.cli.cluster import ForbiddenError
from hajob.cli.exits import run_reported
from hajob.cli.job_view import JobView, age_in_words, age_since, one_line, time_of_day
from hajob.cli.objects import ReadObjects, find_job, job_asked_for, listed
from hajob.cli.options import Commands, add_context_option, add_job, add_output_option, add_verb
from hajob.cli.output import FORMATS, UNKNOWN, Answer, Block, Table, print_answer
from hajob.domain.goodput import ASKED_FOR, Bucket
from hajob.domain.text import counted_noun
from hajob.sources import pod as pod_source
from hajob.sources.reading import items, mapping, parse_whole_number, text

if TYPE_CHECKING:
    from hajob.api.base import Json

_LINES: Final = 4
"""Lines of a message that are shown here; `why` shows all."""


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "status")
    add_job(parser)
    add_context_option(parser)
    add_output_option(parser, FORMATS)
    parser.set_defaults(run=run_status)


def run_status(arguments: argparse.Namespace) -> int:
    """Print the job."""
    return run_reported(lambda: print_answer(screen_of_job(*job_asked_for(arguments)), arguments.output))


def screen_of_job(objects: ReadObjects, namespace: str, name: str, now_ms: int) -> Answer:
    """Return what is to be said of a job."""
    job = JobView(find_job(objects, namespace, name), now_ms)
    pods, unread = pods_of(objects, job)
    told: list[Block] = [
        _headline_of_job(job),
        *_lines_of_trouble(job),
        *_line_of_progress(job),
        *_line_of_goodput(job),
        *_lines_of_protection(job),
    ]
    told += [f"nodes     {UNKNOWN}: {unread}"] if unread else _table_of_pods(job, pods)
    told += _lines_of_incidents(job)
    data = {**job.data(), "pods": [_pod_as_json(pod) for pod in pods], "unknown": [unread] if unread else []}
    data |= {"protection": job.status.get("protection"), "goodputBuckets": mapping(job.status.get("goodput"))}
    return Answer(told, data, [job.resource_name])


def pods_of(objects: ReadObjects, job: JobView) -> tuple[list[pod_source.PodView], str]:
    """Return the job's pods, and which right is missing to read them; empty: none."""
    path = f"/api/v1/namespaces/{job.namespace}/pods"
    try:
        raw = listed(objects, path, labelSelector=f"{names.LABEL_JOB_NAME}={job.name}")
    except ForbiddenError:
        return [], f"needs the right to list pods in {job.namespace}"
    # A job that was deleted and applied again has the name of the pods before it.
    uid = text(job.metadata.get("uid"))
    pods = [one for one in map(pod_source.pod_view_of, raw) if one.job_uid == uid]
    return sorted(pods, key=lambda one: (one.node_rank < 0, one.node_rank, one.incarnation)), ""


def _headline_of_job(job: JobView) -> str:
    spec, effective = job.spec, mapping(job.status.get("effective"))
    product = text(mapping(spec.get("accelerator")).get("product"))
    chips = parse_whole_number(effective.get("chipsPerNode"))
    nodes = parse_whole_number(spec.get("numNodes")) or 0
    shape = f"{product}, {counted_noun(nodes, 'node')}"
    if chips:
        shape += f" x {chips} chip" if chips == 1 else f" x {chips} chips"
    shape += "".join(f", {word} {size}" for word, size in job.parallel_sizes().items())
    data = text(job.summary.get("size"))
    return f"{job.name}  {job.namespace}   {job.state_with_reason}   {job.age()}   {shape}, data {data or '?'}"


def _lines_of_trouble(job: JobView) -> Iterator[str]:
    why = job.why()
    if why and not job.is_well:
        first, *more = why.strip().splitlines()
        yield f"why       {first}"
        yield from (f"          {line}" for line in more[:_LINES])
        if len(more) > _LINES:
            yield f"          … kubectl hajob why {job.name} -n {job.namespace} shows all"
    if degradation := job.degradation.partition("\n")[0]:
        yield f"degraded  {degradation}"


def _line_of_progress(job: JobView) -> Iterator[str]:
    if job.step is None:
        yield "step      none yet"
        return
    told = [f"step      {job.step}"]
    if job.summary.get("stepTime"):
        told.append(f"{job.summary['stepTime']} a step")
    told.append(f"seen {age_since(job.progress.get('observedTime'), job.now_ms)} ago")
    saved = parse_whole_number(job.progress.get("checkpointStep"))
    if saved is not None:
        told.append(f"checkpoint {saved}, {age_since(job.progress.get('checkpointTime'), job.now_ms)} ago")
    yield "   ".join(told)


def _line_of_goodput(job: JobView) -> Iterator[str]:
    buckets = job.seconds_by_bucket()
    if not buckets:
        return
    told = [f"goodput   {int(goodput_since_start(buckets) or 0)}%"]
    lost = sorted(buckets.items(), key=lambda one: -one[1])
    rest = [f"{name} {age_in_words(seconds)}" for name, seconds in lost if name != "Training" and name not in ASKED_FOR]
    if rest:
        told.append(f"not training: {', '.join(rest)}")
    told += [
        f"{name} {age_in_words(buckets[name])} (asked for, not counted)" for name in sorted(ASKED_FOR & buckets.keys())
    ]
    yield "   ".join(told)


def seconds_wanted(buckets: Mapping[str, int]) -> int:
    """Return how long somebody wanted a job to train: a suspension must not look like a bad cluster."""
    return sum(seconds for name, seconds in buckets.items() if name not in ASKED_FOR)


def goodput_since_start(buckets: Mapping[str, int]) -> float | None:
    """Return which share of the time that was asked for went into training, in percent; None: nothing is booked."""
    wanted = seconds_wanted(buckets)
    return 100 * buckets.get(Bucket.TRAINING, 0) / wanted if wanted else None


def _lines_of_protection(job: JobView) -> Iterator[str]:
    if not items(job.status.get("recoverability")):
        return
    works = job.working_actions()
    yield f"protected {job.summary.get('protected') or UNKNOWN}   works: {', '.join(works) or 'nothing'}"
    for told, remedy in job.unmet_preconditions():
        yield f"          {told}"
        yield f"          -> {remedy}"
    if unknown := text(mapping(job.status.get("protection")).get("unknown")):
        yield f"          {unknown}"


def _table_of_pods(job: JobView, pods: Sequence[pod_source.PodView]) -> Iterator[Block]:
    if not pods:
        yield "nodes     no pod is there"
        return
    yield Table(("RANKS", "NODE", "POD", "STATE"), [_row_of_pod(job, pod) for pod in pods])


def _row_of_pod(job: JobView, pod: pod_source.PodView) -> tuple[str, ...]:
    ranks = job.ranks_in_words(pod.node_rank) if pod.is_rank_pod else pod.role
    return ranks, pod.node_name or "-", pod.name, pod_state(pod)


def pod_state(pod: pod_source.PodView) -> str:
    """Return what a pod does, or why it does not."""
    if pod.deleting:
        return "ends"
    # A container beside the trainer may fail after the training has ended well.
    if pod.trouble and not pod.has_finished:
        return f"error: {one_line(pod.trouble, 80)}"
    if pod.has_finished:
        return "ended with 0"
    if not pod.node_name:
        return "waits for a node" + (f": {one_line(pod.unschedulable, 80)}" if pod.unschedulable else "")
    return "ready" if pod.ready else "starts" if pod.phase == "Pending" else pod.phase.lower()


def _pod_as_json(pod: pod_source.PodView) -> Json:
    rank = pod.node_rank if pod.node_rank >= 0 else None
    return {
        "name": pod.name,
        "role": pod.role,
        "nodeRank": rank,
        "node": pod.node_name or None,
        "state": pod_state(pod),
    }


def _lines_of_incidents(job: JobView) -> Iterator[str]:
    if not job.incidents:
        yield "incidents none"
        return
    newest: Mapping[str, Any] = job.incidents[0]
    number = len(job.incidents)
    lost = sum(parse_whole_number(one.get("lostSteps")) or 0 for one in job.incidents)
    opened = sum(one.get("outcome") == "Open" for one in job.incidents)
    told = f"incidents {number}{'+' if number >= 16 else ''}, {opened} open, {counted_noun(lost, 'step')} done again"
    yield f"{told}   newest: {time_of_day(newest.get('startTime'), job.now_ms)} {text(newest.get('message'))}".rstrip()
    yield f"          kubectl hajob timeline {job.name} -n {job.namespace}"
