"""A coordinator whose node is lost gets a successor elsewhere, also while the API server calls that node ready."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from hajob.job.deadlines import HEAR_SECONDS
from hajob.plan import events
from hajob.plan.policy import ANOTHER_COORDINATOR_SECONDS, COORDINATOR_SECONDS, SUCCESSOR_SECONDS, UNREACHABLE_SECONDS
from hajob.plan.state import JobPhase
from hajob.sources.pod import PodView, pod_view_of
from tests.rigs.job_controller import (
    ControllerTown,
    body_of_pod,
    coordinator_pod_of,
    death_of_rank,
    phase_of_job,
    settle_town,
)
from tests.rigs.told_events import tell

SILENCE = HEAR_SECONDS + UNREACHABLE_SECONDS + COORDINATOR_SECONDS + 2
SUCCESSORS_SILENCE = UNREACHABLE_SECONDS + SUCCESSOR_SECONDS + 2


async def waited(town: ControllerTown, seconds: float) -> None:
    """Second by second, because each deadline begins when another one has passed."""
    for _ in range(math.ceil(seconds)):
        await town.clock.advance(1.0)


async def lose(town: ControllerTown) -> PodView:
    """Its node goes silent, for longer than it is waited for; returns the coordinator that was there."""
    lost = coordinator_pod_of(town)
    town.controller.coordinator.note_connection_change(False, "the node hung up")
    await waited(town, SILENCE)
    assert town.controller.state.phase is JobPhase.UNPROTECTED
    assert coordinator_pod_of(town).name != lost.name
    return lost


async def give(town: ControllerTown, node: str, **status: Any) -> PodView:
    """The newest coordinator's pod gets this node, and what its kubelet says of it."""
    body = body_of_pod(town, coordinator_pod_of(town))
    body["spec"]["nodeName"] = node
    body["status"] = {"phase": "Pending", **status}
    town.controller.apply_pod(pod_view_of(body))
    await settle_town(town)
    return pod_view_of(body)


def required(town: ControllerTown) -> list[str]:
    """Names of the nodes where the newest coordinator may not be placed."""
    affinity = body_of_pod(town, coordinator_pod_of(town))["spec"]["affinity"]["nodeAffinity"]
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return [name for term in terms for one in term["matchFields"] for name in one["values"]]


async def test_its_successor_keeps_off_the_node_that_fell_silent() -> None:
    town = ControllerTown()
    await town.train()
    lost = await lose(town)
    assert town.nodes[lost.node_name].ready
    assert required(town) == [lost.node_name]
    await town.controller.stop_managing()


async def test_a_successor_without_another_node_takes_any() -> None:
    town = ControllerTown()
    await town.train()
    await lose(town)
    body = body_of_pod(town, coordinator_pod_of(town))
    full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/6 nodes"}
    body["status"] = {"phase": "Pending", "conditions": [full]}
    town.controller.apply_pod(pod_view_of(body))
    await waited(town, 11.0)
    assert coordinator_pod_of(town).name != pod_view_of(body).name
    assert required(town) == []
    await town.controller.stop_managing()


async def test_a_successor_given_to_a_dead_node_is_made_anew() -> None:
    """Whoever places it may know no more than the API server; it never gets an address that could fall silent."""
    town = ControllerTown()
    await town.train()
    await lose(town)
    given = await give(town, "node-5")
    await waited(town, 2.0 * ANOTHER_COORDINATOR_SECONDS)
    assert coordinator_pod_of(town).name == given.name
    town.nodes["node-5"] = replace(town.nodes["node-5"], ready=False)
    town.controller.look_for_stranded("node-5")
    await waited(town, ANOTHER_COORDINATOR_SECONDS + 2.0)
    assert town.controller.state.phase is JobPhase.UNPROTECTED
    assert coordinator_pod_of(town).name != given.name
    assert town.controller.state.restarts_infrastructure == 0
    await town.controller.stop_managing()


async def test_a_first_coordinator_given_to_a_dead_node() -> None:
    town = ControllerTown()
    await settle_town(town)
    given = await give(town, "node-5")
    town.nodes["node-5"] = replace(town.nodes["node-5"], ready=False)
    town.controller.look_for_stranded("node-5")
    await settle_town(town)
    await town.end_deleted_pods()
    assert coordinator_pod_of(town).name != given.name
    await town.controller.stop_managing()


