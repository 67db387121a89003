"""Pods that the API server does not create: a quota that is full, a policy that refuses, and what goes on beside it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.api.job import HATrainingJob
from hajob.job.status.journal import read_journal
from hajob.kube.client import ApiError
from hajob.plan import events
from hajob.plan.state import JobPhase
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.pod import pod_view_of
from tests.rigs.job_controller import NAMESPACE, ControllerTown, PodQuota, death_of_rank, settle_town
from tests.rigs.metrics import sample
from tests.rigs.told_events import tell


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    yield made
    await made.controller.stop_managing()


def condition(town: ControllerTown, type_: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in town.status()["conditions"] if one["type"] == type_)
    return found


def ranks(town: ControllerTown) -> list[int]:
    return sorted(pod.node_rank for pod in town.pods() if pod.role == names.ROLE_RANK and not pod.deleting)


async def test_a_job_over_quota_waits_with_the_servers_words(town: ControllerTown) -> None:
    quota = PodQuota(town)
    await quota.allow(0)
    await settle_town(town)
    scheduled = condition(town, "Scheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "QuotaExceeded")
    assert "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0" in scheduled["message"]
    assert condition(town, "Accepted")["status"] == "True"
    await town.clock.advance(200.0)
    assert town.events.reasons.count("QuotaExceeded") == 1
    await quota.allow(5)
    await town.clock.advance(30.0)
    assert ranks(town) == [0, 1, 2, 3]
    await settle_town(town)
    assert condition(town, "Scheduled")["reason"] != "QuotaExceeded"


def refused_by_quota() -> float:
    """Return how many pods a quota has refused so far."""
    return sample("hajob_pods_not_created_total", reason="QuotaExceeded")


async def test_a_refused_pod_is_asked_for_less_and_less_often(town: ControllerTown) -> None:
    await PodQuota(town).allow(0)
    first = refused_by_quota()
    await town.clock.advance(30.0)
    soon = refused_by_quota() - first
    await town.clock.advance(300.0)
    assert 4 <= soon <= 10
    assert 10 <= refused_by_quota() - first - soon <= 21


async def test_a_running_job_that_fills_its_quota_gets_a_new_leader(town: ControllerTown) -> None:
    await town.train()
    await PodQuota(town).allow(5)
    await town.controller.stop_managing()
    create = town.kube.create_object

    async def refuse(*arguments: Any, dry_run: bool = False) -> Any:
        assert not dry_run, "its pods are there"
        return await create(*arguments)

    town.kube.create_object = refuse  # type: ignore[method-assign, assignment]
    town.open()
    await settle_town(town)
    assert condition(town, "Accepted")["status"] == "True"
    assert len(town.links) == 2


async def test_a_replacement_in_a_full_quota_comes_after_the_lost_pod(town: ControllerTown) -> None:
    await town.train()
    await PodQuota(town).allow(5)
    await town.report(wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=0, ranks=[0, 1], incarnation=1), step=5)
    await town.clock.advance(1.0)
    assert ranks(town) == [0, 1, 2, 3]
    assert {pod.node_rank: pod.incarnation for pod in town.pods() if not pod.deleting}[0] == 2


async def test_a_restart_in_a_full_quota_does_not_deadlock(town: ControllerTown) -> None:
    await town.train()
    await PodQuota(town).allow(5)
    await town.report(death_of_rank(2), step=5)
    failed = wire.Milestone(kind=wire.RESULT, incarnation=2, result_code=499, strategy="recover")
    await town.report(milestones=[failed], step=5, incarnation=2)
    assert town.controller.state.phase is JobPhase.RESTARTING
    for _ in range(3):
        for (resource, _, _), body in list(town.kube.objects.items()):  # the kubelets end them
            if resource == "pods" and "deletionTimestamp" in body["metadata"]:
                await town.kube.delete_object("pods", NAMESPACE, body["metadata"]["name"], grace_seconds=0)
        await town.clock.advance(31.0)
    assert ranks(town) == [0, 1, 2, 3]


async def test_a_delete_that_fails_keeps_no_pod_from_being_made(town: ControllerTown) -> None:
    await town.train()
    refused = ApiError(500, "InternalError", "no")

    async def delete(*_: object, **__: object) -> None:
        raise refused

    town.kube.delete_object = delete  # type: ignore[method-assign]
    await town.report(wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=0, ranks=[0, 1], incarnation=1), step=5)
    assert 2 in [pod.incarnation for pod in town.pods() if pod.node_rank == 0]


async def test_a_policy_that_refuses_a_replacement_is_told_once(town: ControllerTown) -> None:
    await town.train()
    create = town.kube.create_object

    async def refuse(resource: str, *arguments: Any, **more: Any) -> Any:
        if resource == "pods":
            raise ApiError(403, "Forbidden", "violates PodSecurity")
        return await create(resource, *arguments, **more)

    town.kube.create_object = refuse  # type: ignore[method-assign]
    lost = next(pod for pod in town.pods() if pod.node_rank == 0)
    await town.report(wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=0, ranks=[0, 1], incarnation=1), step=5)
    await town.clock.advance(20.0)
    assert lost.name not in {pod.name for pod in town.pods()}
    assert condition(town, "Scheduled")["reason"] == "PodsNotCreated"
    assert condition(town, "Scheduled")["message"] == "violates PodSecurity"
    assert town.events.reasons.count("PodsNotCreated") == 1


class RefusingTown(ControllerTown):
    """A world whose server cannot say whether it accepts pods, for so many questions."""

    AWAY = 'failed calling webhook "mpod.kb.io": context deadline exceeded'

    def __init__(self, refusals: int) -> None:
        super().__init__()
        create, left = self.kube.create_object, [ApiError(500, "InternalError", self.AWAY)] * refusals

        async def refuse(resource: str, *arguments: Any, **more: Any) -> Any:
            if resource == "pods" and more.get("dry_run") and left:
                raise left.pop()
            return await create(resource, *arguments, **more)

        self.kube.create_object = refuse  # type: ignore[method-assign]


async def test_a_webhook_that_fails_before_a_start_is_told() -> None:
    """Nothing is started, and who is in the way is named."""
    town = RefusingTown(refusals=3)
    await town.clock.advance(0.5)
    assert town.pods() == []
    told = condition(town, "Scheduled")
    assert (told["reason"], told["message"]) == ("PodsNotCreated", town.AWAY)
    await town.clock.advance(60.0)
    assert ranks(town) == [0, 1, 2, 3]
    assert condition(town, "Scheduled")["reason"] != "PodsNotCreated"
    await town.controller.stop_managing()


async def test_a_secret_over_quota_is_told(town: ControllerTown) -> None:
    create = town.kube.create_object

    async def refuse(resource: str, *arguments: Any, **more: Any) -> Any:
        if resource == "secrets":
            raise ApiError(403, "Forbidden", 'secrets "x" is forbidden: exceeded quota: q')
        return await create(resource, *arguments, **more)

    town.kube.create_object = refuse  # type: ignore[method-assign]
    await town.clock.advance(5.0)
    assert condition(town, "Scheduled")["reason"] == "QuotaExceeded"
    assert town.events.reasons.count("QuotaExceeded") == 1


# ---------------------------------------------------------------------------------------- no node, and what is taken


FULL = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/6 nodes are available: 6 Insufficient huawei.com/Ascend910.",
}


async def fill_up(town: ControllerTown, node_rank: int = 3) -> dict[str, Any]:
    """Every pod has a node but this one, for which the scheduler finds none; it as it is."""
    await settle_town(town)
    last = next(
        body
        for (kind, _, _), body in town.kube.objects.items()
        if kind == "pods" and pod_view_of(body).node_rank == node_rank and not pod_view_of(body).deleting
    )
    last["status"] = {"phase": "Pending", "conditions": [FULL], "podIP": ""}
    await town.run_pods()
    town.controller.apply_pod(pod_view_of(last))
    await town.clock.advance(4.0)
    return last


async def test_a_pod_without_a_node_stops_the_start_up_clock(town: ControllerTown) -> None:
    last = await fill_up(town)
    scheduled = condition(town, "Scheduled")
    assert scheduled["reason"] == "WaitingForCapacity"
    assert "1 pod without a node: of 6 nodes 6 lack huawei.com/Ascend910" in scheduled["message"]
    assert "waiting since 20" in scheduled["message"]
    await town.clock.advance(20_000.0)
    assert condition(town, "Failed")["status"] == "False"
    assert town.events.reasons.count("WaitingForCapacity") == 1
    last["spec"]["nodeName"] = "node-5"
    last["status"] = {"phase": "Running", "podIP": "127.0.9.9"}
    town.controller.apply_pod(pod_view_of(last))
    await town.clock.advance(4.0)
    assert condition(town, "Scheduled")["reason"] == "AllPlaced"
    await town.clock.advance(1801.0)
    assert town.controller.state.phase is JobPhase.FAILED
    assert condition(town, "Failed")["reason"] == "StartupDeadlineExceeded"


async def test_a_quota_that_is_full_stops_the_start_up_clock(town: ControllerTown) -> None:
    await PodQuota(town).allow(0)
    await town.clock.advance(4_000.0)
    assert town.controller.state.phase is JobPhase.PENDING
    await PodQuota(town).allow(5)
    await town.clock.advance(30.0)
    await town.run_pods()
    assert town.controller.state.waiting is None


async def test_a_quota_that_gets_room_is_used_at_once(town: ControllerTown) -> None:
    await PodQuota(town).allow(0)
    await town.clock.advance(300.0)
    tries = refused_by_quota()
    town.controller.handle_changed_quota()  # what changed need not be what the job lacks
    await town.clock.advance(0.6)
    assert refused_by_quota() == tries + 1
    await PodQuota(town).allow(5)
    for _ in range(20):
        town.controller.handle_changed_quota()
    await town.clock.advance(0.6)
    assert ranks(town) == [0, 1, 2, 3]


async def test_a_secret_over_quota_is_tried_again_at_once(town: ControllerTown) -> None:
    create, full = town.kube.create_object, True

    async def refuse(resource: str, namespace: str, body: Any, *, dry_run: bool = False) -> Any:
        if resource == "secrets" and full:
            raise ApiError(403, "Forbidden", "secrets is forbidden: exceeded quota: q")
        return await create(resource, namespace, body, dry_run=dry_run)

    town.kube.create_object = refuse  # type: ignore[method-assign]
    await town.clock.advance(300.0)
    assert not town.pods()
    full = False
    town.controller.handle_changed_quota()
    await town.clock.advance(0.6)
    assert ranks(town) == [0, 1, 2, 3]


async def test_a_changed_quota_is_nothing_to_who_waits_for_none(town: ControllerTown) -> None:
    await settle_town(town)
    town.controller.handle_changed_quota()
    await settle_town(town)
    assert ranks(town) == [0, 1, 2, 3]


async def test_an_edited_wait_ends_the_job_by_name(town: ControllerTown) -> None:
    await fill_up(town)
    await town.clock.advance(5.0)
    await town.controller.stop_managing()
    town.stored()["spec"]["scheduling"] = {"capacityTimeoutSeconds": 60}  # while no operator looked
    town.stored()["metadata"]["generation"] = 2
    town.open()
    await town.clock.advance(120.0)
    assert condition(town, "Failed")["reason"] == "CapacityTimeoutExceeded"
    assert condition(town, "Scheduled")["reason"] != "QuotaExceeded"


async def test_a_pod_preempted_while_starting_comes_anew_alone(town: ControllerTown) -> None:
    await fill_up(town)
    before = {pod.node_rank: pod.uid for pod in town.pods()}
    taken = next(
        body for (kind, _, _), body in town.kube.objects.items() if kind == "pods" and pod_view_of(body).node_rank == 1
    )
    writes = len(town.kube.writes)
    del town.kube.objects["pods", NAMESPACE, taken["metadata"]["name"]]
    town.controller.apply_pod(pod_view_of(taken), deleted=True)
    await town.clock.advance(1.0)
    anew = {pod.node_rank: pod.uid for pod in town.pods() if not pod.deleting}
    assert [rank for rank in anew if anew[rank] != before[rank]] == [1]
    assert len(town.kube.writes) - writes <= 12
    assert town.controller.state.attempt == 1


async def test_a_failed_job_is_revived_and_tells_it(town: ControllerTown) -> None:
    await town.train()
    tell(town, events.RestartRequested())
    await settle_town(town)
    tell(town, events.DeadlineReached(name="Recovery"))
    failed = wire.Milestone(kind=wire.RESULT, incarnation=2, result_code=499, strategy="dump")
    await town.report(milestones=[failed], step=5, incarnation=2)
    assert town.controller.state.phase is JobPhase.RESTARTING
    tell(town, events.Unworkable(reason="ImageUnusable", message="no mindio_ttp"))
    await settle_town(town)
    assert condition(town, "Failed")["status"] == "True"
    raw = town.stored()
    raw["spec"]["restartRequestTime"] = "2026-11-22T12:00:00Z"
    raw["metadata"]["generation"] = 7
    town.controller.apply_job(HATrainingJob.from_object(raw))
    await town.clock.advance(40.0)
    await town.run_pods()
    assert condition(town, "Failed")["status"] == "False"
    assert "completionTime" not in town.status()
    assert ranks(town) == [0, 1, 2, 3]
    assert read_journal(town.status()["journal"]).journal.failed_message == ""


async def test_a_claim_that_comes_after_its_job_is_looked_at(town: ControllerTown) -> None:
    """Of a directory with both, kubectl may apply the job first."""
    await town.controller.stop_managing()
    spec = town.stored()["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": one["name"], "persistentVolumeClaim": {"claimName": "ckpt"}} for one in spec["volumes"]]
    town.open()
    await settle_town(town)
    assert "ReadWriteOnce" not in condition(town, "Accepted")["message"]
    claim = {"metadata": {"name": "ckpt"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    town.kube.put("persistentvolumeclaims", NAMESPACE, claim)
    await town.run_pods()
    await town.clock.advance(4.0)
    assert "PersistentVolumeClaim ckpt" in condition(town, "Accepted")["message"]
