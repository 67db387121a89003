"""`kubectl hajob facts`: show what Hajob reads from objects, or why it does not use them. Needs no cluster.

The objects are those of a file: ConfigMaps of device plugin, NodeD, ClusterD and others, Nodes, Pods, or a List of
them. Pods of a job in the same file tell which rank sits on a chip; `--job` tells what that job would do.
"""

import argparse
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from hajob.api.constants import DEFAULT_RESOURCE_NAME
from hajob.api.derived import chips_per_node
from hajob.api.enums import CordonPolicy, SubHealthPolicy
from hajob.api.spec import HATrainingJobSpec
from hajob.cli.exits import run_reported
from hajob.cli.manifests import read_job_manifest, read_objects
from hajob.cli.options import Commands, add_output_option, add_verb
from hajob.cli.output import WITHOUT_NAMES, Answer, print_answer
from hajob.clock import SystemClock
from hajob.domain.actions import Action
from hajob.domain.facts import FIRST_ACTION, Fact, FactKind
from hajob.domain.hardware import ClusterFact
from hajob.faults.rules import settings
from hajob.faults.rules.filters import what_is_repeated
from hajob.faults.rules.store import FaultStore
from hajob.sources import pod as pod_source
from hajob.sources import registry
from hajob.sources.hardware import Seat, rank_on_chip, seat_of_pod
from hajob.sources.node import NodeView, nodes_by_serial
from hajob.sources.node import node_view_of as node_view
from hajob.sources.pod import PodView
from hajob.sources.reading import Reading, RejectionReason, Terms, name_of_object


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "facts")
    parser.add_argument(
        "-f",
        "--filename",
        required=True,
        metavar="FILE",
        help="YAML from `kubectl get -o yaml`; - reads stdin",
    )
    parser.add_argument("--job", metavar="FILE", help="manifest of a HATrainingJob: name the action it would take")
    add_output_option(parser, WITHOUT_NAMES)
    parser.set_defaults(run=run_facts)


def run_facts(arguments: argparse.Namespace) -> int:
    """Print the facts; input that cannot be read at all is exit code 2."""
    return run_reported(lambda: _print_facts(arguments))


def _print_facts(arguments: argparse.Namespace) -> None:
    objects = list(read_objects(arguments.filename))
    spec = read_job_manifest(arguments.job) if arguments.job else None
    found = facts_of_objects(objects, spec, SystemClock().now_milliseconds())
    print_answer(Answer([facts_as_text(found)], found), arguments.output)


def facts_of_objects(objects: list[Mapping[str, Any]], spec: HATrainingJobSpec | None, now_ms: int) -> dict[str, Any]:
    """Return the facts and rejections of all objects, in JSON types.

    Args:
        objects: as Kubernetes has them.
        spec: of the job whose policies and size count; None: the defaults.
        now_ms: milliseconds since 1970.
    """
    rows: list[dict[str, Any]] = []
    rejected: list[dict[str, Any]] = []
    terms = _parsing_terms(objects, now_ms, rejected)
    pods = [pod for one in objects if one.get("kind") == "Pod" and (pod := pod_source.pod_view_of(one)).node_rank >= 0]
    nodes = {node.name: node for one in objects if one.get("kind") == "Node" and (node := node_view(one)).name}
    standing = _Standing()
    for one in objects:
        title = f"{one.get('kind')}/{name_of_object(one)}"
        if one.get("kind") == "Pod":
            rows += [
                _row_of_pod_fact(fact, name_of_object(one))
                for fact in _facts_of_any_pod(pod_source.pod_view_of(one), now_ms)
            ]
        elif not _is_settings_object(one):
            reading = registry.read_object(one, terms)
            standing.add_reading(title, reading)
            rejected += _rejection_rows(reading, title)
    rows += [
        row for fact, told_by in standing.standing_facts() for row in _rows_of_fact(fact, told_by, pods, nodes, spec)
    ]
    return {"facts": rows, "rejected": rejected}


class _Standing:
    """What several objects tell together: each fault once, as the operator counts it, with everyone who tells it."""

    def __init__(self) -> None:
        self._store = FaultStore()
        self._tellers: dict[str, list[str]] = {}

    def add_reading(self, title: str, reading: Reading) -> None:
        """Add what was read of an object."""
        self._store.store_report(title, reading, keeps=True)
        for fact_id in dict.fromkeys(fact.id for fact in reading.facts):
            self._tellers.setdefault(fact_id, []).append(title)

    def standing_facts(self) -> Iterator[tuple[ClusterFact, list[str]]]:
        """Yield the facts that stand, each with the objects that tell it, in the order of the first telling."""
        standing = {
            fact.id: fact for node in self._store.nodes_with_faults() for fact in self._store.faults_on_node(node)
        }
        own = {(fact.node, *what_is_repeated(fact)): fact.id for fact in standing.values() if not fact.repeated}
        told_by: dict[str, list[str]] = {}
        for fact_id, titles in self._tellers.items():
            fact = standing[fact_id]
            counted = own.get((fact.node, *what_is_repeated(fact)), fact_id) if fact.repeated else fact_id
            told_by.setdefault(counted, []).extend(titles)
        return ((standing[fact_id], titles) for fact_id, titles in told_by.items())


def _is_settings_object(raw: Mapping[str, Any]) -> bool:
    return raw.get("kind") == "ConfigMap" and name_of_object(raw) == settings.NAME