async def test_a_successor_whose_node_is_lost_too_has_one() -> None:
    """It ran, and falls silent before it has taken over, or before it has said a word."""
    for said in (True, False):
        town = ControllerTown()
        await town.train()
        await lose(town)
        second = await give(town, "node-5", phase="Running", podIP="127.0.2.5")
        if said:
            town.controller.coordinator.note_connection_change(True, "")
            await waited(town, 2.0 * SUCCESSORS_SILENCE)
            assert coordinator_pod_of(town).name == second.name
            town.controller.coordinator.note_connection_change(False, "the node hung up")
        await waited(town, SUCCESSORS_SILENCE)
        assert coordinator_pod_of(town).name != second.name
        assert "node-5" in required(town)
        await town.controller.stop_managing()


async def test_a_slow_start_is_no_silence() -> None:
    """The address comes with the sandbox, before a training image of 20 GB is pulled."""
    town = ControllerTown()
    await town.train()
    await lose(town)
    slow = await give(town, "node-5", podIP="127.0.2.5")
    await waited(town, 10.0 * SUCCESSORS_SILENCE)
    assert coordinator_pod_of(town).name == slow.name
    running = await give(town, "node-5", phase="Running", podIP="127.0.2.5")
    await waited(town, SUCCESSORS_SILENCE - 4.0)
    await town.report(step=6, controller_ready=False)
    await waited(town, 2.0 * SUCCESSORS_SILENCE)
    assert coordinator_pod_of(town).name == running.name
    await town.controller.stop_managing()


async def test_a_pod_lost_with_the_coordinator_waits_for_the_successor() -> None:
    town = ControllerTown()
    await town.train()
    town.controller.coordinator.note_connection_change(False, "the rack lost its power")
    (gone,) = (pod for pod in town.pods() if pod.node_rank == 1)
    town.controller.apply_pod(gone, deleted=True)
    assert phase_of_job(town) == "Held"
    await waited(town, SILENCE)
    assert phase_of_job(town) == "Held"
    held = next(each for each in town.status()["conditions"] if each["type"] == "Held")
    assert (held["status"], held["reason"]) == ("True", "WaitsForController")
    await give(town, "node-5", phase="Running", podIP="127.0.2.5")
    await town.report(step=6)
    assert phase_of_job(town) == "Saving"
    assert town.controller.state.restarts_infrastructure == 0
    await town.controller.stop_managing()


async def test_a_new_operator_waits_for_it_as_well() -> None:
    """The leader was lost with them: its successor has heard nobody when it begins."""
    town = ControllerTown()
    await town.train()
    town.controller.coordinator.note_connection_change(False, "the rack lost its power")
    (gone,) = (pod for pod in town.pods() if pod.node_rank == 1)
    town.controller.apply_pod(gone, deleted=True)
    del town.kube.objects["pods", gone.namespace, gone.name]
    await settle_town(town)
    await town.controller.stop_managing()
    town.open()
    await settle_town(town)
    assert phase_of_job(town) == "Held"
    await town.report(step=6)
    assert phase_of_job(town) == "Gathering"
    assert town.controller.state.restarts_infrastructure == 0
    await town.controller.stop_managing()


async def test_a_successor_given_to_a_node_that_is_known_to_be_dead() -> None:
    """The news of the node came first, or an operator that has just begun finds it so."""
    town = ControllerTown()
    await town.train()
    await lose(town)
    town.nodes["node-5"] = replace(town.nodes["node-5"], ready=False)
    given = await give(town, "node-5")
    await waited(town, ANOTHER_COORDINATOR_SECONDS + 2.0)
    assert coordinator_pod_of(town).name != given.name
    assert phase_of_job(town) == "Unprotected"
    await town.controller.stop_managing()


async def test_a_successors_node_is_lost_while_it_pulls() -> None:
    """It has an address, and nobody has ever answered there."""
    town = ControllerTown()
    await town.train()
    await lose(town)
    given = await give(town, "node-5", podIP="127.0.2.5")
    town.nodes["node-5"] = replace(town.nodes["node-5"], ready=False)
    town.controller.look_for_stranded("node-5")
    await waited(town, ANOTHER_COORDINATOR_SECONDS + 2.0)
    assert coordinator_pod_of(town).name != given.name
    await town.controller.stop_managing()


