"""What a waiting job lacks is told in numbers and names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.capacity.nodes import Capacity
from hajob.capacity.shortfall import shortfall_of_nodes
from hajob.sources.node import NodeView
from hajob.sources.pod import ForeignPod
from tests.rigs.capacity import DEMAND_FOR_ANY_NODE, DEMAND_FOR_POOL_A, capacity_of_pools, pod_of_this_operator

CHIPS = DEMAND_FOR_ANY_NODE.resource


def told(capacity: Capacity, *quarantined: str, job_uid: str = "uid-9") -> str:
    return shortfall_of_nodes(4, DEMAND_FOR_ANY_NODE, capacity, quarantined, job_uid)


def twelve() -> Capacity:
    capacity = capacity_of_pools(a=12)
    for number in range(6):
        capacity.store_pod(replace(pod_of_this_operator(f"first-{number}-0a1b2c3d", f"a-{number}"), namespace="team"))
    for number in range(6, 9):
        pod = replace(pod_of_this_operator(f"x-spare-{number}-0a1b2c3d", f"a-{number}"), namespace="nlp")
        capacity.store_pod(replace(pod, job_uid="uid-2"))
    return capacity


def test_who_has_the_nodes_is_named_with_their_number() -> None:
    assert told(twelve(), "a-9") == (
        f"needs 4 nodes with 2 {CHIPS}; of 12 such nodes, 9 are used (team/first 6, nlp/x 3), "
        "1 is in quarantine (a-9), 2 are free"
    )


def test_nodes_that_are_cordoned_or_not_ready_are_named() -> None:
    capacity = capacity_of_pools(a=3)
    capacity.store_node(replace(capacity.nodes["a-0"], unschedulable=True))
    capacity.store_node(replace(capacity.nodes["a-1"], ready=False))
    assert told(capacity).endswith("of 3 such nodes, 2 are not ready or cordoned (a-0, a-1), 1 is free")


def test_pods_of_others_are_told_as_such() -> None:
    capacity = capacity_of_pools(a=1)
    capacity.store_pod(ForeignPod("lab/notebook", "a-0", ((CHIPS, 1),)))
    assert told(capacity).endswith("of 1 such node, 1 is used (pods that are not Hajob's 1), 0 are free")


def test_own_pods_of_an_earlier_start_take_nothing() -> None:
    assert told(twelve(), job_uid="uid-1").endswith("3 are used (nlp/x 3), 9 are free")


@pytest.mark.parametrize("nodes", [[], [NodeView("cpu-0")], [NodeView("small", chips={CHIPS: 1})]])
def test_a_cluster_without_such_nodes_says_so(nodes: list[NodeView]) -> None:
    assert told(Capacity.from_nodes_and_pods(nodes, [])) == f"needs 4 nodes with 2 {CHIPS}; the cluster has none"


def test_only_nodes_that_the_template_allows_count() -> None:
    found = shortfall_of_nodes(4, DEMAND_FOR_POOL_A, capacity_of_pools(a=1, b=5), (), "uid-9")
    assert found.endswith("of 1 such node, 1 is free")
