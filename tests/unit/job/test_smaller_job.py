"""A controller that starts its job anew without some nodes: every pod, message and line of status is of that size."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.job.observe import cluster_view
from hajob.plan import events
from hajob.plan.state import JobPhase
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.node import NodeView
from hajob.sources.pod import pod_view_of
from tests.rigs.job_controller import ControllerTown, PodQuota, condition_of, settle_town
from tests.rigs.plan_specs import GOOD
from tests.rigs.told_events import tell

DELAY = 30
CHIPS = {names.DEFAULT_RESOURCE_NAME: 2}


class SmallTown(ControllerTown):
    """Four nodes with chips for four rank pods, and one without for the coordinator."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = {f"node-{n}": NodeView(f"node-{n}", chips=CHIPS) for n in range(4)} | {"cpu": NodeView("cpu")}

    async def begin(self) -> None:
        """The job trains with all nodes."""
        await self.controller.stop_managing()
        spec = self.stored()["spec"]
        spec["elastic"] = {"restartSize": "Available", "expandDelaySeconds": DELAY}
        spec["template"]["spec"]["containers"][0]["command"] = ["torchrun", "train.py", *GOOD.split()]
        self.open()
        await self.come_up()

    async def come_up(self) -> None:
        """Every pod gets a node with room, all run, and the training does a step that none of before did."""
        await settle_town(self)
        await self.end_deleted_pods()
        for body in self.bodies():
            role, taken = body["metadata"]["labels"][names.LABEL_ROLE], {pod.node_name for pod in self.pods()}
            free = [name for name in self.nodes if name != "cpu" and name not in taken]
            where = "cpu" if role == names.ROLE_COORDINATOR else next(iter(free), "")
            if where and "podIP" not in body.get("status", {}) and not body["spec"].get("schedulingGates"):
                body["spec"]["nodeName"] = where
                body["status"] = {"phase": "Running", "podIP": f"127.0.1.{len(taken)}"}
                self.controller.apply_pod(pod_view_of(body))
        await settle_town(self)
        base, step = self.controller.state.base, self.controller.state.step
        await self.report(milestones=[wire.Milestone(kind=wire.STARTED, incarnation=base)])
        await self.report(step=max(step, 0) + 5)

    async def saved(self) -> None:
        """MindIO has saved, and the old pods end."""
        assert self.controller.state.phase is JobPhase.SAVING
        number = self.controller.state.incarnation
        done = wire.Milestone(kind=wire.RESULT, incarnation=number, result_code=0, strategy="dump")
        await self.report(milestones=[done])

    async def lose(self, *nodes: str) -> None:
        """Nodes vanish, and somebody has the job started anew."""
        for name in nodes:
            del self.nodes[name]
        tell(self, events.RestartRequested())
        await settle_town(self)
        await self.saved()

    def bodies(self) -> list[Json]:
        return [body for (kind, _, _), body in self.kube.objects.items() if kind == "pods"]

    def environments(self, role: str) -> Iterator[dict[str, str]]:
        """Variables of all containers of the pods of a role."""
        for body in self.bodies():
            if body["metadata"]["labels"][names.LABEL_ROLE] == role and "deletionTimestamp" not in body["metadata"]:
                spec = body["spec"]
                containers = [*spec.get("initContainers", ()), *spec["containers"]]
                named = [one for each in containers for one in each.get("env", ())]
                yield {one["name"]: one.get("value", "") for one in named}

    def told(self) -> dict[str, Any]:
        """What the status says of the size."""
        found: dict[str, Any] = self.status()["dataParallel"]
        return found


@pytest.fixture
async def small() -> AsyncIterator[SmallTown]:
    made = SmallTown()
    await made.begin()
    yield made
    await made.controller.stop_managing()


