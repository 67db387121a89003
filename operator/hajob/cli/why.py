"""`kubectl hajob why`: why a job is as it is: the cause, the pods' own words, what was refused, what to change."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hajob.api.conditions import reason_of
from hajob.cli.exits import run_reported
from hajob.cli.job_view import JobView, age_since, one_line, time_of_day
from hajob.cli.objects import ReadObjects, find_job, job_asked_for
from hajob.cli.options import Commands, add_context_option, add_job, add_output_option, add_verb
from hajob.cli.output import FORMATS, UNKNOWN, Answer, print_answer
from hajob.cli.status import pods_of
from hajob.cli.timeline import events_of, what_of
from hajob.plan.protection import REMEDIES, need_of_precondition
from hajob.sources.pod import PodView
from hajob.sources.reading import items, mapping, text

_MOST_PODS: Final = 3
"""Pods whose Events are read: they mostly say the same."""


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that explains a job: what about, what is so, and what to do about it."""

    about: str
    message: str
    do: str = ""


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "why")
    add_job(parser)
    add_context_option(parser)
    add_output_option(parser, FORMATS)
    parser.set_defaults(run=run_why)


def run_why(arguments: argparse.Namespace) -> int:
    """Print the explanation."""
    return run_reported(lambda: print_answer(explanation_of_job(*job_asked_for(arguments)), arguments.output))


def explanation_of_job(objects: ReadObjects, namespace: str, name: str, now_ms: int) -> Answer:
    """Return the explanation of a job's state."""
    job = JobView(find_job(objects, namespace, name), now_ms)
    said = list(_explain_job(objects, job))
    running = age_since(job.condition("Running").get("lastTransitionTime"), now_ms)
    told = [f"{job.name}  {job.namespace}   {job.state_with_reason}" + (f" for {running}" if running else "")]
    for one in said:
        first, *more = one.message.strip().splitlines() or [""]
        told.append(f"{one.about:<11} {first}")
        told += [f"{'':<11} {line}" for line in more]
        if one.do:
            told.append(f"{'':<11} -> {one.do}")
    data = {"state": job.state, "reason": text(job.summary.get("reason")), "said": [_as_json(one) for one in said]}
    return Answer(told, data, [job.resource_name])


def _as_json(one: Said) -> dict[str, str]:
    return {"about": one.about, "message": one.message, "do": one.do}


def _explain_job(objects: ReadObjects, job: JobView) -> Iterator[Said]:
    ended = job.state in {"Complete", "Failed"}
    if not job.status:
        do = "run `kubectl hajob doctor`: it says whether an operator leads"
        yield Said("status", "no operator has seen the job yet", do)
        return
    yield from _explain_conditions(job, ended=ended)
    if not ended:
        yield from _explain_pods(objects, job)
    yield from _explain_incident(job)
    if not ended:
        yield from _explain_protection(job)
    if job.state in _STEPPING:
        yield from _explain_pace(job)


def _explain_conditions(job: JobView, *, ended: bool) -> Iterator[Said]:
    """Yield the conditions that are not as they should be; of a job that has ended how, and why else it failed."""
    found = [one for one in job.conditions() if (_tells_of_end(one, job) if ended else _is_bad_condition(one, job))]
    if len(found) > 1:  # that the job starts or recovers says nothing beside why it does not
        found = [one for one in found if not _is_bare_condition(one)]
    for one in found:
        reason = reason_of(text(one.get("type")), text(one.get("reason")))
        yield Said(text(one.get("type")), text(one.get("message")), reason.remedy if reason is not None else "")
    if not found and job.is_well:
        yield Said("state", job.why() or "nothing is wrong that the operator knows of")


def _tells_of_end(condition: Mapping[str, Any], job: JobView) -> bool:
    telling = {"Failed", "Degraded"} if job.state == "Failed" else {"Complete"}
    return condition.get("type") in telling and condition.get("status") == "True"


def _is_bare_condition(condition: Mapping[str, Any]) -> bool:
    reason = reason_of(text(condition.get("type")), text(condition.get("reason")))
    return reason is not None and not reason.remedy and condition.get("message") == reason.sentence


