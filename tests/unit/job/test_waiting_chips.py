"""A start that waits for nodes gives its chips back where the spec says so, and takes them up once there are enough."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from hajob.plan.policy import RELEASE_SECONDS
from hajob.sources.pod import pod_view_of
from tests.rigs.job_controller import NAMESPACE, ControllerTown, settle_town


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    made.raw["spec"]["scheduling"] = {"waitingPodPolicy": "Release"}
    await made.controller.stop_managing()
    made.kube.put("hatrainingjobs", NAMESPACE, made.raw)
    made.open()
    await settle_town(made)
    yield made
    await made.controller.stop_managing()


async def half_of_the_nodes(town: ControllerTown) -> None:
    """Two rank pods have nodes, for two the scheduler finds none."""
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/6 nodes"}
    for pod in town.pods():
        body = town.kube.objects["pods", NAMESPACE, pod.name]
        if pod.node_rank >= 2:
            body["status"] = {"phase": "Pending", "conditions": [unscheduled]}
        else:
            body["spec"]["nodeName"] = f"node-{pod.node_rank + 1}"
        town.controller.apply_pod(pod_view_of(body))
    await settle_town(town)


def ranks(town: ControllerTown) -> list[tuple[int, bool]]:
    """Incarnation of each rank pod, and whether it goes."""
    return sorted((pod.incarnation, pod.deleting) for pod in town.pods() if pod.role == "rank")


def scheduled(town: ControllerTown) -> tuple[str, str]:
    found = next(each for each in town.status()["conditions"] if each["type"] == "Scheduled")
    return found["reason"], found["message"]


async def test_chips_are_given_back_and_taken_up_again(town: ControllerTown) -> None:
    await half_of_the_nodes(town)
    await town.clock.advance(RELEASE_SECONDS - 1)
    assert ranks(town) == [(1, False)] * 4
    for node in ("node-3", "node-4", "node-5"):
        del town.nodes[node]
    await town.clock.advance(5)
    assert all(deleting for _, deleting in ranks(town))
    for pod in town.pods():
        if pod.deleting:
            del town.kube.objects["pods", NAMESPACE, pod.name]
    left = {pod.name for pod in town.pods()}
    for pod in town.controller.snapshots.pods.all_pods():
        if pod.name not in left:
            town.controller.apply_pod(pod, deleted=True)
    await town.clock.advance(5)
    assert ranks(town) == []
    assert "ChipsReleased" in town.events.reasons
    assert scheduled(town)[0] == "WaitingForCapacity"
    assert "released" in scheduled(town)[1]
    await town.clock.advance(10 * RELEASE_SECONDS)
    assert ranks(town) == []
    for number in (3, 4, 5):
        town.nodes[f"node-{number}"] = replace(town.nodes["node-0"], name=f"node-{number}")
    town.controller.look_for_capacity()
    await settle_town(town)
    assert ranks(town) == [(2, False)] * 4
