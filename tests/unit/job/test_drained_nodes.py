"""Evictions wait while a job moves off a node, and not for ever; a coordinator is relieved at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from e2e.memory_api.requests import requests
from hajob.capacity.drains import OPEN_SHARE
from hajob.kube.client import ApiError
from hajob.plan.state import JobPhase
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.node import NodeView
from tests.rigs.job_controller import NAMESPACE, ControllerTown, settle_town

BUDGETS = "poddisruptionbudgets"


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    yield made
    await made.controller.stop_managing()


def budgets(town: ControllerTown) -> dict[str, int]:
    """Role to the pods that evictions leave."""
    return {
        body["spec"]["selector"]["matchLabels"]["training.hajob.io/role"]: body["spec"]["minAvailable"]
        for (resource, _, _), body in town.kube.objects.items()
        if resource == BUDGETS
    }


def writes(town: ControllerTown) -> int:
    return sum(resource == BUDGETS for _, resource, _ in town.kube.writes)


async def cordon(town: ControllerTown, node: str, *, on: bool = True) -> None:
    """As the core shows it."""
    town.nodes[node] = replace(town.nodes[node], unschedulable=on)
    town.controller.look_for_moves()
    await settle_town(town)


def phase(town: ControllerTown) -> JobPhase:
    return town.controller.state.phase


def node_of(town: ControllerTown, role: str) -> str:
    return next(pod.node_name for pod in town.pods() if pod.role == role)


def coordinators(town: ControllerTown) -> list[str]:
    return [pod.name for pod in town.pods() if pod.role == "coordinator"]


async def test_a_job_that_trains_gives_up_no_pod(town: ControllerTown) -> None:
    await town.train()
    assert budgets(town) == {"rank": 4, "coordinator": 1}
    assert writes(town) == 2


async def test_pods_are_protected_once_their_ranks_are_started(town: ControllerTown) -> None:
    await settle_town(town)
    await town.run_pods()
    assert (phase(town), writes(town), budgets(town)) == (JobPhase.PENDING, 0, {})
    await town.report(milestones=[wire.Milestone(kind=wire.STARTED, incarnation=1)])
    assert phase(town) in {JobPhase.STARTING, JobPhase.WARMING}
    assert (writes(town), budgets(town)) == (2, {"rank": 4, "coordinator": 1})


async def test_a_new_leader_reads_and_writes_nothing(town: ControllerTown) -> None:
    await town.train()
    await town.controller.stop_managing()
    town.kube.writes.clear()
    town.open()
    await settle_town(town)
    assert (budgets(town), writes(town)) == ({"rank": 4, "coordinator": 1}, 0)


@pytest.mark.parametrize("role", ["rank", "coordinator"])
async def test_a_new_leader_asks_for_moves_once_it_hears(town: ControllerTown, role: str) -> None:
    """Its predecessor may have gone by the same drain. Refused, a move would be asked for only minutes later."""
    await town.train()
    node = node_of(town, role)
    await town.controller.stop_managing()
    town.nodes[node] = replace(town.nodes[node], unschedulable=True)
    town.open()
    await settle_town(town)
    assert phase(town) is JobPhase.RUNNING
    assert "MoveRefused" not in town.events.reasons
    await town.report(step=6)
    assert phase(town) is (JobPhase.MIGRATING if role == "rank" else JobPhase.UNPROTECTED)


async def test_both_pods_of_a_move_are_safe(town: ControllerTown) -> None:
    await town.train()
    await cordon(town, node_of(town, "rank"))
    assert phase(town) is JobPhase.MIGRATING
    assert budgets(town)["rank"] == 5


async def test_an_eviction_goes_through_once_it_has_waited(town: ControllerTown) -> None:
    town.raw["spec"]["recovery"] = {"mode": "Observe", "drainTimeoutSeconds": 60}
    await town.controller.stop_managing()
    town.kube.put("hatrainingjobs", NAMESPACE, town.raw)
    town.open()
    await town.train()
    await cordon(town, node_of(town, "rank"))
    await town.clock.advance(59)
    assert budgets(town) == {"rank": 4, "coordinator": 1}
    await town.clock.advance(2)
    assert budgets(town) == {"rank": 0, "coordinator": 0}
    await cordon(town, node_of(town, "rank"), on=False)
    assert budgets(town) == {"rank": 4, "coordinator": 1}


def take_free_nodes(town: ControllerTown) -> dict[str, NodeView]:
    """Leave only the nodes of rank pods; return all of them."""
    every, used = town.nodes, {pod.node_name for pod in town.pods() if pod.role == "rank"}
    town.nodes = {name: node for name, node in every.items() if name in used}
    return every


def drain_timeout(town: ControllerTown) -> int:
    """Return the seconds for which an eviction waits."""
    return town.controller.job.spec.recovery.drain_timeout_seconds


async def test_no_turn_comes_while_a_cordon_would_move_the_pod(town: ControllerTown) -> None:
    await town.train()
    every = take_free_nodes(town)
    timeout = drain_timeout(town)
    await town.clock.advance(timeout + 1)
    assert budgets(town)["rank"] == 3
    town.nodes = every
    town.controller.look_for_moves()
    await settle_town(town)
    assert budgets(town) == {"rank": 4, "coordinator": 1}


async def test_a_turn_comes_where_no_cordon_would_ever_move_a_pod(town: ControllerTown) -> None:
    town.raw["spec"]["recovery"] = {"mode": "Observe"}
    await town.controller.stop_managing()
    town.kube.put("hatrainingjobs", NAMESPACE, town.raw)
    town.open()
    await town.train()
    await town.clock.advance(drain_timeout(town) + 1)
    assert budgets(town) == {"rank": 3, "coordinator": 0}


async def test_a_job_whose_evictions_never_wait_trains_like_any_other(
    town: ControllerTown, caplog: pytest.LogCaptureFixture
) -> None:
    town.raw["spec"]["recovery"] = {"drainTimeoutSeconds": 0}
    await town.controller.stop_managing()
    town.kube.put("hatrainingjobs", NAMESPACE, town.raw)
    town.open()
    await town.train()
    take_free_nodes(town)
    town.controller.look_for_moves()
    await settle_town(town)
    assert budgets(town) == {"rank": 3, "coordinator": 0}
    assert "an error of this program" not in caplog.text


async def test_an_eviction_that_nobody_announced_gets_its_turn(town: ControllerTown) -> None:
    await town.train()
    take_free_nodes(town)
    timeout = drain_timeout(town)
    await town.clock.advance(timeout - 1)
    assert (budgets(town), writes(town)) == ({"rank": 4, "coordinator": 1}, 2)
    await town.clock.advance(2)
    assert budgets(town) == {"rank": 3, "coordinator": 0}
    await town.clock.advance(OPEN_SHARE * timeout)
    assert (budgets(town), writes(town)) == ({"rank": 4, "coordinator": 1}, 6)
    await town.clock.advance(timeout + 1)
    assert budgets(town) == {"rank": 3, "coordinator": 0}


async def test_nobody_else_is_evicted_during_a_recovery(town: ControllerTown) -> None:
    await town.train()
    every = take_free_nodes(town)
    await town.clock.advance(drain_timeout(town) + 1)
    assert budgets(town)["rank"] == 3
    town.nodes = every
    await cordon(town, node_of(town, "rank"))
    assert (phase(town), budgets(town)) == (JobPhase.MIGRATING, {"rank": 5, "coordinator": 1})


async def test_a_drained_coordinator_hands_over_at_once(town: ControllerTown) -> None:
    """Both pods are there until the new one has taken over; only then the old one goes."""
    await town.train()
    (before,) = coordinators(town)
    await cordon(town, node_of(town, "coordinator"))
    assert town.events.reasons.count("NodeDraining") == 1
    assert phase(town) is JobPhase.UNPROTECTED
    assert before in coordinators(town)
    assert len(coordinators(town)) == 2


async def test_budgets_that_are_refused_hold_nothing_up(town: ControllerTown) -> None:
    refusal = ApiError(403, "Forbidden", "exceeded quota")
    town.kube.server.faults.refuse(refusal, matching=requests(BUDGETS), times=4)
    await town.train()
    assert (phase(town), budgets(town)) == (JobPhase.RUNNING, {})
    await town.clock.advance(60)
    assert budgets(town) == {"rank": 4, "coordinator": 1}
