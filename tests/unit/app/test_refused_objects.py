"""An object that the server refuses to change keeps no other one waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from e2e.memory_api.requests import Request, requests
from hajob.api import constants as names
from hajob.capacity.avoided_nodes import AvoidedNodes
from hajob.kube.client import ApiError
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.pod import PodView, pod_view_of
from tests.rigs.job_controller import NAMESPACE, ControllerTown, settle_town

WEBHOOK = ApiError(500, "InternalError", "failed calling webhook: no endpoints available")
FOREIGN = "quota.example.com/hold"


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    yield made
    await made.controller.stop_managing()


def show_pods(town: ControllerTown) -> list[PodView]:
    """The controller sees every pod as it is; return the rank pods."""
    for pod in town.pods():
        town.controller.apply_pod(pod)
    return [pod for pod in town.pods() if pod.is_rank_pod]


def silent(node_rank: int, incarnation: int = 1) -> wire.Fact:
    ranks = [2 * node_rank, 2 * node_rank + 1]
    fact = f"silent-{node_rank}"
    return wire.Fact(id=fact, kind=wire.AGENT_SILENT, node_rank=node_rank, ranks=ranks, incarnation=incarnation)


def of_node_rank(town: ControllerTown, node_rank: int) -> list[PodView]:
    return [pod for pod in town.pods() if pod.is_rank_pod and pod.node_rank == node_rank]


async def test_a_pod_that_may_not_be_deleted_delays_no_other(town: ControllerTown) -> None:
    await town.train()
    (kept,) = of_node_rank(town, 0)

    def deletes_it(request: Request) -> bool:
        return request.method == "DELETE" and request.path.endswith(f"/{kept.name}")

    town.kube.server.faults.refuse(WEBHOOK, matching=deletes_it, times=None)
    await town.report(silent(0), step=5)
    assert sorted(pod.incarnation for pod in of_node_rank(town, 0)) == [1, 2]
    await town.clock.advance(62.0)  # the pauses between the tries have become long
    await town.report(silent(3), step=5)
    await town.clock.advance(2.0)
    await settle_town(town)
    assert [pod.incarnation > 1 for pod in of_node_rank(town, 3)] == [True]


async def test_a_gate_behind_somebody_elses_is_opened(town: ControllerTown) -> None:
    enough, town.nodes = town.nodes, {"node-0": town.nodes["node-0"]}
    await settle_town(town)
    gated = [body for (kind, _, _), body in town.kube.objects.items() if kind == "pods" and pod_view_of(body).is_gated]
    assert len(gated) == 4
    for body in gated:  # as a mutating webhook leaves them
        body["spec"]["schedulingGates"] = [{"name": FOREIGN}, {"name": names.GATE}]
        town.controller.apply_pod(pod_view_of(body))
    town.nodes = enough
    town.controller.look_for_capacity()
    await town.clock.advance(6.0)
    await settle_town(town)
    pods = [
        body for (kind, _, _), body in town.kube.objects.items() if kind == "pods" and pod_view_of(body).is_rank_pod
    ]
    left = [body["spec"]["schedulingGates"] for body in pods]
    assert left == [[{"name": FOREIGN}]] * 4
    show_pods(town)
    await settle_town(town)
    scheduled = next(each for each in town.status()["conditions"] if each["type"] == "Scheduled")
    assert FOREIGN in scheduled["message"]


async def test_no_waiting_pod_excludes_a_node_that_was_released(town: ControllerTown) -> None:
    """A gang whose pods exclude different nodes may never be placed: one takes the last node that the other allows."""
    every, town.nodes = town.nodes, {f"node-{n}": town.nodes[f"node-{n}"] for n in range(3)}
    town.quarantined.add("node-4")
    await settle_town(town)
    first = show_pods(town)
    assert all(pod.is_gated and pod.excluded == {"node-4"} for pod in first)
    town.nodes = {f"node-{n}": every[f"node-{n}"] for n in range(4)}
    town.nodes["node-4"] = every["node-4"]
    town.quarantined.clear()
    town.controller.handle_changed_places()
    await town.end_deleted_pods()
    for pod in first:
        town.controller.apply_pod(pod, deleted=True)
    await town.clock.advance(6.0)
    ranks = show_pods(town)
    assert [pod.name for pod in ranks if pod.is_gated or pod.excluded] == []
    assert len(ranks) == 4


async def refuse_pods_of(town: ControllerTown, node_rank: int, seconds: int) -> int:
    """A broken device plugin: node-1 refuses each pod of this node rank; return how many there were."""
    before = {pod.name for pod in of_node_rank(town, node_rank)}
    made: set[str] = set()
    for _ in range(2 * seconds):
        for pod in of_node_rank(town, node_rank):
            made.add(pod.name)
            body = town.kube.objects["pods", NAMESPACE, pod.name]
            body["spec"]["nodeName"] = "node-1"
            body["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices"}
            town.controller.apply_pod(pod_view_of(body))
        await town.clock.advance(0.5)
        await town.end_deleted_pods()
    return len(made - before)


async def test_a_node_that_refuses_every_pod_is_asked_ever_later(town: ControllerTown) -> None:
    await settle_town(town)
    made = await refuse_pods_of(town, 1, 60)
    assert 3 <= made <= 9  # 2 at once, then 1, 2, 4, 8, 16, 30 s apart, each at least half of that
    scheduled = next(each for each in town.status()["conditions"] if each["type"] == "Scheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "PodsNotCreated")
    assert scheduled["message"].startswith("node-1 refuses pods of this job")
    assert "no healthy devices" in scheduled["message"]
    assert town.events.reasons.count("PodsNotCreated") <= made
    assert town.controller.state.restarts_infrastructure == 0


def test_a_node_in_trouble_again_and_again_is_avoided_for_longer() -> None:
    nodes = AvoidedNodes()
    for began, avoided in ((0, 60), (100, 120), (300, 240), (700, 480)):
        nodes.avoid_node("node-1", began)
        assert nodes.avoided_names(began + avoided - 1) == ["node-1"]
        assert nodes.avoided_names(began + avoided) == []
    assert nodes.avoided_names(5000) == []
    nodes.avoid_node("node-1", 5000)
    assert nodes.avoided_names(5060) == []


async def test_a_refused_job_starts_once_its_pods_are_allowed() -> None:
    """Nobody edits the job: its service account was made a moment later."""
    missing = ApiError(403, "Forbidden", 'pods "x" is forbidden: serviceaccount "trainer" not found')
    town = ControllerTown()
    town.kube.server.faults.refuse(missing, matching=requests("pods"), times=3)
    await settle_town(town)
    assert town.status()["summary"]["state"] == "Refused"
    await town.clock.advance(60)
    assert len([pod for pod in town.pods() if pod.is_rank_pod]) == 4
    assert town.events.reasons.count("PodRefused") == 1, "the same words are said once"
    await town.controller.stop_managing()
