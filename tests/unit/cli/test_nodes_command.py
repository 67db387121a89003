"""`kubectl hajob nodes`: whose the nodes are, what is free, what keeps them out, and what cannot be known."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.cli.cluster import ClusterError, ForbiddenError
from hajob.cli.nodes import table_of_nodes
from hajob.cli.output import Answer, plain_lines
from tests.rigs import hardware_objects

CHIP = names.DEFAULT_RESOURCE_NAME
NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
QUARANTINES = f"/apis/{names.API_VERSION}/{names.QUARANTINES}"


class Server:
    """Lists by path without a query, and paths that may not be read."""

    def __init__(self, *forbidden: str, **lists: list[Json]) -> None:
        self.lists, self.forbidden = lists, forbidden

    def find_object(self, path: str) -> Json | None:
        path = path.partition("?")[0]
        if path in self.forbidden:
            raise ForbiddenError(f"GET {path}: forbidden")
        return {"items": self.lists[path]} if path in self.lists else None

    create = replace = patch = delete = None


def node(name: str, chips: int = 8, healthy: int = 8, **spec: Any) -> Json:
    status = {
        "capacity": {CHIP: str(chips)},
        "allocatable": {CHIP: str(healthy)},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return {"kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}


def pod(name: str, where: str, chips: int, job: str = "", phase: str = "Running") -> Json:
    labels = {names.LABEL_JOB_NAME: job} if job else {}
    container = {"name": "trainer", "resources": {"requests": {CHIP: str(chips)}}}
    spec = {"nodeName": where, "containers": [container]}
    return {"metadata": {"name": name, "namespace": "team", "labels": labels}, "spec": spec, "status": {"phase": phase}}


def quarantine(name: str) -> Json:
    spec = {"nodeName": name, "source": "Device", "reason": "ChipFault", "expireTime": "2026-01-01T02:00:00Z"}
    return {"metadata": {"name": name}, "spec": spec, "status": {"state": "Active", "offences": 3}}


def ask(server: Server, resource: str = CHIP) -> Answer:
    place = ("hajob-system", "kube-system")
    return table_of_nodes(server, resource, place, hardware_objects.NOW_MS)


def told(server: Server, resource: str = CHIP) -> list[str]:
    return list(plain_lines(ask(server, resource).told))


def cluster(*forbidden: str) -> Server:
    lists = {
        NODES: [
            node("node-10"),
            node("node-9"),
            node("node-2", unschedulable=True),
            node("node-3", healthy=7),
            node("cpu", 0, 0),
        ],
        PODS: [
            pod("qwen-0", "node-9", 8, "qwen"),
            pod("notebook", "node-3", 2),
            pod("over", "node-10", 8, "old", "Succeeded"),
        ],
        QUARANTINES: [quarantine("node-3")],
    }
    return Server(*forbidden, **lists)


def test_each_node_with_chips_has_a_line() -> None:
    assert told(cluster()) == [
        "NODE      STATE         CHIPS   FREE   JOBS                DETAIL",
        "node-2    cordoned      8       8",
        "node-3    quarantined   8       5      pod team/notebook   ChipFault, until 02:00:00, 3 offences",
        "node-9    used          8       0      team/qwen",
        "node-10   free          8       8",
        "4 nodes: 1 cordoned, 1 free, 1 quarantined, 1 used",
    ]


def test_without_the_right_to_pods_what_is_free_is_unknown() -> None:
    lines = told(cluster(PODS))
    assert lines[3].split() == ["node-9", "unknown", "8", "unknown"]
    assert lines[-1] == "unknown: needs the right to list pods in all namespaces"
    assert {row["used"] for row in ask(cluster(PODS)).data} == {None}


def test_without_the_right_to_nodes_nothing_is_said() -> None:
    with pytest.raises(ClusterError, match="needs the right to list nodes"):
        ask(cluster(NODES))


def test_other_chips_are_asked_for_by_name() -> None:
    assert told(cluster(), "example.com/npu") == ["no node has example.com/npu (--resource names other chips)"]


def test_a_node_that_is_not_ready_comes_before_its_faults() -> None:
    silent = node("node-1")
    silent["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    (row,) = ask(Server(**{NODES: [silent], PODS: []})).data
    assert row["state"] == "not ready"