async def test_everything_about_a_smaller_start_is_of_its_size(small: SmallTown) -> None:
    await small.lose("node-2", "node-3")
    assert small.controller.state.nodes == 2
    await small.come_up()
    assert small.controller.state.phase is JobPhase.RUNNING
    assert [one["HAJOB_WORLD_SIZE"] for one in small.environments(names.ROLE_RANK)] == ["4", "4"]
    assert [one["HAJOB_NUM_NODES"] for one in small.environments(names.ROLE_COORDINATOR)] == ["2"]
    assigned = small.links[-1].assignments[-1]
    assert (assigned.world_size, assigned.checkpoint_rules.num_nodes) == (4, 2)
    assert (assigned.environment["WORLD_SIZE"], assigned.environment["GROUP_WORLD_SIZE"]) == ("4", "2")
    await small.clock.advance(4.0)
    assert (small.told()["current"], small.told()["desired"], small.told()["waitReason"]) == (2, 4, "NoFreeNode")
    assert condition_of(small, "Shrunk")[:2] == ("True", "FewerDataParallelRanks")
    assert small.status()["incidents"][0]["stateSources"][0]["numRanks"] == 4
    assert "SmallerStart" in small.events.reasons


async def test_a_new_leader_goes_on_with_the_smaller_size(small: SmallTown) -> None:
    await small.lose("node-2", "node-3")
    await small.come_up()
    before = {pod.name for pod in small.pods()}
    await small.controller.stop_managing()
    small.open()
    await settle_town(small)
    assert small.controller.state.nodes == 2
    assert {pod.name for pod in small.pods() if not pod.deleting} == before
    assert cluster_view(small.controller.snapshots.take_snapshot()).layout.world_size == 4


async def test_it_grows_by_a_save_and_a_start_with_all_nodes(small: SmallTown) -> None:
    await small.lose("node-2", "node-3")
    await small.come_up()
    for name in ("node-2", "node-3"):
        small.nodes[name] = NodeView(name, chips=CHIPS)
        small.controller.look_for_capacity()
    await small.clock.advance(4.0)
    assert small.told()["waitReason"] == "ExpandDelay"
    assert small.controller.state.phase is JobPhase.RUNNING
    await small.clock.advance(DELAY)
    await small.saved()
    assert small.controller.state.nodes == 0
    await small.come_up()
    assert {one["HAJOB_WORLD_SIZE"] for one in small.environments(names.ROLE_RANK)} == {"8"}
    await small.clock.advance(4.0)
    assert (small.told()["current"], "waitReason" in small.told()) == (4, False)
    assert condition_of(small, "Shrunk")[:2] == ("False", "FullSize")


async def test_one_node_of_two_missing_grows_nothing(small: SmallTown) -> None:
    await small.lose("node-2", "node-3")
    await small.come_up()
    small.nodes["node-2"] = NodeView("node-2", chips=CHIPS)
    small.controller.look_for_capacity()
    await small.clock.advance(3 * DELAY)
    assert small.controller.state.phase is JobPhase.RUNNING
    assert small.told()["waitReason"] == "NoFreeNode"


async def test_a_node_that_fell_silent_counts_for_no_start(small: SmallTown) -> None:
    small.avoided_nodes.avoid_node("node-3", small.clock.monotonic())  # Kubernetes calls it ready for another 40 s
    await small.lose()
    assert small.controller.state.nodes == 2


async def test_nodes_that_go_while_it_waits_make_it_smaller(small: SmallTown) -> None:
    await small.lose()
    assert small.controller.state.nodes == 0
    for name in ("node-2", "node-3"):
        del small.nodes[name]
    tell(small, events.PlacesMissing(message="of 4 nodes 2 are taken"))
    await small.clock.advance(61.0)
    assert small.controller.state.nodes == 2


async def test_a_quota_that_was_cut_makes_the_next_start_smaller(small: SmallTown) -> None:
    await PodQuota(small).allow(3)
    await small.lose()
    assert small.controller.state.nodes == 0
    await small.end_deleted_pods()
    await small.clock.advance(10.0)
    for body in small.bodies():
        small.controller.apply_pod(pod_view_of(body))
    await small.clock.advance(60.0)
    assert small.controller.state.nodes == 2, "three pods are allowed, one of them the coordinator's"
