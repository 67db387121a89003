"""`kubectl hajob breaker`: show whether the breaker holds faults of nodes and chips back, or accept these faults."""

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from hajob.api.base import format_time
from hajob.api.conditions import ConditionType, Reason
from hajob.cli.exits import run_reported
from hajob.cli.objects import JOBS, KubernetesObjects, Objects, path_of_config_maps
from hajob.cli.options import Commands, add_context_option, add_operator_namespace, add_verb
from hajob.clock import SystemClock
from hajob.faults.rules.settings import BELIEVE, LABEL, NAME


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "breaker")
    add_context_option(parser)
    add_operator_namespace(parser)
    parser.add_argument("--believe", action="store_true", help="accept the reported faults and act on them")
    parser.set_defaults(run=run_breaker)


def run_breaker(arguments: argparse.Namespace) -> int:
    """Print whether the breaker is open, or accept the reported faults; return 1 where the cluster refuses."""
    now = datetime.fromtimestamp(SystemClock().now_milliseconds() / 1000, UTC)

    def print_or_believe() -> None:
        objects = KubernetesObjects(context=arguments.context)
        if arguments.believe:
            print(believe_faults(objects, arguments.operator_namespace, now))
        else:
            report_held_jobs(objects, print)

    return run_reported(print_or_believe)


def report_held_jobs(objects: Objects, say: Callable[[str], object]) -> None:
    """Say of every job that is held why it is."""
    found = told = False
    for raw in (objects.find_object(JOBS) or {}).get("items") or []:
        metadata, status = raw["metadata"], raw.get("status") or {}
        for condition in status.get("conditions") or []:
            told = told or condition.get("type") == ConditionType.HELD
            if condition.get("reason") == Reason.BREAKER_OPEN.word and condition.get("status") == "True":
                found = True
                say(f"{metadata['namespace']}/{metadata['name']}: {condition.get('message')}")
    if not found and told:
        say("closed: Hajob acts on faults of nodes and chips")
    elif not found:
        say("no job says whether it is open: kubectl hajob doctor asks the operator")


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
