"""`kubectl hajob breaker`: show whether the breaker holds faults of nodes and chips back, or accept these faults."""

import argparse
from datetime import UTC, datetime
from typing import Any

from hajob.api.base import format_time
from hajob.api.conditions import ConditionType, Reason
from hajob.cli.exits import run_reported
from hajob.cli.language import say
from hajob.cli.objects import JOBS, KubernetesObjects, Objects, listed, path_of_config_maps
from hajob.cli.options import Commands, add_context_option, add_operator_namespace, add_output_option, add_verb
from hajob.cli.output import FORMATS, Answer, print_answer, resource_name_of_job
from hajob.clock import SystemClock
from hajob.faults.rules.settings import BELIEVE, LABEL, NAME
from hajob.sources.reading import items, mapping, text


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "breaker")
    add_context_option(parser)
    add_operator_namespace(parser)
    add_output_option(parser, FORMATS)
    parser.add_argument("--believe", action="store_true", help="accept the reported faults and act on them")
    parser.set_defaults(run=run_breaker)


def run_breaker(arguments: argparse.Namespace) -> int:
    """Print whether the breaker is open, or accept the reported faults; return 1 where the cluster refuses."""
    now = datetime.fromtimestamp(SystemClock().now_milliseconds() / 1000, UTC)

    def print_or_believe() -> None:
        objects = KubernetesObjects(context=arguments.context)
        if arguments.believe:
            say(believe_faults(objects, arguments.operator_namespace, now))
        else:
            print_answer(answer_of_breaker(objects), arguments.output)

    return run_reported(print_or_believe)


def answer_of_breaker(objects: Objects) -> Answer:
    """Return which jobs are held because the breaker is open, and why."""
    found: list[tuple[str, str, str]] = []
    # An operator that has seen a job says whether it is held; jobs of none say nothing of the breaker.
    told = False
    for raw in listed(objects, JOBS):
        metadata, status = mapping(raw.get("metadata")), mapping(raw.get("status"))
        for condition in map(mapping, items(status.get("conditions"))):
            told = told or condition.get("type") == ConditionType.HELD
            if condition.get("reason") == Reason.BREAKER_OPEN.word and condition.get("status") == "True":
                namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
                found.append((namespace, name, text(condition.get("message"))))
    lines = [f"{namespace}/{name}: {message}" for namespace, name, message in found]
    if not found:
        closed, unknown = (
            "closed: Hajob acts on faults of nodes and chips",
            "no job says whether it is open: kubectl hajob doctor asks the operator",
        )
        lines = [closed if told else unknown]
    keys = ("namespace", "name", "message")
    data = {"open": bool(found) if told else None, "held": [dict(zip(keys, one, strict=True)) for one in found]}
    return Answer(lines, data, [resource_name_of_job(name) for _, name, _ in found])


def believe_faults(objects: Objects, namespace: str, now: datetime) -> str:
    """Annotate the settings, or make them."""
    annotated = {"annotations": {BELIEVE: format_time(now)}}
    path = path_of_config_maps(namespace)
    if objects.find_object(f"{path}/{NAME}") is not None:
        objects.patch_object(f"{path}/{NAME}", {"metadata": annotated})
    else:
        metadata: dict[str, Any] = {"name": NAME, "labels": {LABEL: "faults"}}
        objects.create_object(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        objects.patch_object(f"{path}/{NAME}", {"metadata": annotated})
    return "the operator now acts on the faults that it held back"
