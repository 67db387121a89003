"""The work of a planned pause: pods on the chosen nodes once the ranks wait, and what follows from how they end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from e2e.memory_api.requests import Request, requests
from hajob.api import constants as names
from hajob.api.job import HATrainingJob
from hajob.api.quarantine import NodeQuarantine
from hajob.faults.node_quarantine import node_quarantine
from hajob.kube.client import ApiError
from hajob.plan.state import JobPhase
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.pod import PodView, pod_view_of
from tests.rigs.job_controller import NAMESPACE, ControllerTown, settle_town

TEMPLATE = {"spec": {"containers": [{"name": "test", "image": "tests:1", "command": ["test-the-chips"]}]}}


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    yield made
    await made.controller.stop_managing()


async def asks(town: ControllerTown, **pause: Any) -> None:
    """The spec asks for a pause, or takes it back (nothing given)."""
    raw = town.kube.objects[names.PLURAL, NAMESPACE, "quickstart"]
    raw["spec"]["pause"] = {"requestTime": "2026-11-22T10:00:00Z", **pause} if pause else None
    raw["metadata"]["generation"] += 1
    town.controller.apply_job(HATrainingJob.from_object(raw))
    await settle_town(town)


async def still(town: ControllerTown) -> None:
    """Every rank waits."""
    await town.report(step=6, milestones=[wire.Milestone(kind=wire.STOPPED, incarnation=2)])
    await settle_town(town)


def hooks(town: ControllerTown) -> list[PodView]:
    return sorted((pod for pod in town.pods() if pod.is_hook_pod), key=lambda pod: pod.node_rank)


async def end(town: ControllerTown, hook: PodView, code: int) -> None:
    """The work on a node ends."""
    body = town.kube.objects["pods", NAMESPACE, hook.name]
    ended = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
    statuses = [{"name": names.HOOK_CONTAINER, "state": ended}]
    body["status"] = {"phase": "Failed" if code else "Succeeded", "containerStatuses": statuses}
    town.controller.apply_pod(pod_view_of(body))
    await settle_town(town)


def orders(town: ControllerTown) -> list[int]:
    return [order.action for order in town.links[0].orders]


async def working(town: ControllerTown, **pause: Any) -> list[PodView]:
    """A job that trained and waits while its nodes are tested; the pods of the test."""
    await town.train()
    await asks(town, template=TEMPLATE, **pause)
    assert hooks(town) == [], "no work is done beside a training that still steps"
    await still(town)
    await town.run_pods()
    return hooks(town)


async def test_work_runs_on_every_node_and_then_the_training_goes_on(town: ControllerTown) -> None:
    found = await working(town)
    ranks = {pod.node_rank: pod.node_name for pod in town.pods() if pod.is_rank_pod}
    bodies = [town.kube.objects["pods", NAMESPACE, hook.name] for hook in found]
    assert [hook.node_rank for hook in found] == [0, 1, 2, 3]
    assert [body["metadata"]["name"].rsplit("-", 1)[0] for body in bodies] == [f"quickstart-hook-{n}" for n in range(4)]
    told = [{one["name"]: one["value"] for one in body["spec"]["containers"][0]["env"]} for body in bodies]
    assert [env["HAJOB_NODE_NAME"] for env in told] == [ranks[rank] for rank in range(4)]
    for hook in found:
        assert orders(town)[-1] == wire.PAUSE
        await end(town, hook, 0)
    assert orders(town)[-1] == wire.CONTINUE
    result = wire.Milestone(kind=wire.RESULT, incarnation=2, strategy="continue")
    await town.report(step=7, milestones=[result])
    assert town.controller.state.phase is JobPhase.RUNNING
    assert len(hooks(town)) == 4, "their logs can still be read"
    await town.clock.advance(60)
    assert orders(town)[-1] == wire.CONTINUE, "one request is one pause"
    incident = town.status()["incidents"][0]
    assert (incident["action"], incident["outcome"]) == ("Pause", "Recovered")
    scheduled = next(one for one in town.status()["conditions"] if one["type"] == "Scheduled")
    assert scheduled["status"] == "True"


async def test_a_node_that_fails_is_quarantined_and_left(town: ControllerTown) -> None:
    found = await working(town)
    for hook, code in zip(found, (0, 2, 0, 1), strict=True):
        await end(town, hook, code)
    assert orders(town)[-1] == wire.REPLACE
    assert list(town.links[0].orders[-1].replaced_nodes) == [1]
    kept_out = town.kube.objects[names.QUARANTINES, "", town.controller.snapshots.pods.pods[found[1].name].node_name]
    assert (kept_out["spec"]["source"], kept_out["spec"]["reason"]) == ("Admin", "PauseHookFailed")
    cause = town.status()["incidents"][0]["cause"]
    assert (cause["code"], cause["source"]) == ("PauseHookFailed", "Pod")


@pytest.mark.parametrize(
    ("spec", "state"),
    [
        ({"expireTime": "2026-11-20T10:00:00Z"}, "Over"),
        ({"releaseTime": "2026-11-20T10:00:00Z", "faults": ["chip-1/c"]}, "Released"),
    ],
)
async def test_a_node_that_fails_is_quarantined_once_more(town: ControllerTown, spec: Any, state: str) -> None:
    """Its last quarantine is kept as a memory of offences; an admin's release counts for what stood then."""
    found = await working(town)
    node = hooks(town)[1].node_name
    before = node_quarantine({"nodeName": node, "source": "Device", "reason": "Separate", **spec}, "")
    town.kube.put(names.QUARANTINES, "", {**before, "status": {"state": state}})
    for hook, code in zip(found, (0, 2, 0, 0), strict=True):
        await end(town, hook, code)
    kept_out = NodeQuarantine.from_object(town.kube.objects[names.QUARANTINES, "", node])
    assert kept_out.keeps_out(datetime.now(UTC))
    assert (kept_out.spec.source, kept_out.spec.reason, kept_out.spec.faults) == ("Admin", "PauseHookFailed", ())


