"""Which nodes Volcano's Ascend plugin would give, beside pods of others: of MindCluster's own jobs, too."""

from __future__ import annotations

from dataclasses import replace

from hajob.api import constants as names
from hajob.capacity.nodes import Capacity
from hajob.sources.node import NodeView
from hajob.sources.pod import ForeignPod, view_of_foreign_pod
from tests.rigs.capacity import DEMAND_FOR_ANY_NODE

CHIP = names.DEFAULT_RESOURCE_NAME
BY_VOLCANO = replace(DEMAND_FOR_ANY_NODE, by_volcano=True)
NODE = NodeView("node-0", chips={CHIP: 8}, all_chips={CHIP: 8})


def foreign(**annotations: str) -> ForeignPod:
    resources = {"limits": {CHIP: "2"}}
    spec = {"nodeName": "node-0", "containers": [{"name": "main", "resources": resources}]}
    found = view_of_foreign_pod(
        {"metadata": {"namespace": "nlp", "name": "x", "annotations": annotations}, "spec": spec}
    )
    assert found is not None
    return found


def free(pod: ForeignPod) -> tuple[set[str], set[str]]:
    capacity = Capacity.from_nodes_and_pods([NODE], [pod])
    return capacity.free_nodes(DEMAND_FOR_ANY_NODE), capacity.free_nodes(BY_VOLCANO)


def test_a_node_where_nobody_noted_the_chips_is_not_stable() -> None:
    """Kubernetes' scheduler counts numbers, and would use the rest of it."""
    assert free(foreign()) == ({"node-0"}, set())


def test_a_node_where_the_chips_are_noted_has_room() -> None:
    noted = foreign(**{names.ANNOTATION_REAL_CHIPS: "Ascend910-0,Ascend910-1"})
    assert free(noted) == ({"node-0"}, {"node-0"})


def test_chips_that_are_noted_later_make_it_usable() -> None:
    capacity = Capacity.from_nodes_and_pods([NODE], [foreign()])
    assert capacity.free_nodes(BY_VOLCANO) == set()
    assert capacity.store_pod(foreign(**{names.ANNOTATION_REAL_CHIPS: "Ascend910-0,Ascend910-1"}))
    assert capacity.free_nodes(BY_VOLCANO) == {"node-0"}


def test_a_node_whose_chips_nobody_tells_gets_no_pod() -> None:
    """Where the plugin of Huawei is; without it no node tells its chips like that."""
    told = NodeView("told", chips={CHIP: 8}, devices='{"Ascend910-0": {}}')
    capacity = Capacity.from_nodes_and_pods([NODE], [])
    assert capacity.free_nodes(BY_VOLCANO) == {"node-0"}
    capacity.store_node(told)
    assert capacity.free_nodes(BY_VOLCANO) == {"told"}
    assert capacity.free_nodes(DEMAND_FOR_ANY_NODE) == {"node-0", "told"}
    capacity.store_node(replace(told, devices=""))
    assert capacity.free_nodes(BY_VOLCANO) == {"node-0", "told"}
    capacity.store_node(told)
    capacity.remove_node("told")
    assert capacity.free_nodes(BY_VOLCANO) == {"node-0"}
