"""Nodes are counted as the scheduler would see them: a node of another pool is no replacement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from hajob.api import constants as names
from hajob.api.spec import HATrainingJobSpec
from hajob.plan.policy import layout_of
from hajob.scheduling.free_nodes import free_nodes, nodes_to_avoid
from hajob.sources.node import NodeView, Taint, view
from hajob.sources.pod import PodView

EXAMPLE = Path(__file__).parents[3] / "examples/quickstart.yaml"
NODE = NodeView("node", chips={names.DEFAULT_RESOURCE_NAME: 2}, labels={"pool": "a", "rack": "1"})
TAINT = Taint("reserved", "NoSchedule", "others")


def spec(excluded: tuple[str, ...] = (), **pod: Any) -> HATrainingJobSpec:
    body = yaml.safe_load(EXAMPLE.read_text())["spec"]
    body["template"]["spec"] |= pod
    body["scheduling"] = {"excludedNodeNames": list(excluded)}
    return HATrainingJobSpec.model_validate(body)


def is_free(node: NodeView, job: HATrainingJobSpec, *pods: PodView) -> bool:
    return free_nodes([node], pods, job, layout_of(job)) == [node]


@pytest.mark.parametrize(
    ("changes", "free"),
    [
        ({}, True),
        ({"ready": False}, False),
        ({"unschedulable": True}, False),
        ({"chips": {names.DEFAULT_RESOURCE_NAME: 1}}, False),
        ({"chips": None}, False),
        ({"taints": (TAINT,)}, False),
        ({"taints": (replace(TAINT, effect="NoExecute"),)}, False),
        ({"taints": (replace(TAINT, effect="PreferNoSchedule"),)}, True),
    ],
)
def test_what_a_node_says(changes: dict[str, Any], free: bool) -> None:
    assert is_free(replace(NODE, **changes), spec()) is free


def test_a_node_with_a_rank_pod_of_any_job_is_taken() -> None:
    pod = PodView("default", "other-0", "1", "2", names.ROLE_RANK, 0, 1, node_name="node")
    assert not is_free(NODE, spec(), pod)
    assert is_free(NODE, spec(), replace(pod, role=names.ROLE_COORDINATOR))


def test_what_the_job_wishes() -> None:
    assert is_free(NODE, spec(nodeSelector={"pool": "a"}))
    assert not is_free(NODE, spec(nodeSelector={"pool": "a", "rack": "2"}))
    assert not is_free(NODE, spec(excluded=("node",)))


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "reserved", "operator": "Equal", "value": "others", "effect": "NoSchedule"}, True),
        ({"key": "reserved", "value": "others"}, True),
        ({"key": "reserved", "value": "us"}, False),
        ({"key": "reserved", "operator": "Exists"}, True),
        ({"key": "reserved", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "else", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"value": "others"}, False),
    ],
)
def test_taints_that_a_job_tolerates(toleration: dict[str, str], tolerated: bool) -> None:
    tainted = replace(NODE, taints=(TAINT,))
    assert is_free(tainted, spec(tolerations=[toleration])) is tolerated


def test_a_node_as_kubernetes_has_it() -> None:
    taints = [
        {"key": "reserved", "effect": "NoSchedule", "value": "others"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
    ]
    seen = view({"metadata": {"name": "node", "labels": {"pool": "a"}}, "spec": {"taints": taints}})
    assert (seen.labels, seen.taints, seen.ready) == ({"pool": "a"}, (TAINT,), False)


def test_needed_avoided_nodes_are_taken_longest_avoided_first() -> None:
    nodes = [replace(NODE, name=f"node-{number}") for number in range(6)]
    nodes.append(replace(NODE, name="node-9", ready=False))
    job = spec(nodeSelector={"pool": "a"})
    layout = layout_of(job)

    def avoided(*names: str) -> set[str]:
        return nodes_to_avoid(nodes, [], job, layout, names)

    assert avoided("node-2", "node-0") == {"node-0", "node-2", "node-9"}
    assert avoided("node-2", "node-0", "node-1") == {"node-0", "node-1", "node-9"}
    assert avoided("node-2", "node-9", "node-0", "node-1", "node-3") == {"node-1", "node-3", "node-9"}
    nodes[4] = replace(nodes[4], labels={"pool": "b"})
    assert avoided("node-2", "node-0") == {"node-0", "node-9"}, "a node of another pool helps nobody"
    assert avoided("node-4", "node-2", "node-0") == {"node-0", "node-4", "node-9"}