async def test_an_admin_may_let_the_node_in_again_at_once(town: ControllerTown) -> None:
    found = await working(town)
    for hook, code in zip(found, (0, 2, 0, 0), strict=True):
        await end(town, hook, code)
    node = hooks(town)[1].node_name
    for quarantined in ({node}, set[str]()):
        town.quarantine(*quarantined)
        town.controller.handle_changed_places()
        await settle_town(town)
    del town.kube.objects[names.QUARANTINES, "", node]
    town.controller.handle_changed_places()
    await town.clock.advance(60)
    assert (names.QUARANTINES, "", node) not in town.kube.objects


async def test_work_is_done_on_chosen_nodes_only(town: ControllerTown) -> None:
    await town.train()
    node = next(pod.node_name for pod in town.pods() if pod.node_rank == 2)
    await asks(town, template=TEMPLATE, nodeNames=[node, "node-that-is-not-there"])
    await still(town)
    assert [hook.node_rank for hook in hooks(town)] == [2]


async def test_work_that_the_server_refuses_ends_the_pause(town: ControllerTown) -> None:
    await town.train()
    refusal = ApiError(403, "Forbidden", "no pods for you")

    def made(request: Request) -> bool:
        return requests("pods", "POST")(request) and not request.dry_run

    town.kube.server.faults.refuse(refusal, matching=made, times=None)
    await asks(town, template=TEMPLATE)
    await still(town)
    assert orders(town)[-1] == wire.CONTINUE


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_work_is_asked_for_again_where_the_server_fails(town: ControllerTown, status: int) -> None:
    await town.train()

    def made(request: Request) -> bool:
        return requests("pods", "POST")(request) and not request.dry_run

    town.kube.server.faults.refuse(ApiError(status, "InternalError", "etcdserver: request timed out"), matching=made)
    await asks(town, template=TEMPLATE)
    await still(town)
    await town.clock.advance(3)
    assert orders(town)[-1] == wire.PAUSE
    assert [hook.node_rank for hook in hooks(town)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ({"spec": {"containers": [{"name": "test", "image": "t", "comand": []}]}}, "pause.template.spec.containers[0]"),
        ({"spec": {"containers": [{"name": "test"}]}}, "spec.pause.template.spec.containers[0].image: Required value"),
        ({"spec": {"containers": [{"name": "a", "image": "t", "env": 5}]}}, "spec.pause.template"),
    ],
)
async def test_no_training_is_held_for_work_that_is_no_pod(town: ControllerTown, template: Any, told: str) -> None:
    await town.train()
    before = orders(town)
    await asks(town, template=template)
    assert (orders(town), town.controller.state.phase) == (before, JobPhase.RUNNING)
    assert town.events.reasons[-1] == "PauseRefused"
    assert told in town.events.messages[-1]
    await asks(town, template=TEMPLATE, requestTime="2026-11-22T11:00:00Z")
    assert orders(town)[-1] == wire.PAUSE, "the next request is another one"


