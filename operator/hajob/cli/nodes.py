"""`kubectl hajob nodes`: the nodes with chips: whose they are, what is free, and what keeps them out."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.cli.cluster import ClusterError, ForbiddenError
from hajob.cli.diagnosis import Look, read_all_faults
from hajob.cli.doctor import Gatherer
from hajob.cli.exits import run_reported
from hajob.cli.job_view import one_line, time_of_day
from hajob.cli.objects import KubernetesObjects, ReadObjects, listed
from hajob.cli.options import (
    Commands,
    add_chip_resource,
    add_context_option,
    add_fault_namespaces,
    add_operator_namespace,
    add_output_option,
    add_verb,
)
from hajob.cli.output import FORMATS, UNKNOWN, Answer, Block, Table, print_answer
from hajob.clock import SystemClock
from hajob.domain.facts import FactKind
from hajob.domain.hardware import ClusterFact
from hajob.domain.text import counted_noun, first_of_list
from hajob.sources import node as node_source
from hajob.sources.pod import view_of_foreign_pod
from hajob.sources.reading import mapping, name_of_object, text

_COLUMNS: Final = ("NODE", "STATE", "CHIPS", "FREE", "JOBS", "DETAIL")
_DETAIL_WIDTH: Final = 110
_TOLD_BY_STATE: Final = frozenset({FactKind.CORDONED, FactKind.NODE_NOT_READY})
"""Faults that the word for the node's state says already."""
_ALL_PODS: Final = "/api/v1/pods"


@dataclass(slots=True)
class NodeRow:
    """One node.

    Attributes:
        chips: of the node, sick ones included.
        healthy: that the device plugin offers.
        used: chips of all pods on it; None: not known.
        owners: of these pods: jobs, and pods that are none of a job's.
    """

    view: node_source.NodeView
    chips: int
    healthy: int = 0
    used: int | None = 0
    owners: list[str] = field(default_factory=list)
    faults: list[ClusterFact] = field(default_factory=list)
    quarantine: Mapping[str, object] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """Return the one word that matters most: what keeps pods out comes before what is used."""
        if not self.view.ready:
            return "not ready"
        if self.quarantine:
            return "quarantined"
        if self.faults:
            return "sick"
        if self.view.is_to_be_emptied:
            return "cordoned"
        if self.used is None:
            return UNKNOWN
        return "used" if self.used else "free"

    @property
    def free(self) -> int | None:
        """Return the chips that a pod could have; None: not known."""
        return None if self.used is None else max(self.healthy - self.used, 0)

    def as_json(self) -> Json:
        """Return the node as JSON types."""
        spec = mapping(self.quarantine.get("spec"))
        return {
            "name": self.view.name,
            "state": self.state,
            "chips": self.chips,
            "used": self.used,
            "owners": list(dict.fromkeys(self.owners)),
            "faults": [{"code": fact.code, "level": fact.level, "message": fact.message} for fact in self.faults],
            "quarantine": {"reason": spec.get("reason"), "until": spec.get("expireTime")} if self.quarantine else None,
        }


@dataclass(frozen=True, slots=True)
class NodesRead:
    """The nodes that have chips; `unread`: the rights that are missing to know all about them."""

    rows: list[NodeRow]
    unread: list[str]


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "nodes")
    add_chip_resource(parser)
    add_fault_namespaces(parser)
    add_operator_namespace(parser)
    add_context_option(parser)
    add_output_option(parser, FORMATS)
    parser.set_defaults(run=run_nodes)


def run_nodes(arguments: argparse.Namespace) -> int:
    """Print the nodes; 1 where they may not be read."""

    def print_nodes() -> None:
        objects = KubernetesObjects(context=arguments.context)
        namespaces = (arguments.operator_namespace, *arguments.fault_namespaces.split(","))
        now_ms = SystemClock().now_milliseconds()
        print_answer(table_of_nodes(objects, arguments.resource, namespaces, now_ms), arguments.output)

    return run_reported(print_nodes)


def table_of_nodes(objects: ReadObjects, resource: str, namespaces: Sequence[str], now_ms: int) -> Answer:
    """Return the nodes that have chips.

    Args:
        objects: of the cluster.
        resource: name of the chips.
        namespaces: of the operator, then those of MindCluster's ConfigMaps.
        now_ms: milliseconds since 1970.

    Raises:
        ClusterError: the nodes may not be read.
    """
    found = read_nodes(objects, resource, namespaces, now_ms)
    if not found.rows:
        return Answer([f"no node has {resource} (--resource names other chips)"], [])
    told: list[Block] = [Table(_COLUMNS, [_as_table_row(row, now_ms) for row in found.rows])]
    told.append(_count_in_words(found.rows))
    told += [f"{UNKNOWN}: needs the right to {right}" for right in found.unread]
    return Answer(told, [row.as_json() for row in found.rows], [f"node/{row.view.name}" for row in found.rows])


