"""A job holds its spare nodes, and hands them over to pods that may go nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from hajob.api.base import Json
from hajob.domain.facts import FactKind, Source
from hajob.domain.hardware import ClusterFact, Level
from hajob.job.policies.spares import LOOK_SECONDS, PATIENCE_SECONDS, RETRY_SECONDS, STUCK_SECONDS
from hajob.kube.client import ApiError
from hajob.plan.state import JobPhase
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.pod import PodView, pod_view_of
from tests.rigs.job_controller import NAMESPACE, ControllerTown, settle_town

UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/7 nodes"}


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    made.raw["spec"]["scheduling"] = {"numSpareNodes": 1}
    await made.controller.stop_managing()
    made.kube.put("hatrainingjobs", NAMESPACE, made.raw)
    made.nodes["node-6"] = replace(made.nodes["node-0"], name="node-6")
    made.open()
    yield made
    await made.controller.stop_managing()


async def holding(town: ControllerTown) -> PodView:
    """The job trains, and its spare holds node-6."""
    await town.train()
    (spare,) = (pod for pod in town.pods() if pod.is_spare_pod)
    ready = {"phase": "Running", "podIP": "127.0.1.99", "conditions": [{"type": "Ready", "status": "True"}]}
    await change(town, spare.name, {"nodeName": "node-6"}, ready)
    return next(pod for pod in town.pods() if pod.is_spare_pod)


async def change(town: ControllerTown, name: str, spec: Json, status: Json) -> None:
    """A pod as the cluster has changed it."""
    body = town.kube.objects["pods", NAMESPACE, name]
    body["spec"] |= spec
    body["status"] = status
    town.controller.apply_pod(pod_view_of(body))
    await settle_town(town)


def of(town: ControllerTown, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in town.status()["conditions"] if each["type"] == kind)
    return found


async def lose_node_rank_0(town: ControllerTown) -> PodView:
    """Its agent falls silent; returns the pod that replaces it."""
    await town.report(wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=0, ranks=[0, 1], incarnation=1), step=5)
    replacement = next(pod for pod in town.pods() if pod.node_rank == 0 and pod.incarnation == 2)
    town.controller.apply_pod(replacement)
    await settle_town(town)
    return replacement


def spares(town: ControllerTown) -> list[str]:
    return [pod.name for pod in town.pods() if pod.is_spare_pod and not pod.deleting]


async def test_no_spare_is_asked_for_before_the_job_trains(town: ControllerTown) -> None:
    await settle_town(town)
    await town.run_pods()
    assert spares(town) == []
    assert of(town, "SparesReady")["reason"] == "AfterStart"
    await holding(town)
    await town.clock.advance(5)
    assert len(spares(town)) == 1
    assert town.status()["spares"] == {"desired": 1, "ready": 1}
    assert (of(town, "SparesReady")["status"], of(town, "Scheduled")["status"]) == ("True", "True")


async def test_a_lost_node_is_replaced_on_the_spare_and_refilled(town: ControllerTown) -> None:
    spare = await holding(town)
    replacement = await lose_node_rank_0(town)
    assert replacement.place == "node-6"
    assert spares(town) == [spare.name], "nobody keeps the node for the replacement yet"
    await change(town, replacement.name, {}, {"phase": "Pending", "conditions": [UNSCHEDULABLE]})
    raw = town.kube.objects["pods", NAMESPACE, replacement.name]
    assert raw["status"]["nominatedNodeName"] == "node-6"
    town.controller.apply_pod(pod_view_of(raw))
    await settle_town(town)
    assert spares(town) == []
    await town.end_deleted_pods()
    assert spares(town) == [], "it is not made anew while the job recovers"
    await change(town, replacement.name, {"nodeName": "node-6"}, {"phase": "Running", "podIP": "127.0.1.77"})
    for kind in (wire.NAMED, wire.RESUMED, wire.RESULT):
        await town.report(step=6, milestones=[wire.Milestone(kind=kind, incarnation=2, step=6)])
    assert town.controller.state.phase is JobPhase.RUNNING
    assert spares(town) == [spare.name]
    assert town.status()["incidents"][0]["outcome"] == "Recovered"


async def test_a_scheduler_that_says_nothing_is_not_waited_for(town: ControllerTown) -> None:
    await holding(town)
    await lose_node_rank_0(town)
    await town.clock.advance(PATIENCE_SECONDS - 1)
    assert len(spares(town)) == 1
    await town.clock.advance(2)
    assert spares(town) == []


async def test_a_pod_whose_place_somebody_took_is_decided_anew(town: ControllerTown) -> None:
    await holding(town)
    replacement = await lose_node_rank_0(town)
    await change(town, replacement.name, {}, {"phase": "Pending", "conditions": [UNSCHEDULABLE]})
    await town.clock.advance(STUCK_SECONDS + 1)
    await town.end_deleted_pods()
    newest = max((pod for pod in town.pods() if pod.node_rank == 0), key=lambda pod: pod.incarnation)
    assert (newest.incarnation, newest.place) == (3, "")


async def test_a_cordoned_spare_is_made_elsewhere(town: ControllerTown) -> None:
    spare = await holding(town)
    town.nodes["node-6"] = replace(town.nodes["node-6"], unschedulable=True)
    town.controller.look_for_moves()
    await settle_town(town)
    assert town.status()["spares"]["ready"] == 0
    await town.end_deleted_pods()
    (again,) = (pod for pod in town.pods() if pod.is_spare_pod)
    assert again.uid != spare.uid


async def test_a_spare_whose_node_turned_sick_is_made_elsewhere(town: ControllerTown) -> None:
    spare = await holding(town)
    town.sub_healthy.add("node-6")
    town.controller.look_for_faults(frozenset({"node-6"}))
    await town.clock.advance(2)
    await town.end_deleted_pods()
    (again,) = (pod for pod in town.pods() if pod.is_spare_pod)
    assert again.uid != spare.uid
    assert again.excluded == {"node-6"}


async def test_a_waiting_spare_may_go_to_a_node_that_came_back(town: ControllerTown) -> None:
    """The node was slow when the spare was made; the job has no pod there, so that nobody tells it of the node."""
    town.sub_healthy.add("node-6")
    await town.train()
    (spare,) = (pod for pod in town.pods() if pod.is_spare_pod)
    assert spare.excluded == {"node-6"}
    await change(town, spare.name, {}, {"phase": "Pending", "conditions": [UNSCHEDULABLE]})
    town.sub_healthy.clear()
    await town.clock.advance(LOOK_SECONDS + 1)
    await town.end_deleted_pods()
    (again,) = (pod for pod in town.pods() if pod.is_spare_pod)
    assert (again.uid != spare.uid, again.excluded) == (True, frozenset())


async def test_a_spare_that_quota_refuses_harms_nothing(town: ControllerTown) -> None:
    await settle_town(town)
    await town.run_pods()
    await town.report(milestones=[wire.Milestone(kind=wire.STARTED, incarnation=1)])
    town.kube.fail(ApiError(403, "Forbidden", "exceeded quota: chips"))
    await town.report(step=5)
    await town.clock.advance(1)
    assert spares(town) == []
    assert of(town, "SparesReady")["reason"] == "NotCreated"
    assert "exceeded quota" in of(town, "SparesReady")["message"]
    assert of(town, "Scheduled")["status"] == "True"
    await town.clock.advance(2 * RETRY_SECONDS[0])
    assert len(spares(town)) == 1


@pytest.fixture
async def warm(town: ControllerTown) -> ControllerTown:
    town.raw["spec"]["scheduling"]["spareMode"] = "Warm"
    await town.controller.stop_managing()
    town.kube.put("hatrainingjobs", NAMESPACE, town.raw)
    town.open()
    return town


async def test_a_warm_spare_becomes_the_lost_pod_as_it_is(warm: ControllerTown) -> None:
    spare = await holding(warm)
    made = len(warm.pods())
    await warm.report(wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=0, ranks=[0, 1], incarnation=1), step=5)
    taken = next(pod for pod in warm.pods() if pod.node_rank == 0 and pod.incarnation == 2)
    assert (taken.uid, taken.name, taken.role) == (spare.uid, spare.name, "rank")
    assert len(warm.pods()) == made - 1, "the lost pod has gone, none was made"
    warm.controller.apply_pod(taken)
    await settle_town(warm)
    told = [(pod.node_rank, pod.incarnation) for pod in warm.links[0].assignments[-1].pods]
    assert (0, 2) in told
    for kind in (wire.NAMED, wire.RESUMED, wire.RESULT):
        await warm.report(step=6, milestones=[wire.Milestone(kind=kind, incarnation=2, step=6)])
    (refilled,) = (pod for pod in warm.pods() if pod.is_spare_pod)
    assert refilled.name != taken.name
    assert warm.controller.state.phase is JobPhase.RUNNING


async def test_an_operator_that_starts_anew_knows_the_adopted(warm: ControllerTown) -> None:
    spare = await holding(warm)
    await warm.report(wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=0, ranks=[0, 1], incarnation=1), step=5)
    await warm.controller.stop_managing()
    warm.open()
    await settle_town(warm)
    mine = [pod.uid for pod in warm.pods() if pod.node_rank == 0 and not pod.deleting]
    assert mine == [spare.uid]


async def test_an_adoption_of_unknown_outcome_is_tried_again(warm: ControllerTown, monkeypatch: Any) -> None:
    """The server has patched the pod, and then says that it failed: another pod would be a second of its node rank."""
    spare, patch_object, failed = await holding(warm), warm.kube.patch_object, list[str]()

    async def patch_and_fail(resource: str, namespace: str, name: str, body: Any, **how: Any) -> Json:
        answer = await patch_object(resource, namespace, name, body, **how)
        if name == spare.name and not failed:
            failed.append(name)
            raise ApiError(500, "InternalError", "etcdserver: request timed out")
        return answer

    monkeypatch.setattr(warm.kube, "patch_object", patch_and_fail)
    await warm.report(wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=0, ranks=[0, 1], incarnation=1), step=5)
    await warm.clock.advance(2)
    assert failed
    assert [pod.uid for pod in warm.pods() if pod.node_rank == 0 and not pod.deleting] == [spare.uid]


async def test_a_cordon_right_after_an_adoption_undoes_nothing(warm: ControllerTown) -> None:
    """The watch has not shown the former spare in its new role yet, and spares are not held on cordoned nodes."""
    spare = await holding(warm)
    await warm.report(wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=0, ranks=[0, 1], incarnation=1), step=5)
    warm.nodes["node-6"] = replace(warm.nodes["node-6"], unschedulable=True)
    warm.controller.look_for_moves()
    await settle_town(warm)
    assert [pod.uid for pod in warm.pods() if pod.node_rank == 0 and not pod.deleting] == [spare.uid]


async def test_a_warm_spare_that_ends_is_made_later_each_time(warm: ControllerTown) -> None:
    spare = await holding(warm)
    await change(warm, spare.name, {}, {"phase": "Failed", "message": "no such file"})
    await warm.end_deleted_pods()
    assert spares(warm) == []
    await warm.clock.advance(RETRY_SECONDS[0] + 1)
    assert "no such file" in of(warm, "SparesReady")["message"]
    assert len(spares(warm)) == 1


async def test_a_sick_node_is_left_for_the_spare_alone(town: ControllerTown) -> None:
    spare = await holding(town)
    taken = {pod.node_name for pod in town.pods() if pod.is_rank_pod or pod.is_spare_pod}
    town.nodes = {name: node for name, node in town.nodes.items() if name in taken}
    sick = next(pod.node_name for pod in town.pods() if pod.node_rank == 1)
    fault = ClusterFact(f"node/{sick}/x", Source.DEVICE, FactKind.SUB_HEALTH, sick, code="c", level=Level.SUB_HEALTH)
    town.faults[sick] = [fault]
    town.sub_healthy.add(sick)
    town.controller.look_for_faults(frozenset({sick}))
    await settle_town(town)
    assert town.controller.state.phase is JobPhase.MIGRATING
    assert town.controller.state.places == {1: spare.node_name}


async def test_a_sick_node_is_held_again_once_it_is_well(town: ControllerTown) -> None:
    """Where no other node is free the spare waits for one: made on the sick one it would be given up at once."""
    spare = await holding(town)
    taken = {pod.node_name for pod in town.pods() if pod.is_rank_pod or pod.is_spare_pod}
    town.nodes = {name: node for name, node in town.nodes.items() if name in taken}
    town.sub_healthy.add("node-6")
    town.controller.look_for_moves()
    await settle_town(town)
    await town.end_deleted_pods()
    (waiting,) = (pod for pod in town.pods() if pod.is_spare_pod)
    assert waiting.uid != spare.uid
    assert "node-6" in waiting.excluded
    await change(town, waiting.name, {}, {"phase": "Pending", "conditions": [UNSCHEDULABLE]})
    await town.clock.advance(60)
    assert [pod.uid for pod in town.pods() if pod.is_spare_pod] == [waiting.uid], "it is not made again and again"
    town.sub_healthy.clear()
    town.controller.look_for_moves()
    await settle_town(town)
    await town.end_deleted_pods()
    (again,) = (pod for pod in town.pods() if pod.is_spare_pod)
    assert "node-6" not in again.excluded
