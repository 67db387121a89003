"""What a job does about faults of its nodes: by policy, for as long as they stand, and where its pods go."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.domain.facts import Source
from hajob.domain.hardware import ClusterFact, Level, harms_job, kind_of_level
from hajob.job.deadlines import HEAR_SECONDS
from hajob.plan.policy import COORDINATOR_SECONDS
from hajob.plan.state import JobPhase
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.pod import PodView
from tests.rigs.job_controller import NAMESPACE, ControllerTown, incarnations_of_node_1, settle_town


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    yield made
    await made.controller.stop_managing()


def fault(node: str, level: Level = Level.SUB_HEALTH, code: str = "c") -> ClusterFact:
    name = f"node/{node}/hardware/x/{code}"
    return ClusterFact(
        name, Source.NODE_HARDWARE, kind_of_level(level), node, code=code, level=level, harms=harms_job(level)
    )


def phase_of(town: ControllerTown) -> JobPhase:
    return town.controller.state.phase


def serving(town: ControllerTown, node_rank: int = 1) -> PodView:
    return min((pod for pod in town.pods() if pod.node_rank == node_rank), key=lambda pod: pod.incarnation)


async def trained(town: ControllerTown, **recovery: Any) -> str:
    """A job that trains under a recovery policy; the node of its node rank 1."""
    town.raw = town.kube.objects[names.PLURAL, NAMESPACE, "quickstart"]
    town.raw["spec"].setdefault("recovery", {}).update(recovery)
    await town.controller.stop_managing()
    town.open()
    await town.train()
    return serving(town).node_name


async def breaks(town: ControllerTown, node: str, *faults: ClusterFact) -> None:
    """From now on these faults stand on the node."""
    town.faults[node] = list(faults)
    if any(one.level is Level.SUB_HEALTH for one in faults):
        town.sub_healthy.add(node)
    town.controller.look_for_faults(frozenset({node}))
    await settle_town(town)


@pytest.mark.parametrize(
    ("policy", "phase"),
    [
        ("Ignore", JobPhase.RUNNING),
        ("Migrate", JobPhase.MIGRATING),
        ("Checkpoint", JobPhase.SAVING),
        ("Evict", JobPhase.GATHERING),
    ],
)
async def test_a_sub_healthy_node_leads_to_what_the_policy_says(
    town: ControllerTown, policy: str, phase: JobPhase
) -> None:
    node = await trained(town, subHealthPolicy=policy)
    await breaks(town, node, fault(node))
    assert phase_of(town) is phase


async def test_a_chip_of_unknown_owner_is_told_once(town: ControllerTown) -> None:
    """No annotation lists the pod's chips, and it has two of eight."""
    node = await trained(town)
    town.nodes[node] = dataclasses.replace(town.nodes[node], all_chips={names.DEFAULT_RESOURCE_NAME: 8})
    chip = dataclasses.replace(fault(node, Level.SEPARATE), source=Source.DEVICE, device="Ascend910-7")
    await breaks(town, node, chip)
    await breaks(town, node, chip)
    assert phase_of(town) is JobPhase.RUNNING
    assert town.events.reasons.count("ChipUnknown") == 1
    await breaks(town, node)
    await breaks(town, node, chip)
    assert town.events.reasons.count("ChipUnknown") == 2


async def test_a_sub_healthy_node_is_not_left_for_a_worse_one(town: ControllerTown) -> None:
    node = await trained(town)
    town.sub_healthy.update(town.nodes)
    await breaks(town, node, fault(node))
    assert phase_of(town) is JobPhase.RUNNING
    town.sub_healthy.clear()
    town.sub_healthy.add(node)
    town.controller.apply_spec()
    assert phase_of(town) is JobPhase.MIGRATING


async def test_what_stands_while_a_job_recovers_is_asked_for_later(town: ControllerTown) -> None:
    node = await trained(town)
    dead = wire.Fact(id="exit", kind=wire.PROCESS_EXITED, node_rank=2, ranks=[4], incarnation=1, exit_code=-9, step=5)
    await town.report(dead, step=5)
    await breaks(town, node, fault(node))
    assert phase_of(town) is JobPhase.GATHERING
    for kind in (wire.NAMED, wire.RESUMED):
        await town.report(step=9, milestones=[wire.Milestone(kind=kind, incarnation=2, step=9)])
    await town.report(step=10, milestones=[wire.Milestone(kind=wire.RESULT, incarnation=2, step=9)])
    await town.clock.advance(70)
    town.controller.apply_spec()
    assert phase_of(town) is JobPhase.MIGRATING