def _is_bad_condition(condition: Mapping[str, Any], job: JobView) -> bool:
    """Whether a condition of a job that has not ended needs a word; how well it is protected is told by itself."""
    kind = text(condition.get("type"))
    if kind == "Recoverable":
        return False
    if kind == "Running" and condition.get("status") == "False":
        return not job.is_well
    reason = reason_of(kind, text(condition.get("reason")))
    return reason is not None and bool(reason.remedy)


def _explain_pods(objects: ReadObjects, job: JobView) -> Iterator[Said]:
    """Yield what keeps pods from running, in the words of kubelet and scheduler."""
    pods, unread = pods_of(objects, job)
    if unread:
        yield Said("pods", f"{UNKNOWN}: {unread}")
    # A gated pod waits for Hajob, which has said why in the condition Scheduled.
    troubled = [pod for pod in pods if not pod.ready and not pod.deleting and not pod.has_finished and not pod.is_gated]
    for pod in troubled[:_MOST_PODS]:
        own = pod.trouble or pod.unschedulable
        events, forbidden = events_of(objects, pod.namespace, "Pod", pod.name)
        # What the scheduler says stands in the pod itself already.
        warned = [one for one in events if one.get("type") == "Warning" and one.get("reason") != "FailedScheduling"]
        told = own or (
            f"{warned[-1].get('reason')}: {one_line(text(warned[-1].get('message')), 400)}" if warned else ""
        )
        if told:
            yield Said("pod", f"{pod.name}{_node_in_words(pod)}: {told}")
        elif forbidden:
            yield Said("pod", f"{pod.name}{_node_in_words(pod)} does not run; its Events are {UNKNOWN}: {forbidden}")
    if len(troubled) > _MOST_PODS:
        yield Said("pods", f"{len(troubled)} of {len(pods)} do not run; these are the first {_MOST_PODS}")


def _node_in_words(pod: PodView) -> str:
    return f" on {pod.node_name}" if pod.node_name else ""


_STEPPING: Final = frozenset({"Running", "Shrunk", "Unprotected"})
"""States in which steps end, or should."""


def _explain_pace(job: JobView) -> Iterator[Said]:
    """Yield how long a step takes, and how to find who makes it long."""
    took = text(job.summary.get("stepTime"))
    if took and job.is_well:
        yield Said(
            "pace",
            f"{took} a step; all ranks wait for the slowest in each step, so steps do not tell which one that is",
            "if it is slow: `kubectl hajob stacks JOB --times 5` names who keeps the others waiting",
        )


def _explain_incident(job: JobView) -> Iterator[Said]:
    """Yield the newest decision: what was seen, which smaller actions were refused, and why."""
    if not job.incidents:
        return
    newest = job.incidents[0]
    yield Said("incident", f"{time_of_day(newest.get('startTime'), job.now_ms)} {what_of(newest)}")
    refused: dict[str, list[str]] = {}
    for one in map(mapping, items(newest.get("refused"))):
        for name in map(text, items(one.get("unmet"))):
            refused.setdefault(name, []).append(text(one.get("action")))
    for name, actions in refused.items():
        yield Said(
            "refused",
            f"{', '.join(actions)}: {name} was not met ({need_of_precondition(name)})",
            REMEDIES.get(name, ""),
        )
    # The same cause again and again is the program, or one bad node: no single incident shows that.
    code = text(mapping(newest.get("cause")).get("code"))
    same = sum(text(mapping(one.get("cause")).get("code")) == code for one in job.incidents)
    if same > 1:
        yield Said("repeated", f"{same} of the {len(job.incidents)} newest incidents have the cause {code}")
    if job.state == "Failed":
        command = f"kubectl hajob logs {job.name} -n {job.namespace} --failed"
        yield Said("output", f"of the rank that it began with: {command}")


def _explain_protection(job: JobView) -> Iterator[Said]:
    for told, remedy in job.unmet_preconditions():
        yield Said("protection", told, remedy)