def _parsing_terms(objects: list[Mapping[str, Any]], now_ms: int, rejected: list[dict[str, Any]]) -> Terms:
    """By the admin's settings where the file has them."""
    serials = nodes_by_serial(objects)
    terms = Terms(now_ms, serials=serials)
    for one in filter(_is_settings_object, objects):
        found, reading = settings.parse_settings(one, now_ms)
        terms = found.parsing_terms(now_ms, serials)
        rejected += _rejection_rows(reading, f"ConfigMap/{settings.NAME}")
    return terms


def _facts_of_any_pod(pod: PodView, now_ms: int) -> list[Fact]:
    """A pod that is being deleted is lost already, unless its trainer has finished."""
    found = pod_source.facts_of_pod(pod, now_ms)
    return found or (
        [pod_source.fact_of_lost_pod(pod, now_ms)] if pod.is_rank_pod and pod.deleting and not pod.has_finished else []
    )


def _rows_of_fact(
    fact: ClusterFact,
    told_by: list[str],
    pods: list[PodView],
    nodes: Mapping[str, NodeView],
    spec: HATrainingJobSpec | None,
) -> Iterator[dict[str, Any]]:
    """A fact for each pod that it hits, or may hit; one without a pod where it hits none of the file's."""
    told, hit = _row_without_pod(fact, told_by, spec), False
    resource = spec.accelerator.resource_name if spec is not None else DEFAULT_RESOURCE_NAME
    for pod in (pod for pod in pods if pod.node_name == fact.node):
        seat = seat_of_pod(pod, fact.chip_number, nodes.get(fact.node), resource)
        if seat is Seat.OFF:
            continue
        hit = True
        chips = chips_per_node(spec) if spec is not None else len(pod.chips)
        row = {**told, "pod": pod.name, "rank": rank_on_chip(fact.chip_number, pod.chips, pod.node_rank, chips)}
        if seat is Seat.UNKNOWN:
            row |= {"action": None, "message": f"{fact.message}; whether the pod has this chip is not known"}
        yield row
    if not hit:
        yield told


def _row_without_pod(fact: ClusterFact, told_by: list[str], spec: HATrainingJobSpec | None) -> dict[str, Any]:
    return {
        "source": fact.source,
        "node": fact.node,
        "device": fact.device or None,
        "pod": None,
        "rank": None,
        "code": fact.code,
        "level": fact.level,
        "kind": fact.kind,
        "since": _format_time_of(fact.since_ms),
        "action": action_on_fact(fact, spec),
        "message": fact.message,
        "toldBy": told_by,
    }


def action_on_fact(fact: ClusterFact, spec: HATrainingJobSpec | None) -> Action | None:
    """Return what a job that is hit does first; None: nothing. Policies are those of the spec, or the defaults."""
    if not fact.harms or fact.kind is FactKind.NODE_NOT_READY:
        return None  # agents tell whether a training goes on there
    if fact.kind is FactKind.SUB_HEALTH:
        policy = spec.recovery.sub_health_policy if spec is not None else SubHealthPolicy.MIGRATE
        return _SUB_HEALTH[policy]
    if fact.kind is FactKind.CORDONED:
        cordon = spec.recovery.cordon_policy if spec is not None else CordonPolicy.MIGRATE
        return Action.MIGRATE if cordon is CordonPolicy.MIGRATE else None
    return FIRST_ACTION[fact.kind]


_SUB_HEALTH: Final = {
    SubHealthPolicy.IGNORE: None,
    SubHealthPolicy.CHECKPOINT: Action.CHECKPOINT,
    SubHealthPolicy.MIGRATE: Action.MIGRATE,
    SubHealthPolicy.EVICT: Action.REPLACE,
}


def _row_of_pod_fact(fact: Fact, pod: str) -> dict[str, Any]:
    return {
        "source": fact.source,
        "node": fact.node_name or None,
        "device": None,
        "pod": pod,
        "rank": None,
        "code": fact.code,
        "level": None,
        "kind": fact.kind,
        "since": None,
        "action": fact.first_action,
        "message": fact.message,
        "toldBy": [f"Pod/{pod}"],
    }


def _rejection_rows(reading: Reading, title: str) -> Iterator[dict[str, Any]]:
    for one in reading.rejected:
        what = "" if one.reason is RejectionReason.UNKNOWN_OBJECT else one.where
        yield {"object": title, "reason": one.reason, "where": what, "message": one.rejection_message}


def _format_time_of(since_ms: int | None) -> str | None:
    if since_ms is None:
        return None
    return datetime.fromtimestamp(since_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def facts_as_text(found: Mapping[str, Any]) -> str:
    """Format the answer for people."""
    lines = [_line_of_row(row) for row in found["facts"]] or ["no facts: the objects report no fault"]
    if found["rejected"]:
        lines += ["", "rejected"]
        lines += [f"  {one['object']}: {one['message']}" for one in found["rejected"]]
    return "\n".join(lines)


def _line_of_row(row: Mapping[str, Any]) -> str:
    where = "/".join(str(row[key]) for key in ("node", "device") if row[key])
    rank = f" rank {row['rank']}" if row["rank"] is not None else ""
    pod = f" pod {row['pod']}{rank}" if row["pod"] else ""
    level = f" {row['level']}" if row["level"] else ""
    more = f" (told by {' and '.join(row['toldBy'])})" if len(row["toldBy"]) > 1 else ""
    return f"{row['source']}: {where}{pod}:{level} {row['message']} -> {row['action'] or 'nothing'}{more}"
