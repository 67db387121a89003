"""`kubectl hajob inject`: inject a simulated fault of a node or chip, or remove it.

It writes what device plugin and NodeD would write, with the rights of the person who types. These write the truth over
it at the next change, or after five minutes; on process nodes `make inject` makes faults that stay.
"""

import argparse
from datetime import UTC, datetime
from typing import Final

from hajob.api.base import format_time
from hajob.cli.exits import run_reported
from hajob.cli.injection import (
    DEFAULTS,
    DEVICE_NAMESPACE,
    NODE_NAMESPACE,
    Injection,
    InjectionKind,
    device_config_map,
    device_map_name,
    node_config_map,
    node_map_name,
)
from hajob.cli.objects import KubernetesObjects, Objects, find_node, path_of_config_maps
from hajob.cli.options import Commands, add_context_option, add_output_option, add_verb
from hajob.cli.output import FORMATS, Answer, print_answer
from hajob.clock import SystemClock

_HELP: Final = {
    InjectionKind.CHIP: "fault of a chip, of any code and level",
    InjectionKind.SUB_HEALTH: "chip that works, but not well",
    InjectionKind.LINK_DOWN: "chip whose network port is down",
    InjectionKind.MEMORY: "uncorrectable error of on-chip memory",
    InjectionKind.SWITCH: "fault of the node's switch (A3)",
    InjectionKind.NODE: "fault of the node's own hardware, as NodeD reports it",
    InjectionKind.RECOVER: "remove all simulated faults of the node, or of one chip",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe a fault; `make inject` takes the same words."""
    kinds = "; ".join(f"{kind}: {text}" for kind, text in _HELP.items())
    parser.add_argument("kind", metavar="KIND", choices=[kind.value for kind in InjectionKind], help=kinds)
    parser.add_argument("node", metavar="NODE", help="name of the Kubernetes node")
    parser.add_argument("chip", metavar="CHIP", type=int, nargs="?", help="number of the chip on the node")
    usual = "; ".join(f"{kind}: {code} {level}" for kind, (code, level) in DEFAULTS.items() if code)
    parser.add_argument("--code", default="", metavar="CODE", help="fault code")
    parser.add_argument("--level", default="", metavar="LEVEL", help=f"fault level (default codes and levels: {usual})")


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "inject")
    add_arguments(parser)
    add_context_option(parser)
    add_output_option(parser, FORMATS)
    parser.set_defaults(run=run_inject)


def run_inject(arguments: argparse.Namespace) -> int:
    """Write the fault into the cluster; return 1 where the cluster refuses, 2 where the input makes no sense."""

    def write_and_print_injection() -> None:
        injection, now_ms = read_injection(arguments), SystemClock().now_milliseconds()
        told = write_injection(injection, KubernetesObjects(context=arguments.context), now_ms)
        print_answer(answer_of_injection(injection, told), arguments.output)

    return run_reported(write_and_print_injection)


def answer_of_injection(injection: Injection, told: str) -> Answer:
    """Return what was written: in a sentence, or for programs with the node's name."""
    data = {
        "node": injection.node,
        "chip": injection.chip,
        "kind": injection.kind.value,
        "code": injection.code or None,
        "level": injection.level or None,
        "message": told,
    }
    return Answer([told], data, [f"node/{injection.node}"])


def read_injection(arguments: argparse.Namespace) -> Injection:
    """Read the fault from the arguments; raises `ValueError`."""
    kind = InjectionKind(arguments.kind)
    return Injection.with_usual_values(kind, arguments.node, arguments.chip, arguments.code, arguments.level)


def write_injection(injection: Injection, objects: Objects, now_ms: int) -> str:
    """Write what the writers would write; return what was done, in a sentence.

    Raises:
        ClusterError: the cluster refuses, or there is no such node; of a node that is gone faults can be removed.
    """
    recovers = injection.kind is InjectionKind.RECOVER
    if not recovers:
        find_node(objects, injection.node)
    node_path = f"{path_of_config_maps(NODE_NAMESPACE)}/{node_map_name(injection.node)}"
    if injection.kind is InjectionKind.NODE:
        now = format_time(datetime.fromtimestamp(now_ms // 1000, UTC))
        objects.delete_object(node_path)
        objects.create_object(path_of_config_maps(NODE_NAMESPACE), node_config_map(injection, now))
    else:
        path, name = path_of_config_maps(DEVICE_NAMESPACE), device_map_name(injection.node)
        known = objects.find_object(f"{path}/{name}")
        body = device_config_map(known, injection, now_ms)
        if known is not None:
            objects.replace_object(f"{path}/{name}", body)
        elif not recovers:
            objects.create_object(path, body)
        if recovers and injection.chip is None:
            objects.delete_object(node_path)
    where = injection.node if injection.chip is None else f"{injection.node} chip {injection.chip}"
    what = "has no simulated fault any more" if recovers else f"has {injection.code} ({injection.level})"
    return f"{where} {what}: see `kubectl hajob quarantine` and the incidents of the job"
