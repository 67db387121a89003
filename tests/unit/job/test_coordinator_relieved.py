"""A coordinator whose node is to be emptied decides until the new one's containers run."""

from __future__ import annotations

import pytest

from hajob.plan import events
from hajob.sources.pod import PodView, pod_view_of
from tests.rigs.job_controller import ControllerTown, body_of_pod, death_of_rank, phase_of_job, settle_town
from tests.rigs.told_events import tell


async def moving() -> tuple[ControllerTown, PodView, PodView]:
    """A training, the coordinator that serves, and the pod of the one that shall relieve it."""
    town = ControllerTown()
    await town.train()
    tell(town, events.CoordinatorMoveRequested(message="node-9 is to be emptied"))
    await settle_town(town)
    old, new = sorted(coordinators(town), key=lambda pod: pod.incarnation)
    return town, old, new


def coordinators(town: ControllerTown) -> list[PodView]:
    return [pod for pod in town.pods() if not pod.is_rank_pod and not pod.is_spare_pod and not pod.deleting]


async def give(town: ControllerTown, pod: PodView, **status: str) -> None:
    """It is seen; one that has an address has a node as well."""
    body = body_of_pod(town, pod)
    body["status"] = {"phase": "Pending", **status}
    if status:
        body["spec"]["nodeName"] = "node-5"
    town.controller.apply_pod(pod_view_of(body))
    await settle_town(town)


@pytest.mark.parametrize("status", [{}, {"podIP": "127.0.2.5"}], ids=["no node", "pulls its image"])
async def test_a_fault_is_decided_by_the_one_that_serves(status: dict[str, str]) -> None:
    """The address comes with the sandbox, minutes before a large image is there."""
    town, old, new = await moving()
    await give(town, new, **status)
    dialled = len(town.links)
    await town.report(death_of_rank(5), step=6)
    assert phase_of_job(town) == "Gathering"
    assert len(town.links) == dialled
    assert [pod.name for pod in coordinators(town)] == [old.name]
    await town.report(step=6)
    assert phase_of_job(town) == "Gathering"
    await town.controller.stop_managing()


async def test_a_fault_waits_for_the_new_one_that_runs() -> None:
    town, old, new = await moving()
    await give(town, new, phase="Running", podIP="127.0.2.5")
    assert town.links[-1].address.startswith("127.0.2.5")
    await town.report(death_of_rank(5), step=6, controller_ready=False, taking_over=True)
    assert phase_of_job(town) == "Held"
    assert {pod.name for pod in coordinators(town)} == {old.name, new.name}
    await town.controller.stop_managing()
