"""A pod is deleted while recovery.mode is Observe or Hold: it stays an open incident until Enforce decides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import pytest

from hajob.api.job import HATrainingJob
from hajob.plan.state import JobPhase
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.pod import PodView
from tests.rigs.job_controller import ControllerTown, settle_town

MODES = pytest.mark.parametrize("mode", ["Observe", "Hold"])


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    yield made
    await made.controller.stop_managing()


async def switch(town: ControllerTown, mode: str) -> None:
    """Edit the mode, and let two seconds pass."""
    stored = town.stored()
    stored["spec"]["recovery"] = {**stored["spec"].get("recovery", {}), "mode": mode}
    stored["metadata"]["generation"] += 1
    town.controller.apply_job(HATrainingJob.from_object(deepcopy(stored)))
    await town.clock.advance(2.0)


def condition(town: ControllerTown, kind: str) -> tuple[str, str]:
    """Status and reason."""
    found: dict[str, Any] = next(one for one in town.status()["conditions"] if one["type"] == kind)
    return found["status"], found["reason"]


async def delete_pod(town: ControllerTown, node_rank: int) -> PodView:
    """Somebody deletes the pod of a node rank, and it is gone."""
    lost = next(pod for pod in town.pods() if pod.node_rank == node_rank)
    del town.kube.objects["pods", lost.namespace, lost.name]
    town.controller.apply_pod(lost, deleted=True)
    await settle_town(town)
    return lost


def rank_pods(town: ControllerTown) -> list[tuple[int, int]]:
    return sorted((pod.node_rank, pod.incarnation) for pod in town.pods() if pod.is_rank_pod and not pod.deleting)


@MODES
async def test_a_deleted_pod_stays_an_open_incident(town: ControllerTown, mode: str) -> None:
    await town.train()
    await switch(town, mode)
    orders = len(town.links[0].orders)
    await delete_pod(town, 3)
    await town.clock.advance(600)
    status = town.status()
    assert (status["summary"]["state"], status["incidents"][0]["outcome"]) == ("Held", "Open")
    assert condition(town, "Running") == ("False", "Held")
    assert condition(town, "Held") == ("True", f"Mode{mode}")
    assert rank_pods(town) == [(0, 1), (1, 1), (2, 1)]
    assert len(town.links[0].orders) == orders
    await town.clock.advance(600)
    town.controller.status.publish_status(lazy=True)
    await town.clock.advance(60)
    booked = {one["name"]: one["seconds"] for one in town.status()["goodput"]["buckets"]}
    assert booked["Decision"] >= 1200
    await switch(town, "Enforce")
    assert (3, 2) in rank_pods(town)
    assert town.links[0].orders[-1].action == wire.REPLACE
    assert town.status()["observedGeneration"] == 3


@MODES
async def test_another_operator_makes_no_pod_either(town: ControllerTown, mode: str) -> None:
    await town.train()
    await switch(town, mode)
    await delete_pod(town, 3)
    await town.controller.stop_managing()
    town.open()
    await settle_town(town)
    await town.report(step=5)
    await town.clock.advance(60)
    assert town.controller.state.phase is JobPhase.HELD
    assert rank_pods(town) == [(0, 1), (1, 1), (2, 1)]
    await switch(town, "Enforce")
    assert (3, 2) in rank_pods(town)


@MODES
async def test_a_pod_deleted_while_no_operator_ran_is_a_fault(town: ControllerTown, mode: str) -> None:
    await town.train()
    await switch(town, mode)
    await town.controller.stop_managing()
    lost = next(pod for pod in town.pods() if pod.node_rank == 3)
    del town.kube.objects["pods", lost.namespace, lost.name]
    town.open()
    await settle_town(town)
    await town.clock.advance(60)
    assert rank_pods(town) == [(0, 1), (1, 1), (2, 1)]
    silent = wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=3, ranks=[6, 7], incarnation=1)
    await town.report(silent, step=5)
    assert town.controller.state.phase is JobPhase.HELD


@MODES
async def test_a_fault_of_a_start_restarts_nothing(town: ControllerTown, mode: str) -> None:
    await settle_town(town)
    await town.run_pods()
    await switch(town, mode)
    await town.report(
        wire.Fact(id="exit", kind=wire.PROCESS_EXITED, node_rank=1, ranks=[2], incarnation=1, exit_code=1)
    )
    await town.clock.advance(3600)
    assert town.status()["summary"]["state"] == "Held"
    assert condition(town, "Running") == ("False", "Held")
    assert rank_pods(town) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    await switch(town, "Enforce")
    assert town.controller.state.phase is JobPhase.RESTARTING
    assert town.controller.state.attempt == 2


async def test_a_training_that_goes_on_is_shown_as_such(town: ControllerTown) -> None:
    await town.train()
    await switch(town, "Observe")
    rule = wire.Fact(
        id="nan", kind=wire.LOG_RULE, node_rank=1, ranks=[2], incarnation=1, code="nan", message="loss: nan"
    )
    await town.report(rule, step=6)
    assert town.status()["summary"]["state"] == "Held"
    assert condition(town, "Running") == ("True", "Training")
    assert town.status()["incidents"][0]["outcome"] == "Open"


async def test_a_hang_that_ends_by_itself_leads_to_nothing(town: ControllerTown) -> None:
    await town.train()
    await switch(town, "Observe")
    await town.report(wire.Fact(id="hang", kind=wire.HANG, node_rank=-1, ranks=range(8), incarnation=1, step=5), step=5)
    assert town.status()["summary"]["state"] == "Held"
    await town.report(step=6, hello=False)
    assert town.status()["summary"]["state"] == "Running"
    await switch(town, "Enforce")
    assert town.status()["summary"]["state"] == "Running"