async def test_a_move_is_given_up_when_the_node_is_well_again(town: ControllerTown) -> None:
    node = await trained(town)
    await breaks(town, node, fault(node))
    await town.run_pods()
    assert incarnations_of_node_1(town) == [1, 2]
    await breaks(town, node)
    assert phase_of(town) is JobPhase.RUNNING
    assert incarnations_of_node_1(town) == [1]


@pytest.mark.parametrize("why", ["not read yet", "not believed"])
async def test_a_silence_of_the_sources_withdraws_nothing(town: ControllerTown, why: str) -> None:
    node = await trained(town)
    await breaks(town, node, fault(node))
    town.faults_known, town.held = why != "not read yet", why if why == "not believed" else ""
    await breaks(town, node)
    assert phase_of(town) is JobPhase.MIGRATING


async def test_a_fault_that_is_over_is_none_when_hold_ends(town: ControllerTown) -> None:
    node = await trained(town, mode="Hold")
    await breaks(town, node, fault(node, Level.SEPARATE))
    assert phase_of(town) is JobPhase.HELD
    await breaks(town, node)
    assert phase_of(town) is JobPhase.RUNNING
    assert town.status()["incidents"][0]["outcome"] == "Recovered"


async def test_a_pod_placed_on_a_broken_node_is_told_of_it(town: ControllerTown) -> None:
    node = await trained(town)
    town.faults[node] = [fault(node, Level.SEPARATE)]  # nobody tells that it has changed
    town.controller.apply_pod(dataclasses.replace(serving(town), chips=("0", "1")))
    assert phase_of(town) is JobPhase.GATHERING


async def test_a_breaker_that_opens_is_told_on_the_job(town: ControllerTown) -> None:
    await trained(town)
    town.held = "300 of 1000 nodes were reported faulty"
    town.controller.handle_breaker_change(town.held)
    await settle_town(town)
    held = next(one for one in town.status()["conditions"] if one["type"] == "Held")
    assert (held["status"], held["reason"], held["message"]) == ("True", "BreakerOpen", town.held)
    assert town.events.reasons[-1] == "BreakerOpen"
    town.held = ""
    town.controller.handle_breaker_change("")
    await settle_town(town)
    held = next(one for one in town.status()["conditions"] if one["type"] == "Held")
    assert (held["status"], town.events.reasons[-1]) == ("False", "BreakerClosed")


async def test_a_flood_strands_no_pod(town: ControllerTown) -> None:
    await settle_town(town)
    pod = next(pod for pod in town.pods() if pod.node_rank == 0)
    body = town.kube.objects["pods", NAMESPACE, pod.name]
    body["spec"]["nodeName"] = "node-0"
    town.nodes["node-0"] = type(town.nodes["node-0"])("node-0", ready=False)
    town.held = "a flood"
    before = town.controller.state
    town.controller.apply_pod(next(one for one in town.pods() if one.name == pod.name))
    assert town.controller.state == before
    town.held = ""
    town.controller.handle_breaker_change("")
    assert town.controller.state.pod_incarnation(0) > before.pod_incarnation(0)


async def test_a_new_leader_asks_for_a_better_node_once_it_hears(town: ControllerTown) -> None:
    node = await trained(town)
    await town.controller.stop_managing()
    town.faults, town.sub_healthy = {node: [fault(node)]}, {node}
    town.open()
    await settle_town(town)
    assert (phase_of(town), "MoveRefused" in town.events.reasons) == (JobPhase.RUNNING, False)
    await town.report(step=6)
    assert phase_of(town) is JobPhase.MIGRATING


def excluded(town: ControllerTown, node_rank: int) -> frozenset[str]:
    newest = max((pod for pod in town.pods() if pod.node_rank == node_rank), key=lambda pod: pod.incarnation)
    return newest.excluded


async def test_no_pod_is_placed_on_a_quarantined_node(town: ControllerTown) -> None:
    town.quarantine("node-4")
    await settle_town(town)
    assert {excluded(town, rank) for rank in range(4)} == {frozenset({"node-4"})}
    (coordinator,) = (pod for pod in town.pods() if pod.role == names.ROLE_COORDINATOR)
    affinity = town.kube.objects["pods", NAMESPACE, coordinator.name]["spec"]["affinity"]["nodeAffinity"]
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": ["node-4"]}]
    preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert {"weight": 100, "preference": {"matchFields": fields}} in preferred