def read_nodes(objects: ReadObjects, resource: str, namespaces: Sequence[str], now_ms: int) -> NodesRead:
    """Return the nodes that have chips, in order of their names.

    Args:
        objects: of the cluster.
        resource: name of the chips.
        namespaces: of the operator, then those of MindCluster's ConfigMaps.
        now_ms: milliseconds since 1970.

    Raises:
        ClusterError: the nodes may not be read.
    """
    gathered = Gatherer(objects, now_ms).gather_faults(list(namespaces[1:]), namespaces[0])
    raw_nodes = [raw for raw in gathered.objects if raw.get("kind") == "Node"]
    if not raw_nodes and Look.SOURCES in gathered.unread:
        problem = gathered.unread[Look.SOURCES][-1]
        raise ClusterError(problem.problem or f"the nodes are {UNKNOWN}: needs the right to {problem.right}")
    rows = _rows_of_nodes(raw_nodes, resource)
    unread = _add_pods_of_nodes(objects, rows, resource)
    for fact in read_all_faults(gathered).harmful_faults:
        if fact.node in rows and fact.kind not in _TOLD_BY_STATE:
            rows[fact.node].faults.append(fact)
    for one in gathered.quarantines:
        if name_of_object(one) in rows and mapping(one.get("status")).get("state") == "Active":
            rows[name_of_object(one)].quarantine = one
    rights = [one.right for found in gathered.unread.values() for one in found if one.right]
    ordered = [rows[name] for name in sorted(rows, key=_sort_key_of_name)]
    return NodesRead(ordered, list(dict.fromkeys([*filter(None, (unread,)), *rights])))


def _rows_of_nodes(raw_nodes: Iterable[Json], resource: str) -> dict[str, NodeRow]:
    found = (node_source.node_view_of(raw) for raw in raw_nodes)
    made = {view.name: NodeRow(view, (view.all_chips or {}).get(resource, 0)) for view in found}
    for row in made.values():
        row.healthy = (row.view.chips or {}).get(resource, 0)
    return {name: row for name, row in made.items() if row.chips or row.healthy}


def _add_pods_of_nodes(objects: ReadObjects, rows: dict[str, NodeRow], resource: str) -> str:
    """Add what pods use; return the right that is missing to read them, empty for none."""
    try:
        pods = listed(objects, _ALL_PODS)
    except ForbiddenError:
        for row in rows.values():
            row.used = None
        return "list pods in all namespaces"
    for raw in pods:
        pod = view_of_foreign_pod(raw)  # of any owner: chips are chips
        if pod is None or pod.node_name not in rows:
            continue
        row = rows[pod.node_name]
        chips = sum(number for name, number in pod.requests if name == resource)
        if chips and row.used is not None:
            row.used += chips
            job = text(mapping(mapping(raw.get("metadata")).get("labels")).get(names.LABEL_JOB_NAME))
            row.owners.append(f"{pod.key.partition('/')[0]}/{job}" if job else f"pod {pod.key}")
    return ""


def what_keeps_out(row: NodeRow, now_ms: int) -> str:
    """Return why no pod goes to a node, in a line; empty where nothing keeps it out."""
    told = []
    if row.quarantine:
        spec, status = mapping(row.quarantine.get("spec")), mapping(row.quarantine.get("status"))
        until = time_of_day(spec.get("expireTime"), now_ms) or "its faults are gone"
        offences = f", {counted_noun(status['offences'], 'offence')}" if status.get("offences") else ""
        told.append(f"{spec.get('reason')}, until {until}{offences}")
    told += [f"{fact.level}: {fact.message}" if fact.level else fact.message for fact in row.faults]
    if row.view.is_to_be_emptied and row.state != "cordoned":
        told.append("to be emptied")
    return one_line("; ".join(dict.fromkeys(told)), _DETAIL_WIDTH)


def _as_table_row(row: NodeRow, now_ms: int) -> tuple[str, ...]:
    free = UNKNOWN if row.free is None else str(row.free)
    owners = first_of_list(list(dict.fromkeys(row.owners)), 2)
    return row.view.name, row.state, str(row.chips), free, owners, what_keeps_out(row, now_ms)


def count_by_state(rows: Sequence[NodeRow]) -> dict[str, int]:
    """Return how many nodes are in each state, by its word."""
    return dict(sorted(Counter(row.state for row in rows).items()))


def _count_in_words(rows: Sequence[NodeRow]) -> str:
    counts = count_by_state(rows)
    return f"{counted_noun(len(rows), 'node')}: {', '.join(f'{number} {state}' for state, number in counts.items())}"


def _sort_key_of_name(name: str) -> tuple[str, int, str]:
    """Return a sort key by which node-10 comes after node-9."""
    stem = name.rstrip("0123456789")
    number = name[len(stem) :]
    return stem, int(number) if number else -1, name
