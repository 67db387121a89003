"""Why no node can ever take a rank pod is told; one that is only busy or cordoned can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.api.enums import Product
from hajob.capacity.unsatisfiable import why_none_fits
from hajob.sources.node import NodeView, Taint
from tests.rigs.capacity import NODE_WITH_TWO_CHIPS, demand_of, quickstart_spec

CHIP = names.DEFAULT_RESOURCE_NAME
OTHER = replace(NODE_WITH_TWO_CHIPS, name="other", labels={})


def why(nodes: list[NodeView], excluded: tuple[str, ...] = (), **pod: Any) -> str:
    asked = quickstart_spec(excluded, **pod)
    return why_none_fits(asked, demand_of(asked), nodes)


@pytest.mark.parametrize(
    ("nodes", "asked", "told"),
    [
        ([replace(NODE_WITH_TWO_CHIPS, chips={})], {}, f"no node has {CHIP}, of 1 node (spec.accelerator.resourceN"),
        (
            [replace(NODE_WITH_TWO_CHIPS, chips={CHIP: 1}), replace(OTHER, chips={})],
            {},
            f"no node has 2 {CHIP}, the most is 1",
        ),
        (
            [NODE_WITH_TWO_CHIPS, OTHER],
            {"excluded": ("node", "other")},
            f"excludedNodeNames has every node with 2 {CHIP}",
        ),
        (
            [NODE_WITH_TWO_CHIPS, OTHER],
            {"nodeSelector": {"pool": "z"}},
            "fits the template's nodeSelector, affinity and tolerations",
        ),
        ([replace(NODE_WITH_TWO_CHIPS, taints=(Taint("a", "NoSchedule"),))], {}, "fits the template's nodeSelector"),
    ],
)
def test_it_is_told(nodes: list[NodeView], asked: dict[str, Any], told: str) -> None:
    assert told in why(nodes, **asked)


@pytest.mark.parametrize(
    "node",
    [NODE_WITH_TWO_CHIPS, replace(NODE_WITH_TWO_CHIPS, unschedulable=True), replace(NODE_WITH_TWO_CHIPS, ready=False)],
    ids=["free", "cordoned", "away"],
)
def test_a_node_that_may_come_back_is_one(node: NodeView) -> None:
    assert why([OTHER, node], nodeSelector={"pool": "a"}) == ""


def test_nothing_is_said_before_nodes_are_known() -> None:
    assert why([]) == ""


@pytest.mark.parametrize(
    ("super_pods", "told"),
    [
        ("", "no node says in which super pod it is"),
        ("aab", "needs 2 blocks of 2 nodes, each in one super pod (spec.accelerator.superPodChips), and super"),
        ("aabb", ""),
        ("aaaa", ""),
    ],
)
def test_blocks_that_no_super_pods_hold_are_told(super_pods: str, told: str) -> None:
    asked = quickstart_spec()
    accelerator = asked.accelerator.model_copy(update={"product": Product.A3, "super_pod_chips": 4})
    asked = asked.model_copy(update={"accelerator": accelerator})
    labels = [{names.LABEL_NODE_SUPER_POD: one} for one in super_pods] or [{}] * 4
    nodes = [replace(OTHER, name=f"n-{at}", labels=one) for at, one in enumerate(labels)]
    found = why_none_fits(asked, demand_of(asked), nodes)
    assert told in found
    assert bool(told) is bool(found)
