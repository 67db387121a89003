"""`kubectl hajob suspend`, `resume`, `restart` and `checkpoint`: what one writes into a job's spec to steer it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

from hajob.api.base import Json, format_time
from hajob.api.enums import RestartCheckpointPolicy
from hajob.cli.cluster import ClusterError
from hajob.cli.exits import run_reported
from hajob.cli.objects import Objects, find_job, job_asked_for, path_of_job
from hajob.cli.options import Commands, add_context_option, add_job, add_output_option, add_verb
from hajob.cli.output import FORMATS, Answer, print_answer, resource_name_of_job
from hajob.sources.reading import mapping, text

_NOTHING_TO_SAVE: Final = frozenset({"New", "Pending", "Starting", "Restarting", "Refused", "Failed", "Complete"})
"""States in which no process of the job has a step."""

Steer = Callable[[Objects, str, str, int], str]


def add_parser(commands: Commands) -> None:
    """Add the commands to the command line."""
    verbs: dict[str, Steer] = {
        "suspend": suspend_job,
        "resume": resume_job,
        "restart": restart_job,
        "checkpoint": checkpoint_job,
    }
    for verb, steer in verbs.items():
        parser = add_verb(commands, verb)
        add_job(parser)
        add_context_option(parser)
        add_output_option(parser, FORMATS)
        parser.set_defaults(run=partial(run_steering, steer))


def run_steering(steer: Steer, arguments: argparse.Namespace) -> int:
    """Write it into the spec, and say what follows."""

    def print_what_follows() -> None:
        objects, namespace, name, now_ms = job_asked_for(arguments)
        told = steer(objects, namespace, name, now_ms)
        print_answer(answer_of_order(namespace, name, told), arguments.output)

    return run_reported(print_what_follows)


def answer_of_order(namespace: str, name: str, told: str) -> Answer:
    """Return what is said of a job that was told something: in a sentence, or for programs with the job's name."""
    return Answer([told], {"namespace": namespace, "name": name, "message": told}, [resource_name_of_job(name)])


def suspend_job(objects: Objects, namespace: str, name: str, _now_ms: int) -> str:
    """Suspend a job; return what follows."""
    spec = mapping(find_job(objects, namespace, name).get("spec"))
    if spec.get("suspend") is True:
        return f"nothing changes: {namespace}/{name} is suspended, or about to be"
    objects.patch_object(path_of_job(namespace, name), {"spec": {"suspend": True}})
    return f"{namespace}/{name} saves its last step and ends its pods; kubectl hajob resume {name} -n {namespace}"


def resume_job(objects: Objects, namespace: str, name: str, _now_ms: int) -> str:
    """Resume a job; return what follows."""
    spec = mapping(find_job(objects, namespace, name).get("spec"))
    if spec.get("suspend") is not True:
        return f"nothing changes: {namespace}/{name} is not suspended"
    objects.patch_object(path_of_job(namespace, name), {"spec": {"suspend": False}})
    return f"{namespace}/{name} goes on as soon as there are nodes; {_how_to_watch(namespace, name)}"


def restart_job(objects: Objects, namespace: str, name: str, now_ms: int) -> str:
    """Start a job anew; return what follows.

    Raises:
        ValueError: the job is complete or suspended.
    """
    job = find_job(objects, namespace, name)
    state = text(mapping(mapping(job.get("status")).get("summary")).get("state"))
    if state == "Complete":
        raise ValueError(f"{namespace}/{name} is complete: delete it and apply it again to train once more")
    if mapping(job.get("spec")).get("suspend") is True:
        raise ValueError(f"{namespace}/{name} is suspended: kubectl hajob resume {name} -n {namespace}")
    _request_restart(objects, namespace, name, now_ms, RestartCheckpointPolicy.IF_POSSIBLE)
    return f"{namespace}/{name} starts anew from its newest checkpoint; {_how_to_watch(namespace, name)}"


def checkpoint_job(objects: Objects, namespace: str, name: str, now_ms: int) -> str:
    """Save the step where a training stands; return what follows.

    Raises:
        ValueError: the job has no step that could be saved.
        ClusterError: the cluster's CRD is too old to keep the request from costing steps.
    """
    job = find_job(objects, namespace, name)
    summary = mapping(mapping(job.get("status")).get("summary"))
    state = text(summary.get("state")) or "New"
    if mapping(job.get("spec")).get("suspend") is True:
        raise ValueError(f"{namespace}/{name} is suspended: its last step was saved, if it could be")
    if state in _NOTHING_TO_SAVE:
        raise ValueError(f"{namespace}/{name} is {state}: no rank has a step that could be saved")
    required = RestartCheckpointPolicy.REQUIRED
    path, wanted = path_of_job(namespace, name), {"spec": {"restartCheckpointPolicy": required.value}}
    # A server whose CRD is older drops the field and would restart whatever that costs: so it is asked for first.
    if mapping(objects.patch_object(path, wanted).get("spec")).get("restartCheckpointPolicy") != required:
        raise ClusterError(
            "the CRD of the cluster does not know spec.restartCheckpointPolicy: upgrade it and the operator"
        )
    _request_restart(objects, namespace, name, now_ms, required)
    return (
        f"{namespace}/{name} saves its step and goes on from it with new processes, or says in an Event SaveRefused "
        f"why it cannot, and trains on; {_how_to_watch(namespace, name)}"
    )


def _request_restart(objects: Objects, namespace: str, name: str, now_ms: int, policy: RestartCheckpointPolicy) -> None:
    # The operator restarts for any request that is newer than the last one it has seen.
    at = format_time(datetime.fromtimestamp(now_ms // 1000, UTC))
    body: Json = {"spec": {"restartRequestTime": at, "restartCheckpointPolicy": policy.value}}
    objects.patch_object(path_of_job(namespace, name), body)


def _how_to_watch(namespace: str, name: str) -> str:
    return f"watch it with: kubectl get hajob {name} -n {namespace} -w"
