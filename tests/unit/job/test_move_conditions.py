"""A move that failed is told for as long as pods are on the node that they were to leave."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from hajob.capacity.demand import is_kept_off
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.node import NodeView, Taint
from tests.rigs.job_controller import ControllerTown, settle_town

CORDONED = NodeView("node", unschedulable=True)
DISRUPTED = NodeView("node", taints=(Taint("karpenter.sh/disrupted", "NoSchedule"),), drained=True)


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    yield made
    await made.controller.stop_managing()


def degraded(town: ControllerTown) -> tuple[str, str]:
    found = next(each for each in town.status()["conditions"] if each["type"] == "Degraded")
    return found["reason"], found["message"]


async def cordon(town: ControllerTown, node: str, *, cordoned: bool = True) -> None:
    town.nodes[node] = replace(town.nodes[node], unschedulable=cordoned)
    town.controller.look_for_moves()
    await settle_town(town)


async def test_a_failed_move_degrades_the_job_until_the_node_is_left(town: ControllerTown) -> None:
    await town.train()
    node = next(pod.node_name for pod in town.pods() if pod.node_rank == 1)
    await cordon(town, node)
    assert town.controller.state.phase == "Migrating"
    await town.clock.advance(200.0)
    await town.report(step=6)
    await town.clock.advance(100.0)
    await settle_town(town)
    assert town.controller.state.phase == "Running"
    assert degraded(town) == (
        "MoveFailed",
        f"still on {node}, node ranks [1]: the second pods were not ready in time; Hajob tries again within 10 minutes",
    )
    await cordon(town, node, cordoned=False)
    await town.report(step=8)
    await town.clock.advance(5.0)
    assert degraded(town)[0] != "MoveFailed"


async def test_a_move_that_works_leaves_nothing_to_tell(town: ControllerTown) -> None:
    await town.train()
    node = next(pod.node_name for pod in town.pods() if pod.node_rank == 1)
    await cordon(town, node)
    await town.run_pods()
    await town.report(step=9, milestones=[wire.Milestone(kind=wire.RESUMED, incarnation=2, step=9)])
    await town.clock.advance(5.0)
    assert town.controller.state.phase == "Running"
    assert degraded(town)[0] != "MoveFailed"


async def test_a_move_leads_to_no_cordoned_node(town: ControllerTown) -> None:
    """The scheduler would put pods that tolerate every taint there, and they would have to move again."""
    await town.controller.stop_managing()
    town.stored()["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    town.open()
    await settle_town(town)
    await town.train()
    node = next(pod.node_name for pod in town.pods() if pod.node_rank == 1)
    other = next(name for name in sorted(town.nodes) if name not in {pod.node_name for pod in town.pods()})
    town.nodes[other] = replace(town.nodes[other], unschedulable=True)
    await cordon(town, node)
    (second,) = [pod for pod in town.pods() if pod.node_rank == 1 and not pod.node_name]
    assert {node, other} <= second.excluded


LEAVING = Taint("example.com/leaving", "NoSchedule")
"""Of a cluster whose admin has named it in the settings (drainTaints)."""


async def test_a_move_leads_to_no_drained_node(town: ControllerTown) -> None:
    await town.controller.stop_managing()
    tolerated = [{"key": LEAVING.key, "operator": "Exists"}]
    town.stored()["spec"]["template"]["spec"]["tolerations"] = tolerated
    town.open()
    await settle_town(town)
    await town.train()
    node = next(pod.node_name for pod in town.pods() if pod.node_rank == 1)
    other = next(name for name in sorted(town.nodes) if name not in {pod.node_name for pod in town.pods()})
    town.nodes[other] = replace(town.nodes[other], taints=(LEAVING,), drained=True)
    await cordon(town, node)
    (second,) = [pod for pod in town.pods() if pod.node_rank == 1 and not pod.node_name]
    assert other in second.excluded


@pytest.mark.parametrize(
    ("toleration", "node", "kept_off"),
    [
        ({"operator": "Exists"}, CORDONED, False),
        ({"operator": "Exists", "effect": "NoSchedule"}, CORDONED, False),
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}, CORDONED, False),
        ({"operator": "Exists", "effect": "NoExecute"}, CORDONED, True),
        ({"key": "gpu", "operator": "Exists"}, CORDONED, True),
        ({"key": "karpenter.sh/disrupted", "operator": "Exists"}, DISRUPTED, False),
        ({"key": "gpu", "operator": "Exists"}, DISRUPTED, True),
        ({"key": "gpu", "operator": "Exists"}, NodeView("node", deleting=True), False),
    ],
)
def test_which_pods_only_hajob_keeps_off_a_node(toleration: dict[str, str], node: NodeView, kept_off: bool) -> None:
    assert is_kept_off(node, [toleration]) is kept_off
