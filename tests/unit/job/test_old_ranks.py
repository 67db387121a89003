"""No rank of a new attempt is started while one of the attempt before may live, nor is a job let go with its pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from hajob.api.job import HATrainingJob
from hajob.job.policies.leaving_pods import GONE_SECONDS
from hajob.job.policies.start_gate import LOOK_SECONDS
from hajob.plan import events
from hajob.plan.fencing import FENCE_SECONDS
from hajob.plan.state import JobPhase
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.node import OUT_OF_SERVICE, Taint
from hajob.sources.pod import PodView, pod_view_of
from tests.rigs.job_controller import NAMESPACE, ControllerTown, settle_town
from tests.rigs.told_events import tell


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    await settle_town(made)
    await made.run_pods()
    yield made
    await made.controller.stop_managing()


async def show(town: ControllerTown) -> None:
    """What the watch tells of every pod."""
    stored = {pod.name: pod for pod in town.pods()}
    for pod in [*town.controller.snapshots.pods.all_pods()]:
        town.controller.apply_pod(stored.get(pod.name, pod), deleted=pod.name not in stored)
    for pod in stored.values():
        town.controller.apply_pod(pod)
    await settle_town(town)


def ended(town: ControllerTown, *pods: PodView) -> None:
    """The kubelet has ended their containers and lets them go."""
    for pod in pods:
        del town.kube.objects["pods", NAMESPACE, pod.name]


async def new_coordinator_runs(town: ControllerTown) -> None:
    (pod,) = [pod for pod in town.pods() if pod.role == "coordinator" and pod.incarnation > 1]
    body = town.kube.objects["pods", NAMESPACE, pod.name]
    body["spec"]["nodeName"] = "node-5"
    body["status"] = {"phase": "Running", "podIP": "127.0.9.9"}
    town.controller.apply_pod(pod_view_of(body))
    await settle_town(town)


async def restarted(town: ControllerTown) -> list[PodView]:
    """The job starts anew, its new coordinator is dialled; the old rank pods, which are asked to go."""
    old = [pod for pod in town.pods() if pod.role == "rank"]
    tell(town, events.RestartRequested())
    await town.clock.advance(1.0)
    await new_coordinator_runs(town)
    await show(town)
    return old


def told(town: ControllerTown) -> list[int]:
    """Actions that the new coordinator was told."""
    return [order.action for order in town.links[-1].orders]


def running(town: ControllerTown) -> str:
    return str(next(each["message"] for each in town.status()["conditions"] if each["type"] == "Running"))


async def node_is(town: ControllerTown, name: str, **fields: object) -> None:
    """As the core shows it."""
    town.nodes[name] = replace(town.nodes[name], **fields)  # type: ignore[arg-type]
    town.controller.look_for_stranded(name)
    await settle_town(town)
    await show(town)


async def restarted_beside_a_dead_node(town: ControllerTown) -> list[PodView]:
    """The pods of the attempt before, of which the first is left on a node that is away."""
    old = await restarted(town)
    ended(town, *old[1:])
    await show(town)
    await node_is(town, old[0].node_name, ready=False)
    await town.clock.advance(5.0)
    await show(town)
    return old


async def test_a_start_waits_until_old_pods_are_gone(town: ControllerTown) -> None:
    old = await restarted(town)
    assert town.links[-1].address.startswith("127.0.9.9")
    assert all(pod_view_of(town.kube.objects["pods", NAMESPACE, pod.name]).deleting for pod in old)
    await town.clock.advance(4.0)
    assert told(town) == []
    assert "pods of the previous attempt to end" in running(town)
    ended(town, *old[1:])
    await show(town)
    assert told(town) == []
    ended(town, old[0])
    await show(town)
    assert told(town) == [wire.START]


async def test_a_start_that_is_held_waits_for_them_as_well(town: ControllerTown) -> None:
    """It goes on beside a fault that `recovery.mode` holds back."""
    old = await restarted(town)
    stored = town.stored()
    stored["spec"]["recovery"] = {"mode": "Observe"}
    stored["metadata"]["generation"] += 1
    town.controller.apply_job(HATrainingJob.from_object(stored))
    taken = wire.Fact(id="port", kind=wire.PORT_TAKEN, node_rank=1, incarnation=town.controller.state.base)
    await town.report(taken)
    assert town.controller.state.phase is JobPhase.HELD
    await show(town)
    assert told(town) == []
    ended(town, *old)
    await show(town)
    assert told(town) == [wire.START]


async def test_a_pod_whose_containers_have_ended_is_not_awaited(town: ControllerTown) -> None:
    old = await restarted(town)
    for pod in old:
        town.kube.objects["pods", NAMESPACE, pod.name]["status"]["phase"] = "Failed"
    await show(town)
    assert told(town) == [wire.START]


async def test_a_pod_stuck_on_a_node_that_is_there_is_awaited(town: ControllerTown) -> None:
    old = await restarted(town)
    await town.clock.advance(3600.0)  # twice as long as a start may take
    await show(town)
    assert (told(town), town.controller.state.phase) == ([], JobPhase.RESTARTING)
    assert "pods of the previous attempt to end" in running(town)
    assert town.events.reasons.count("WaitingForOldPods") == 1
    ended(town, *old)
    await show(town)
    assert told(town) == [wire.START]


async def test_ranks_on_a_dead_node_are_outlived(town: ControllerTown) -> None:
    old = await restarted_beside_a_dead_node(town)
    assert old[0].name not in {pod.name for pod in town.pods()}  # deleted without grace
    await town.clock.advance(FENCE_SECONDS - 10.0)
    assert told(town) == []
    assert f"may still run on {old[0].node_name}" in running(town)
    await town.clock.advance(10.0)
    assert told(town) == [wire.START]


def hold_by_a_finalizer(town: ControllerTown, *pods: PodView) -> None:
    """Somebody else wants to see these pods before they go, and never does."""
    for pod in pods:
        town.kube.objects["pods", NAMESPACE, pod.name]["metadata"]["finalizers"] = ["example.com/accounting"]


async def test_a_finalizer_on_a_dead_nodes_pod_holds_no_start_up(town: ControllerTown) -> None:
    hold_by_a_finalizer(town, *[pod for pod in town.pods() if pod.role == "rank"][:1])
    old = await restarted_beside_a_dead_node(town)
    assert [pod.left_over for pod in town.pods() if pod.name == old[0].name] == [True]
    await town.clock.advance(FENCE_SECONDS - 10.0)
    await show(town)
    assert told(town) == []
    assert f"may still run on {old[0].node_name}" in running(town)
    await town.clock.advance(10.0)
    assert told(town) == [wire.START]


async def test_the_word_of_a_person_ends_the_wait(town: ControllerTown) -> None:
    old = await restarted_beside_a_dead_node(town)
    assert told(town) == []
    await node_is(town, old[0].node_name, taints=(Taint(OUT_OF_SERVICE, "NoExecute", "nodeshutdown"),))
    await town.clock.advance(LOOK_SECONDS)
    assert told(town) == [wire.START]


async def test_the_next_leader_waits_as_long(town: ControllerTown) -> None:
    await restarted_beside_a_dead_node(town)
    await town.controller.stop_managing()
    town.open()
    await settle_town(town)
    await town.clock.advance(5.0)
    assert told(town) == []
    await town.clock.advance(FENCE_SECONDS)
    assert told(town) == [wire.START]


async def test_the_coordinator_before_hears_of_the_start_at_once(town: ControllerTown) -> None:
    tell(town, events.RestartRequested())
    assert town.links[0].orders[-1].action == wire.START  # ends what it runs


async def test_who_takes_over_a_training_is_told_at_once(town: ControllerTown) -> None:
    await town.report(milestones=[wire.Milestone(kind=wire.STARTED, incarnation=1)])
    await town.report(step=5)
    tell(town, events.RanksUnreachable(nodes=("node-1",)))
    await town.clock.advance(4.0)  # the next leader reads of it
    await town.controller.stop_managing()
    town.open()
    await settle_town(town)
    assert town.controller.state.unreachable
    assert told(town)[-1:] == [wire.START]


async def test_a_deleted_job_is_kept_until_its_pods_are_gone(town: ControllerTown) -> None:
    release = asyncio.create_task(town.controller.release_job())
    await town.clock.advance(2.0)
    pods = town.pods()
    assert pods
    assert all(pod.deleting for pod in pods)
    again = asyncio.create_task(town.controller.release_job())  # kopf shows it once more
    ended(town, *pods[1:])
    await show(town)
    await town.clock.advance(GONE_SECONDS + 2)
    assert not release.done()
    assert not again.done()
    assert town.events.reasons.count("PodsNotGone") == 1
    ended(town, pods[0])
    await show(town)
    await town.clock.advance(2.0)
    assert release.done()
    assert again.done()


@pytest.mark.parametrize("held", [False, True])
async def test_a_deleted_job_leaves_a_dead_node_behind(town: ControllerTown, held: bool) -> None:
    pods = town.pods()
    if held:
        hold_by_a_finalizer(town, pods[0])
    release = asyncio.create_task(town.controller.release_job())
    await town.clock.advance(2.0)
    ended(town, *pods[1:])
    await show(town)
    await node_is(town, pods[0].node_name, ready=False)
    await town.clock.advance(2.0)
    await show(town)
    await town.clock.advance(2.0)
    assert release.done()
    assert [pod.left_over for pod in town.pods()] == [True] * held
    assert town.controller.state.phase is JobPhase.DELETED
