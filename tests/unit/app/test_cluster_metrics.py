"""Metrics of nodes and chips: each node and each chip is counted once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hajob.app.cluster_metrics import CHIP_STATES, NODE_STATES, ClusterMetrics
from hajob.capacity.nodes import Capacity
from hajob.faults.quarantines import OffenceSource
from hajob.job.cluster import NodeMarks
from hajob.sources.node import NodeView
from hajob.sources.pod import ForeignPod
from tests.rigs.told_job import POD

CHIPS = "huawei.com/Ascend910"


def node(name: str, chips: int = 8, healthy: int = 8, **more: Any) -> NodeView:
    return NodeView(name, chips={CHIPS: healthy}, all_chips={CHIPS: chips}, **more)


NODES = (
    node("free"),
    node("used", healthy=7),
    node("shared"),
    node("cordoned", unschedulable=True),
    node("emptied", unschedulable=True),
    node("sick"),
    node("quarantined", unschedulable=True),
    node("away", ready=False),
    NodeView("without-chips"),
)
PODS = (
    replace(POD, name="a", node_name="used", requests=((CHIPS, 7),)),
    replace(POD, name="b", node_name="emptied", requests=((CHIPS, 8),)),
    ForeignPod("other/pod", "shared", ((CHIPS, 2),)),
)
MARKS = NodeMarks(quarantined={"quarantined"}, kept_out={"sick"}, sub_healthy=frozenset())


class Offenders(OffenceSource):
    def offences_by_node(self) -> Mapping[str, int]:
        return {"bad": 3, "good": 0}


@pytest.fixture
def counted() -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(ClusterMetrics(Capacity.from_nodes_and_pods(NODES, PODS), MARKS, OffenceSource()))
    return registry


def test_a_node_is_what_keeps_pods_out_first(counted: CollectorRegistry) -> None:
    found = {state: counted.get_sample_value("hajob_nodes", {"state": state}) for state in NODE_STATES}
    assert found == {"not_ready": 1, "quarantined": 1, "sick": 1, "cordoned": 2, "used": 2, "free": 1}


def test_every_chip_is_in_one_state(counted: CollectorRegistry) -> None:
    labels = [{"resource": CHIPS, "state": state} for state in CHIP_STATES]
    found = [counted.get_sample_value("hajob_chips", one) for one in labels]
    assert found == [1, 32, 17, 14]
    assert sum(filter(None, found)) == 8 * 8


def test_a_cluster_without_nodes_has_none() -> None:
    registry = CollectorRegistry()
    registry.register(ClusterMetrics(Capacity(), NodeMarks(), OffenceSource()))
    assert registry.get_sample_value("hajob_nodes", {"state": "free"}) == 0


def test_a_node_that_offends_is_named() -> None:
    registry = CollectorRegistry()
    registry.register(ClusterMetrics(Capacity(), NodeMarks(), Offenders()))
    assert registry.get_sample_value("hajob_node_offences", {"node": "bad"}) == 3
    assert registry.get_sample_value("hajob_node_offences", {"node": "good"}) is None
