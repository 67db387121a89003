"""What `kubectl hajob simulate` says will be written is what a controller writes: the same losses, told to both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from itertools import groupby
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.api.job import Metadata
from hajob.api.spec import HATrainingJobSpec
from hajob.cli.simulated_writes import STATUS, Write, writes_of_simulation
from hajob.plan import events
from hajob.plan.simulate import SimulationRequest, simulate_loss
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.pod import pod_view_of
from tests.rigs.example_jobs import example_job
from tests.rigs.job_controller import ControllerTown, RecordedEvents, death_of_rank, settle_town
from tests.rigs.told_events import tell


class Ledger:
    """Every write of a controller, in its order, as `simulate` lists them."""

    def __init__(self, town: ControllerTown) -> None:
        self.town, self.found = town, list[Write]()
        kube = town.kube
        self._delete, self._create, self._patch = kube.delete_object, kube.create_object, kube.patch_object
        kube.delete_object, kube.create_object, kube.patch_object = self.delete, self.create, self.patch  # type: ignore[method-assign]
        town.events.queue_event = self.announce  # type: ignore[method-assign]

    def _pod(self, verb: str, body: dict[str, Any]) -> None:
        pod = pod_view_of(body)
        node_rank = pod.node_rank if pod.role == "rank" else None
        self.found.append(Write(verb, "pods", node_rank, pod.role, pod.incarnation))

    async def create(self, resource: str, namespace: str, body: dict[str, Any], *, dry_run: bool = False) -> Any:
        if not dry_run:
            self._pod("create", body)
        return await self._create(resource, namespace, body, dry_run=dry_run)

    async def delete(self, resource: str, namespace: str, name: str, **more: Any) -> None:
        self._pod("delete", self.town.kube.objects[resource, namespace, name])
        await self._delete(resource, namespace, name, **more)

    async def patch(self, resource: str, namespace: str, name: str, body: Any, **more: Any) -> Any:
        self.found.append(Write("patch", f"{resource}/{more.get('subresource', '')}".rstrip("/")))
        return await self._patch(resource, namespace, name, body, **more)

    def announce(self, _job: Metadata, reason: str, message: str, *, warning: bool = False) -> None:
        assert warning in {True, False}
        self.found.append(Write("create", "events", reason=reason))


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    assert isinstance(made.events, RecordedEvents)
    yield made
    await made.controller.stop_managing()


async def begin(town: ControllerTown, free: int) -> Ledger:
    """A training whose cluster has so many free nodes; from now on every write is noted."""
    await town.train()
    taken = {pod.node_name for pod in town.pods() if pod.role == "rank"}
    others = [name for name in town.nodes if name not in taken][:free]
    town.nodes = {name: node for name, node in town.nodes.items() if name in taken or name in others}
    return Ledger(town)


async def loses(town: ControllerTown, *nodes: int, wait: bool) -> None:
    """Nodes fall silent; with `wait`, no replacement comes in time."""
    for node in nodes:
        ranks = [2 * node, 2 * node + 1]
        silent = wire.Fact(id=f"silent {node}", kind=wire.AGENT_SILENT, node_rank=node, ranks=ranks, incarnation=1)
        await town.report(silent, step=5)
    for pod in town.pods():  # what was made is shown, and stays without a node
        town.controller.apply_pod(pod)
    if wait:
        town.clock.seconds += 271
        tell(town, events.DeadlineReached(name="Recovery"))
        await settle_town(town)


async def go_on(town: ControllerTown, *kinds: int, **more: Any) -> None:
    """What is deleted is gone, and the coordinator reports milestones, one after the other."""
    for kind in kinds:
        await town.end_deleted_pods()
        incident = town.controller.state.incident
        number = incident.incarnation if incident else town.controller.state.incarnation
        step = 0 if kind == wire.STARTED else 6
        milestone = wire.Milestone(kind=kind, incarnation=number, step=step, **more)  # type: ignore[arg-type]
        await town.report(milestones=[milestone], step=step, incarnation=number)


def in_runs(found: Iterable[Write], resource: str) -> list[list[Write]]:
    """Writes to a resource, one list for each run of a verb; pods are deleted as the cache has them."""
    runs = groupby((one for one in found if one.resource == resource), key=lambda one: one.verb)
    return [sorted(run, key=repr) for _, run in runs]


def compare(town: ControllerTown, ledger: Ledger, question: SimulationRequest) -> None:
    """Pods and Events one by one; of the status, that it was there first and not less often than was said.

    A status that may wait is written again for every three seconds that a recovery takes, and whenever the scripted
    coordinator says hello.
    """
    spec = HATrainingJobSpec.model_validate(town.stored()["spec"])
    said = writes_of_simulation(simulate_loss(spec, question))
    for resource in ("pods", "events"):
        assert in_runs(ledger.found, resource) == in_runs(said, resource)
    for found in (ledger.found, said):
        first = next((place for place, one in enumerate(found) if one.resource == "pods"), len(found))
        assert STATUS in found[:first]
    assert ledger.found.count(STATUS) >= said.count(STATUS)


async def test_a_process(town: ControllerTown) -> None:
    ledger = await begin(town, free=2)
    await town.report(death_of_rank(5), step=5)
    await go_on(town, wire.STOPPED, wire.NAMED, wire.RESUMED, wire.RESULT)
    compare(town, ledger, SimulationRequest(ranks=(5,), free_nodes=2))


async def test_a_node(town: ControllerTown) -> None:
    ledger = await begin(town, free=2)
    await loses(town, 2, wait=False)
    await go_on(town, wire.STOPPED, wire.NAMED, wire.RESUMED, wire.RESULT)
    compare(town, ledger, SimulationRequest(nodes=(2,), free_nodes=2))


def test_under_volcano_pods_leave_their_group() -> None:
    spec = example_job("quickstart", scheduling={"gangPolicy": "Volcano"}).spec
    replaced = writes_of_simulation(simulate_loss(spec, SimulationRequest(nodes=(2,), free_nodes=1)))
    verbs = [(one.verb, one.node_rank) for one in replaced if one.resource == "pods"]
    assert verbs == [("patch", 2), ("delete", 2), ("create", 2)]
    shrunk = writes_of_simulation(simulate_loss(spec, SimulationRequest(nodes=(2,))))
    assert [one.verb for one in shrunk if one.resource == names.POD_GROUPS] == ["patch"]


async def test_a_shrink(town: ControllerTown) -> None:
    ledger = await begin(town, free=0)
    await loses(town, 2, wait=True)
    await go_on(town, wire.RESUMED)
    assert town.controller.state.phase == "Shrunk"
    compare(town, ledger, SimulationRequest(nodes=(2,)))


async def test_a_checkpoint_and_a_restart_from_it(town: ControllerTown) -> None:
    ledger = await begin(town, free=0)
    await loses(town, 0, wait=True)
    await go_on(town, wire.RESULT, strategy="dump")
    await go_on(town, wire.STARTED, wire.RESUMED)
    assert town.controller.state.phase == "Running"
    compare(town, ledger, SimulationRequest(nodes=(0,)))


async def test_a_restart(town: ControllerTown) -> None:
    ledger = await begin(town, free=0)
    await loses(town, 1, 3, wait=True)
    await go_on(town, wire.STARTED, wire.RESUMED)
    assert town.controller.state.phase == "Running"
    compare(town, ledger, SimulationRequest(nodes=(1, 3)))
