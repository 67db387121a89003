"""`kubectl hajob breaker`: whether faults of nodes and chips are held back, and how to say that they are true."""

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from hajob.api.base import format_time
from hajob.api.conditions import Reason
from hajob.cli.exits import reported
from hajob.cli.objects import JOBS, KubernetesObjects, Objects, config_maps
from hajob.cluster.settings import BELIEVE, LABEL, NAME
from hajob.runtime.clock import SystemClock


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("breaker", help="whether faults of nodes are held back; say that they are true")
    parser.add_argument("--context", help="of the kubeconfig")
    parser.add_argument(
        "--operator-namespace", default="hajob-system", metavar="NAMESPACE", help="of the operator (hajob-system)"
    )
    parser.add_argument("--believe", action="store_true", help="what is told of nodes is true: act upon it")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the state, or say the word; 1 where the cluster refuses."""
    now = datetime.fromtimestamp(SystemClock().now_milliseconds() / 1000, UTC)

    def answer() -> None:
        objects = KubernetesObjects(context=arguments.context)
        if arguments.believe:
            print(believe(objects, arguments.operator_namespace, now))
        else:
            held(objects, print)

    return reported(answer)


def held(objects: Objects, say: Callable[[str], object]) -> None:
    """Say of every job that is held why it is."""
    found = False
    for raw in (objects.find(JOBS) or {}).get("items") or []:
        metadata, status = raw["metadata"], raw.get("status") or {}
        for condition in status.get("conditions") or []:
            if condition.get("reason") == Reason.BREAKER_OPEN.word and condition.get("status") == "True":
                found = True
                say(f"{metadata['namespace']}/{metadata['name']}: {condition.get('message')}")
    if not found:
        say("closed: faults of nodes and chips are acted upon")


def believe(objects: Objects, namespace: str, now: datetime) -> str:
    """Annotate the settings, or make them."""
    annotated = {"annotations": {BELIEVE: format_time(now)}}
    path = config_maps(namespace)
    if objects.find(f"{path}/{NAME}") is not None:
        objects.patch(f"{path}/{NAME}", {"metadata": annotated})
    else:
        metadata: dict[str, Any] = {"name": NAME, "labels": {LABEL: "faults"}}
        objects.create(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        objects.patch(f"{path}/{NAME}", {"metadata": annotated})
    return "the operator acts upon what it has held back"