async def test_a_replacement_keeps_off_quarantined_nodes_too(town: ControllerTown) -> None:
    node = await trained(town)
    town.quarantine("node-0", "node-5")
    await breaks(town, node, fault(node, Level.SEPARATE))
    assert excluded(town, 1) >= {"node-0", "node-5", node}


async def cannot_be_placed(town: ControllerTown, waiting: PodView) -> None:
    """The scheduler finds no node for the pod."""
    body = town.kube.objects["pods", NAMESPACE, waiting.name]
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/6 nodes"}
    body["status"] = {"phase": "Pending", "conditions": [unplaced]}
    town.controller.apply_pod(next(pod for pod in town.pods() if pod.name == waiting.name))
    await settle_town(town)


@pytest.mark.parametrize("mode", ["Enforce", "Observe", "Hold"])
async def test_pods_that_wait_are_made_anew_after_a_release(town: ControllerTown, mode: str) -> None:
    """Hajob deletes them itself, so that it is no fault to be held."""
    town.stored()["spec"].setdefault("recovery", {})["mode"] = mode
    await town.controller.stop_managing()
    town.quarantine("node-3", "node-4", "node-5")
    town.open()
    await settle_town(town)
    waiting = next(pod for pod in town.pods() if pod.node_rank == 3)
    await cannot_be_placed(town, waiting)
    assert waiting.name in {pod.name for pod in town.pods()}
    town.quarantine("node-4")
    town.controller.handle_changed_places()
    await settle_town(town)
    assert waiting.name not in {pod.name for pod in town.pods()}
    town.controller.apply_pod(waiting, deleted=True)
    await settle_town(town)
    assert excluded(town, 3) == {"node-4"}
    assert phase_of(town) is JobPhase.PENDING


async def test_a_replacement_that_waits_is_made_anew_after_a_release(town: ControllerTown) -> None:
    node = await trained(town)
    town.quarantine(*(name for name in town.nodes if name != node))
    await breaks(town, node, fault(node, Level.SEPARATE))
    waiting = max((pod for pod in town.pods() if pod.node_rank == 1), key=lambda pod: pod.incarnation)
    await cannot_be_placed(town, waiting)
    free = next(iter(set(town.nodes) - {pod.node_name for pod in town.pods()} - {node}))
    town.quarantine(*(name for name in town.nodes if name not in {node, free}))
    town.controller.handle_changed_places()
    await settle_town(town)
    assert waiting.name not in {pod.name for pod in town.pods()}
    town.controller.apply_pod(waiting, deleted=True)
    await settle_town(town)
    assert phase_of(town) is JobPhase.GATHERING
    assert free not in excluded(town, 1)


async def taken_over(town: ControllerTown) -> None:
    """While no operator looks a fault comes to the node of node rank 1; then one begins."""
    node = await trained(town)
    await town.controller.stop_managing()
    town.faults[node] = [fault(node, Level.SEPARATE)]
    town.open()
    await settle_town(town)


async def test_what_stood_before_the_operator_began_is_the_same(town: ControllerTown) -> None:
    await taken_over(town)
    assert phase_of(town) is JobPhase.RUNNING  # what works now, the coordinator knows
    await town.report(step=6)
    state = town.controller.state
    assert state.phase is JobPhase.GATHERING
    assert state.incident is not None
    assert state.incident.replaced_nodes == (1,)


async def test_a_coordinator_that_is_not_heard_has_a_successor(town: ControllerTown) -> None:
    await taken_over(town)
    before = town.controller.state.coordinator
    await town.clock.advance(HEAR_SECONDS)
    assert phase_of(town) is JobPhase.RUNNING
    await town.clock.advance(COORDINATOR_SECONDS)
    assert phase_of(town) is JobPhase.HELD
    assert town.controller.state.coordinator > before


async def test_a_fault_that_is_told_twice_counts_once(town: ControllerTown) -> None:
    node = await trained(town)
    await breaks(town, node, fault(node, Level.SEPARATE))
    before = town.controller.state
    await breaks(town, node, fault(node, Level.SEPARATE))
    assert town.controller.state == before


async def test_a_fault_of_a_node_without_pods_changes_nothing(town: ControllerTown) -> None:
    await trained(town)
    before = town.controller.state
    await breaks(town, "node-99", fault("node-99", Level.SEPARATE))
    assert town.controller.state == before
