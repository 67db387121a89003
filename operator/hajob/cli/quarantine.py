"""`kubectl hajob quarantine`: list, add and release nodes on which Hajob places no pods."""

import argparse
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import ValidationError

from hajob.api import constants as names
from hajob.api.base import Json, format_time
from hajob.api.quarantine import BY_HAND, NodeQuarantine, QuarantineState
from hajob.cli.exits import run_reported
from hajob.cli.language import say
from hajob.cli.objects import QUARANTINES, KubernetesObjects, Objects, find_node
from hajob.cli.options import Commands, add_command, add_context_option, add_output_option, add_verb
from hajob.cli.output import FORMATS, Answer, Table, lines_of_answer
from hajob.clock import SystemClock
from hajob.faults.node_quarantine import node_quarantine

_COLUMNS: Final = ("NODE", "STATE", "SOURCE", "REASON", "UNTIL", "OFFENCES", "WHY")
QUARANTINES_RESOURCE: Final = names.QUARANTINE_CRD_NAME
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d{1,9})([smhd])")


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "quarantine")
    add_context_option(parser)
    add_output_option(parser, FORMATS)
    parser.set_defaults(run=run_quarantine, action="list")
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    sentence = "list the nodes in quarantine, with reason and end (default)"
    listing = add_command(actions, "list", sentence, "kubectl hajob quarantine list")
    add_output_option(listing, FORMATS, argparse.SUPPRESS)
    listing.set_defaults(action="list")
    example = "kubectl hajob quarantine add node-3 --for 2h --reason Maintenance"
    add = add_command(actions, "add", "put a node into quarantine: Hajob places no new pods there", example)
    add.set_defaults(action="add")
    add.add_argument("node", metavar="NODE", help="name of the node")
    add.add_argument("--for", dest="duration", metavar="TIME", help="such as 30m, 2h, 1d (default: until released)")
    add.add_argument("--reason", default="ByHand", metavar="WORD", help="one CamelCase word (default: %(default)s)")
    add.add_argument("--message", default="", metavar="TEXT", help="why, for others who read it")
    sentence = "allow pods on a node again; the faults that it has now are pardoned until they are over"
    release = add_command(actions, "release", sentence, "kubectl hajob quarantine release node-3")
    release.set_defaults(action="release")
    release.add_argument("node", metavar="NODE", help="name of the node")


def run_quarantine(arguments: argparse.Namespace) -> int:
    """Carry out the action; return 1 where the cluster refuses, 2 where the input makes no sense."""
    now = datetime.fromtimestamp(SystemClock().now_milliseconds() // 1000, UTC)
    return run_reported(lambda: carry_out_action(arguments, KubernetesObjects(context=arguments.context), now, print))


def carry_out_action(
    arguments: argparse.Namespace, objects: Objects, now: datetime, say: Callable[[str], object]
) -> int:
    """Carry out one action.

    Raises:
        ClusterError: the cluster refuses.
        ValueError: a duration is none.
    """
    if arguments.action == "list":
        found = _parse_quarantines((objects.find_object(QUARANTINES) or {}).get("items") or [])
        for line in lines_of_answer(answer_with_quarantines(found, now), arguments.output):
            say(line)
    elif arguments.action == "add":
        say(_add_quarantine(arguments, objects, now))
    else:
        say(_release_node(arguments.node, objects, now))
    return 0


def _add_quarantine(arguments: argparse.Namespace, objects: Objects, now: datetime) -> str:
    until = now + parse_duration(arguments.duration) if arguments.duration else None
    node = find_node(objects, arguments.node)
    spec = {"nodeName": arguments.node, "source": "Admin", "reason": arguments.reason, "message": arguments.message}
    spec |= {"startTime": format_time(now)} | ({"expireTime": format_time(until)} if until else {})
    if (
        objects.find_object(f"{QUARANTINES}/{arguments.node}") is not None
    ):  # of the operator's: the admin's word counts more
        absent = {"faults": None, "releaseTime": None, "expireTime": None}
        active = {"state": QuarantineState.ACTIVE.value}
        objects.patch_object(f"{QUARANTINES}/{arguments.node}", {"spec": absent | spec, "status": active})
    else:
        objects.create_object(QUARANTINES, node_quarantine(spec, node["metadata"]["uid"]))
    return f"node {arguments.node} is in quarantine until {format_time(until) if until else 'it is released'}"


def _release_node(node: str, objects: Objects, now: datetime) -> str:
    """Release a node; one that is not in quarantine may have faults that harm jobs, so it is pardoned as well."""
    path, released = f"{QUARANTINES}/{node}", {"releaseTime": format_time(now)}
    known = objects.find_object(path)
    if known is None:
        found = find_node(objects, node)
        spec = {"nodeName": node, "source": BY_HAND, "reason": "Released", "startTime": format_time(now)}
        objects.create_object(QUARANTINES, node_quarantine(spec | released, found["metadata"]["uid"]))
        return f"node {node} is not in quarantine; the faults that it has now are pardoned until they are over"
    objects.patch_object(path, {"spec": released, "status": {"state": QuarantineState.ACTIVE.value}})
    faults = (known.get("spec") or {}).get("faults") or []
    still = f"; pardoned until they are over: {', '.join(faults)}" if faults else ""
    return f"node {node} is released{still}"


def parse_duration(duration: str) -> timedelta:
    """Parse a duration such as "30m"; raises `ValueError`."""
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise ValueError(f"{duration!r} is not a duration: give a number and s, m, h or d, such as 2h")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def _parse_quarantines(items: Iterable[Json]) -> list[NodeQuarantine]:
    found = []
    for raw in items:
        try:
            found.append(NodeQuarantine.from_object(raw))
        except ValidationError as error:
            say(f"error: {(raw.get('metadata') or {}).get('name')}: {error}", to_errors=True)
    return sorted(found, key=lambda one: one.spec.node_name)


def answer_with_quarantines(quarantines: list[NodeQuarantine], now: datetime) -> Answer:
    """Return the nodes in quarantine, as a table and for programs."""
    rows = [_row_of_quarantine(one, now) for one in quarantines]
    told = Table(_COLUMNS, rows) if rows else "no node is in quarantine"
    keys = [name.lower() for name in _COLUMNS]
    data = [dict(zip(keys, row, strict=True)) for row in rows]
    return Answer([told], data, [f"{QUARANTINES_RESOURCE}/{one.spec.node_name}" for one in quarantines])


def _row_of_quarantine(one: NodeQuarantine, now: datetime) -> tuple[str, ...]:
    until = format_time(one.spec.expire_time) if one.spec.expire_time else "its faults are gone"
    if one.spec.source == "Admin" and one.spec.expire_time is None:
        until = "it is released"
    kept_out = one.keeps_out(now)
    released = one.spec.release_time is not None and one.status.state is not QuarantineState.OVER
    state = "Active" if kept_out else "Released" if released else "Over"
    if not kept_out:
        until = "its pardoned faults are gone" if state == "Released" else "-"
    why = one.spec.message or ", ".join(one.spec.faults)
    return one.spec.node_name, state, one.spec.source, one.spec.reason, until, str(one.status.offences), why