async def test_a_coordinator_that_is_heard_has_started() -> None:
    """The kubelet's word that it runs may come late, or never."""
    town = ControllerTown()
    await town.train()
    await lose(town)
    given = await give(town, "node-5", podIP="127.0.2.5")
    await town.report(step=6)
    town.nodes["node-5"] = replace(town.nodes["node-5"], ready=False)
    town.controller.look_for_stranded("node-5")
    await waited(town, SUCCESSORS_SILENCE)
    assert coordinator_pod_of(town).name == given.name
    assert phase_of_job(town) == "Running"
    town.controller.coordinator.note_connection_change(False, "the node is dead indeed")
    await waited(town, SILENCE)
    assert coordinator_pod_of(town).name != given.name
    await town.controller.stop_managing()


async def test_a_new_operator_hears_the_coordinator_first() -> None:
    """The pod was lost while nobody led; it is seen before anybody is dialled."""
    town = ControllerTown()
    await town.train()
    await town.controller.stop_managing()
    (lost,) = (pod for pod in town.pods() if pod.node_rank == 1)
    body_of_pod(town, lost)["status"] = {"phase": "Failed", "reason": "Evicted"}
    town.open()
    await settle_town(town)
    assert phase_of_job(town) == "Held"
    await town.report(step=6)
    assert phase_of_job(town) == "Gathering"
    assert town.controller.state.restarts_infrastructure == 0
    await town.controller.stop_managing()


async def repair(town: ControllerTown) -> None:
    """A rank has died, another process takes its place."""
    await town.report(death_of_rank(5), step=6)
    assert phase_of_job(town) == "Gathering"


async def move(town: ControllerTown) -> None:
    """A pod is to leave its node."""
    tell(town, events.MigrateRequested(nodes=(2,)))
    await settle_town(town)
    assert phase_of_job(town) == "Migrating"


async def pause(town: ControllerTown) -> None:
    """Every rank is to wait at the end of its step."""
    tell(town, events.PauseRequested(request="2026-01-01T00:00:00Z", seconds=600))
    await settle_town(town)
    assert phase_of_job(town) == "Paused"


async def save(town: ControllerTown) -> None:
    """The step where the training stands is saved, by request."""
    tell(town, events.RestartRequested())
    await settle_town(town)
    assert phase_of_job(town) == "Saving"


Begin = Callable[[ControllerTown], Awaitable[None]]


def power_off_its_node(town: ControllerTown) -> PodView:
    """It is silent, and some day the API server says so; returns the coordinator that was there."""
    lost = coordinator_pod_of(town)
    town.controller.coordinator.note_connection_change(False, "the node lost its power")
    town.nodes[lost.node_name] = replace(town.nodes[lost.node_name], ready=False)
    town.controller.look_for_stranded(lost.node_name)
    return lost


@pytest.mark.parametrize("begin", [repair, pause, save])
async def test_its_node_is_powered_off_in_an_action(begin: Begin) -> None:
    """Its successor is told the same; nobody had died when it was lost, and nothing starts anew."""
    town = ControllerTown()
    await town.train()
    await begin(town)
    before, ordered = phase_of_job(town), town.links[-1].orders[-1]
    lost = power_off_its_node(town)
    await waited(town, SILENCE)
    successor = coordinator_pod_of(town)
    assert successor.name != lost.name
    await waited(town, 300.0)
    await give(town, "node-5", phase="Running", podIP="127.0.2.5")
    await town.report(step=6, controller_ready=False, taking_over=True)
    assert town.links[-1].orders[-1] == ordered
    await town.report(step=6)
    assert (phase_of_job(town), coordinator_pod_of(town).name) == (before, successor.name)
    assert town.controller.state.restarts_infrastructure == 0
    await town.controller.stop_managing()


@pytest.mark.parametrize("begin", [repair, move, pause])
async def test_a_new_operator_finds_an_action_and_an_evicted_pod(begin: Begin) -> None:
    """The pod was lost while nobody led; the coordinator serves all the time, and is heard a moment later."""
    town = ControllerTown()
    await town.train()
    await begin(town)
    await town.controller.stop_managing()
    (lost,) = (pod for pod in town.pods() if pod.node_rank == 1)
    body_of_pod(town, lost)["status"] = {"phase": "Failed", "reason": "Evicted"}
    town.open()
    await settle_town(town)
    await town.report(step=6)
    assert phase_of_job(town) == "Gathering"
    assert [pod.incarnation for pod in town.pods() if pod.node_rank == 1 and not pod.deleting] != [lost.incarnation]
    assert town.controller.state.restarts_infrastructure == 0
    await town.controller.stop_managing()
