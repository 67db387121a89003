"""A job from its last step to its end, as its controller sees it: nothing is started again, and the chips come back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.pod import pod_view_of
from tests.rigs.job_controller import NAMESPACE, ControllerTown, death_of_rank, end_pods, settle_town


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    yield made
    await made.controller.stop_managing()


def nodes(*, finished: tuple[int, ...]) -> list[wire.NodeState]:
    """Four nodes with two ranks each; those of some have ended with 0."""
    return [
        wire.NodeState(
            node_rank=node,
            connected=True,
            ranks=[
                wire.RankState(rank=rank, phase=wire.FINISHED if node in finished else wire.LINKED)
                for rank in (2 * node, 2 * node + 1)
            ],
        )
        for node in range(4)
    ]


async def ends(town: ControllerTown, *, saved: bool = False, finished: tuple[int, ...] = (), **more: Any) -> None:
    """The coordinator reports that the last step has ended."""
    end = wire.FINAL_CHECKPOINT if saved else wire.LAST_STEP_ENDED
    await town.report(step=40, end=end, nodes=nodes(finished=finished), **more)


def rank_pods(town: ControllerTown) -> dict[int, tuple[str, dict[str, Any]]]:
    """Node rank to name and body of its pod."""
    bodies = [body for (kind, _, _), body in town.kube.objects.items() if kind == "pods"]
    return {
        pod_view_of(body).node_rank: (pod_view_of(body).name, body)
        for body in bodies
        if pod_view_of(body).role == names.ROLE_RANK
    }


async def goes(town: ControllerTown, node_rank: int) -> None:
    """A rank pod is deleted."""
    name, body = rank_pods(town)[node_rank]
    del town.kube.objects["pods", NAMESPACE, name]
    town.controller.apply_pod(pod_view_of(body), deleted=True)
    await settle_town(town)


async def next_operator(town: ControllerTown) -> None:
    """Another operator leads, and is shown the pods that there are."""
    await town.clock.advance(3.1)  # so that all is written
    await town.controller.stop_managing()
    town.open()
    await settle_town(town)


@pytest.mark.parametrize("another_leads", [False, True])
async def test_a_pod_that_has_finished_may_go_while_another_saves(town: ControllerTown, *, another_leads: bool) -> None:
    await town.train()
    await ends(town, finished=(1, 2, 3))
    if another_leads:
        await next_operator(town)
    await goes(town, 1)
    if another_leads:
        await next_operator(town)
    await ends(town, finished=(2, 3))
    assert (town.controller.state.phase, town.controller.state.incident) == ("Ending", None)
    assert sorted(rank_pods(town)) == [0, 2, 3], "nothing is made anew"
    assert town.status()["summary"]["state"] == "Ending"
    await town.report(milestones=[wire.Milestone(kind=wire.FINISHED_ALL, incarnation=1)])
    assert town.status()["summary"]["state"] == "Complete"


async def test_deaths_after_the_final_checkpoint_restart_nothing(town: ControllerTown) -> None:
    await town.train()
    await ends(town)
    await town.report(*(death_of_rank(rank, f"exit-{rank}") for rank in range(8)), step=40, end=wire.LAST_STEP_ENDED)
    assert town.controller.state.phase == "Ending"
    await ends(town, saved=True)
    assert town.controller.state.incident is None
    await town.report(end=wire.FINAL_CHECKPOINT, milestones=[wire.Milestone(kind=wire.FINISHED_ALL, incarnation=1)])
    await town.clock.advance(3.1)
    assert town.status()["summary"]["state"] == "Complete"
    assert town.status().get("restarts", {"infrastructure": 0, "program": 0}) == {"infrastructure": 0, "program": 0}
    idle = [body["spec"].get("activeDeadlineSeconds") for _, body in rank_pods(town).values()]
    assert idle == [1, 1, 1, 1], "their start scripts wait for ranks that nobody starts"


async def test_a_second_container_gives_its_chips_back(town: ControllerTown) -> None:
    await town.train()
    await ends(town, finished=(0, 1, 2, 3))
    await town.report(
        nodes=nodes(finished=(0, 1, 2, 3)), milestones=[wire.Milestone(kind=wire.FINISHED_ALL, incarnation=1)]
    )
    await settle_town(town)
    pods = rank_pods(town)
    assert [body["spec"].get("activeDeadlineSeconds") for _, body in pods.values()] == [None] * 4, (
        "scripts may go on after their ranks"
    )
    name, body = pods[2]
    body["status"]["containerStatuses"] = [{"name": "trainer", "state": {"terminated": {"exitCode": 0}}}]
    town.controller.apply_pod(pod_view_of(body))
    await settle_town(town)
    ended = {rank for rank, (_, each) in rank_pods(town).items() if each["spec"].get("activeDeadlineSeconds") == 1}
    assert ended == {2}
    assert ("pods", NAMESPACE, name) in town.kube.objects, "it stays, for its logs"


async def test_pods_end_a_saved_job_without_a_coordinator(town: ControllerTown) -> None:
    await town.train()
    await ends(town, saved=True)
    await end_pods(town, names.ROLE_COORDINATOR, 137)
    await goes(town, 3)
    for rank, code in ((0, 0), (1, 139), (2, 65)):
        _, body = rank_pods(town)[rank]
        ended = {"name": "trainer", "state": {"terminated": {"exitCode": code, "reason": "Error"}}}
        body["status"] |= {"phase": "Failed" if code else "Succeeded", "containerStatuses": [ended]}
        town.controller.apply_pod(pod_view_of(body))
    await settle_town(town)
    assert town.status()["summary"]["state"] == "Complete"


async def test_another_failed_container_is_no_fault_at_the_end(town: ControllerTown) -> None:
    """Its exit code makes the pod's phase Failed, at the very moment in which trainer ends with 0."""
    await town.train()
    await town.controller.stop_managing()
    for _, body in rank_pods(town).values():
        body["status"] |= {
            "phase": "Failed",
            "containerStatuses": [
                {"name": "board", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}},
                {"name": "trainer", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
            ],
        }
    town.open()
    await settle_town(town)
    assert town.status()["summary"]["state"] == "Complete"
    assert town.status().get("incidents", []) == []