async def test_without_work_the_pause_lasts_until_it_is_taken_back(town: ControllerTown) -> None:
    await town.train()
    await asks(town, timeoutSeconds=300)
    await still(town)
    await town.clock.advance(200)
    assert (orders(town)[-1], hooks(town)) == (wire.PAUSE, [])
    running = next(one for one in town.status()["conditions"] if one["type"] == "Running")
    assert (running["status"], running["reason"]) == ("False", "Paused")
    await asks(town)
    assert orders(town)[-1] == wire.CONTINUE


async def test_a_new_operator_goes_on_with_the_work(town: ControllerTown) -> None:
    found = await working(town)
    await end(town, found[0], 0)
    await town.controller.stop_managing()
    town.open()
    await settle_town(town)
    assert len(hooks(town)) == 4
    for hook in found[1:]:
        await end(town, hook, 0)
    await town.report(step=6)
    assert town.links[-1].orders[-1].action == wire.CONTINUE


async def test_a_suspend_ends_the_pause_first(town: ControllerTown) -> None:
    found = await working(town)
    raw = town.kube.objects[names.PLURAL, NAMESPACE, "quickstart"]
    raw["spec"]["suspend"] = True
    raw["metadata"]["generation"] += 1
    town.controller.apply_job(HATrainingJob.from_object(raw))
    await settle_town(town)
    assert (orders(town)[-1], town.controller.state.phase) == (wire.CONTINUE, JobPhase.PAUSED)
    assert all(pod.deleting for pod in hooks(town)), found
    await town.report(step=7, milestones=[wire.Milestone(kind=wire.RESULT, incarnation=2, strategy="continue")])
    assert town.controller.state.phase is JobPhase.SAVING


async def tested_by_taskd(town: ControllerTown) -> str:
    """A job whose ranks wait while TaskD tests their chips; what TaskD was asked for."""
    await town.train()
    await asks(town, stressTest={"operations": ["AiCore"]})
    assert town.links[0].assignments[-1].pause_work == "", "no work is done beside a training that still steps"
    await still(town)
    return town.links[0].assignments[-1].pause_work


async def said_by_taskd(town: ControllerTown, work: str, **codes: str) -> None:
    """TaskD has done the work; `codes` by rank, as r3."""
    by_rank = {rank[1:]: code for rank, code in codes.items()}
    asked = json.loads(work)
    result = json.dumps({"request": asked["request"], "nodes": asked["nodes"], "codes": by_rank})
    await town.report(step=6, pause_result=result, hello=False)


async def test_taskd_does_the_work_and_the_training_goes_on(town: ControllerTown) -> None:
    work = await tested_by_taskd(town)
    assert set(json.loads(work)["stress"]) == {str(rank) for rank in range(8)}
    assert hooks(town) == [], "TaskD does it in the place of pods"
    assert orders(town)[-1] == wire.PAUSE
    await said_by_taskd(town, work, r0="0", r3="1")
    assert orders(town)[-1] == wire.CONTINUE
    assert town.links[0].assignments[-1].pause_work == ""


async def test_a_node_that_taskd_finds_bad_is_quarantined(town: ControllerTown) -> None:
    work = await tested_by_taskd(town)
    node = next(pod.node_name for pod in town.pods() if pod.is_rank_pod and pod.node_rank == 1)
    await said_by_taskd(town, work, r0="3", r3="2")
    assert orders(town)[-1] == wire.REPLACE
    assert list(town.links[0].orders[-1].replaced_nodes) == [1]
    kept_out = town.kube.objects[names.QUARANTINES, "", node]
    assert (kept_out["spec"]["source"], kept_out["spec"]["reason"]) == ("Admin", "PauseHookFailed")
    assert "stress test" in kept_out["spec"]["message"]
