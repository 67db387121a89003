"""Where the pods of a job of blocks go: what its snapshot says of super pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.job.snapshot import JobSnapshot
from hajob.plan.state import JobPhase
from hajob.sources.node import NodeView
from tests.rigs.snapshots import RUNNING, rank, snapshot

CHIP = names.DEFAULT_RESOURCE_NAME
BLOCKS = {
    "accelerator": {"product": "A3", "chipsPerNode": 2, "superPodChips": 4},
    "scheduling": {"gangPolicy": "Volcano"},
}


def node(name: str, super_pod: str) -> NodeView:
    return NodeView(name, chips={CHIP: 2}, all_chips={CHIP: 2}, labels={names.LABEL_NODE_SUPER_POD: super_pod})


def of_blocks(*spare: NodeView, placed: int = 4, phase: JobPhase = JobPhase.RUNNING, **fields: Any) -> JobSnapshot:
    """Four nodes in blocks of two, on super pods a and b."""
    pods = [rank(number) for number in range(placed)]
    own = [node(f"node-{number}", "ab"[number // 2]) for number in range(4)]
    return snapshot(BLOCKS, pods=pods, state=replace(RUNNING, phase=phase, **fields), nodes=[*own, *spare])


def test_a_lost_pod_goes_to_the_super_pod_of_its_neighbour() -> None:
    found = of_blocks(placed=3)
    assert found.super_pod_for(3) == "b"


def test_of_a_start_the_plugin_chooses() -> None:
    found = of_blocks(placed=0, phase=JobPhase.PENDING)
    assert (found.is_placed_in_blocks, found.super_pod_for(0)) == (True, "")
    assert snapshot().super_pod_for(0) == "", "a job without blocks goes anywhere"


@pytest.mark.parametrize(("where", "room"), [("a", False), ("b", True)])
def test_a_growth_needs_room_in_the_super_pod_of_its_block(where: str, room: bool) -> None:
    found = of_blocks(node("free", where), placed=3)
    vars(found)["free_node_names"] = {"free"}
    assert found.has_room_in_super_pods([3]) is room
