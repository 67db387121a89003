"""Why no node can ever take a rank pod is told; one that is only busy or cordoned can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.scheduling.unsatisfiable import why_none_fits
from hajob.sources.node import NodeView, Taint
from tests.unit.scheduling.test_capacity import NODE, demand, spec

CHIP = names.DEFAULT_RESOURCE_NAME
OTHER = replace(NODE, name="other", labels={})


def why(nodes: list[NodeView], excluded: tuple[str, ...] = (), **pod: Any) -> str:
    asked = spec(excluded, **pod)
    return why_none_fits(asked, demand(asked), nodes)


@pytest.mark.parametrize(
    ("nodes", "asked", "told"),
    [
        ([replace(NODE, chips={})], {}, f"none of 1 nodes has {CHIP} (spec.accelerator.resourceName)"),
        ([replace(NODE, chips={CHIP: 1}), replace(OTHER, chips={})], {}, f"no node has 2 {CHIP}, the most is 1"),
        ([NODE, OTHER], {"excluded": ("node", "other")}, f"excludedNodeNames has every node with 2 {CHIP}"),
        ([NODE, OTHER], {"nodeSelector": {"pool": "z"}}, "fits the template's nodeSelector, affinity and tolerations"),
        ([replace(NODE, taints=(Taint("a", "NoSchedule"),))], {}, "fits the template's nodeSelector"),
    ],
)
def test_it_is_told(nodes: list[NodeView], asked: dict[str, Any], told: str) -> None:
    assert told in why(nodes, **asked)


@pytest.mark.parametrize(
    "node", [NODE, replace(NODE, unschedulable=True), replace(NODE, ready=False)], ids=["free", "cordoned", "away"]
)
def test_a_node_that_may_come_back_is_one(node: NodeView) -> None:
    assert why([OTHER, node], nodeSelector={"pool": "a"}) == ""


def test_nothing_is_said_before_nodes_are_known() -> None:
    assert why([]) == ""
