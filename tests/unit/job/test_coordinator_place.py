"""A coordinator that keeps to itself the only node left for a rank pod makes room for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hajob.api import constants as names
from hajob.plan.policy import UNPLACED_SECONDS
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView, pod_view_of
from tests.rigs.job_controller import ControllerTown, body_of_pod, coordinator_pod_of, settle_town

WORDS = "0/4 nodes are available: 4 node(s) didn't satisfy existing pods anti-affinity rules."
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": WORDS}


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    for number in (4, 5):
        del made.nodes[f"node-{number}"]
    await settle_town(made)
    yield made
    await made.controller.stop_managing()


async def place(town: ControllerTown, pod: PodView, node: str) -> None:
    """The scheduler has found this node for it, or none."""
    body = body_of_pod(town, pod)
    body["status"] = {"phase": "Pending", "conditions": [] if node else [UNSCHEDULABLE]}
    if node:
        body["spec"]["nodeName"] = node
    town.controller.apply_pod(pod_view_of(body))
    await settle_town(town)


def ranks(town: ControllerTown) -> list[PodView]:
    return sorted((pod for pod in town.pods() if pod.is_rank_pod), key=lambda pod: pod.node_rank)


async def all_but_the_last(town: ControllerTown, coordinator_on: str) -> PodView:
    """Three of four rank pods have nodes; returns the fourth."""
    *placed, last = ranks(town)
    await place(town, last, "")
    await place(town, coordinator_pod_of(town), coordinator_on)
    for number, pod in enumerate(placed):
        await place(town, pod, f"node-{number}")
    return last


async def test_a_coordinator_makes_room_for_the_last_rank(town: ControllerTown) -> None:
    await all_but_the_last(town, coordinator_on="node-3")
    before = coordinator_pod_of(town)
    await town.clock.advance(UNPLACED_SECONDS - 1)
    assert coordinator_pod_of(town).uid == before.uid
    await town.clock.advance(2)
    assert town.events.reasons[-1] == "CoordinatorSharesNode"
    assert (
        body_of_pod(town, coordinator_pod_of(town))["metadata"]["labels"][names.LABEL_PLACEMENT]
        == names.PLACEMENT_ANYWHERE
    )


async def test_a_rank_that_finds_its_node_leaves_it_alone(town: ControllerTown) -> None:
    last = await all_but_the_last(town, coordinator_on="node-3")
    before = coordinator_pod_of(town)
    await town.clock.advance(UNPLACED_SECONDS / 2)
    await place(town, last, "another")
    await town.clock.advance(2 * UNPLACED_SECONDS)
    assert coordinator_pod_of(town).uid == before.uid


async def test_a_coordinator_where_no_rank_fits_stays(town: ControllerTown) -> None:
    town.nodes["node-3"] = NodeView("node-3")
    await all_but_the_last(town, coordinator_on="node-3")
    before = coordinator_pod_of(town)
    await town.clock.advance(3 * UNPLACED_SECONDS)
    assert coordinator_pod_of(town).uid == before.uid
