"""An operator that is cut off from most coordinators restarts no job, says so, and goes on where it can hear."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.app.core import OperatorCore
from hajob.capacity.caches import Caches
from hajob.job.controller import JobController
from hajob.plan.policy import COORDINATOR_SECONDS
from hajob.plan.state import JobPhase
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.pod import pod_view_of
from tests.rigs.fake_clock import settle
from tests.rigs.job_controller import NAMESPACE, ControllerTown

JOBS = ("one", "two", "three")


class City:
    """An operator with three jobs that train, and the nodes below them."""

    def __init__(self, town: ControllerTown) -> None:
        self.town, self.clock, self.kube = town, town.clock, town.kube
        self.caches = Caches()
        for node in town.nodes.values():
            self.caches.capacity.store_node(node)
        self.core = OperatorCore(town.ports(self.caches), self.caches)
        self.suspicion = town.cluster.suspicion
        self.core.note_complete_pods(self.kube.version)
        self.sequence = 0
        self.states: dict[str, wire.CoordinatorState] = {}

    def controller(self, name: str) -> JobController:
        return self.core.controllers[f"uid-of-{name}"]

    def phases(self) -> dict[str, JobPhase]:
        return {name: self.controller(name).state.phase for name in JOBS}

    async def train(self) -> None:
        """Apply three jobs, run their pods, let every coordinator report training."""
        raw = {key: value for key, value in self.town.raw.items() if key != "metadata"}
        for name in JOBS:
            body = {**copy.deepcopy(raw), "metadata": {"name": name, "namespace": NAMESPACE, "generation": 1}}
            self.core.handle_job(self.kube.put(names.PLURAL, NAMESPACE, body))
        await self.pass_time(0.1)
        for number, ((resource, _, _), body) in enumerate(sorted(self.kube.objects.items())):
            if resource == "pods":
                body["spec"]["nodeName"] = f"node-{number % 6}"
                body["status"] = {"phase": "Running", "podIP": f"127.0.1.{number}"}
                self.core.handle_changed_pod(pod_view_of(body), deleted=False)
        await self.pass_time(0.1)
        for name in JOBS:
            await self.report(name, milestones=[wire.Milestone(kind=wire.STARTED, incarnation=1)])
            await self.report(name, step=5)
        assert set(self.phases().values()) == {JobPhase.RUNNING}

    async def report(self, name: str, **more: Any) -> None:
        """A coordinator is heard."""
        self.sequence += 1
        coordinator = self.controller(name).coordinator
        if not coordinator.reports.connected:
            coordinator.note_connection_change(True, "")
        milestones = more.pop("milestones", [])
        state = wire.CoordinatorState(**{"controller_ready": True, "attempt": 1, "step": 0, **more})
        self.states[name] = state
        coordinator.apply_report(wire.Report(sequence=self.sequence, state=state, milestones=milestones))
        await self.pass_time(0.01)

    def repeat(self, name: str) -> None:
        """A coordinator reports once more what it has reported."""
        self.sequence += 1
        report = wire.Report(sequence=self.sequence, state=self.states[name])
        self.controller(name).coordinator.apply_report(report)

    async def silence(self, *those: str) -> None:
        """Their channels go down."""
        for name in those:
            self.controller(name).coordinator.note_connection_change(False, "it said nothing for 2.5 s")
        await self.pass_time(0.01)

    async def pass_time(self, seconds: float, *heard: str) -> None:
        """Time passes, half a second at a time, and the operator looks at itself; `heard` report all the while."""
        end = self.clock.monotonic() + seconds
        while (rest := end - self.clock.monotonic()) > 0:
            await self.clock.advance(min(rest, 0.5))
            for name in heard:
                self.repeat(name)
            self.core.count_coordinators()
            await settle()

    def condition(self, name: str) -> tuple[str, str]:
        status = self.kube.objects[names.PLURAL, NAMESPACE, name]["status"]
        (found,) = [each for each in status["conditions"] if each["type"] == "CoordinatorReady"]
        return found["reason"], found["message"]

    def pods(self) -> set[str]:
        return {name for resource, _, name in self.kube.objects if resource == "pods"}


@pytest.fixture
async def city() -> AsyncIterator[City]:
    town = ControllerTown()
    await town.controller.stop_managing()
    made = City(town)
    await made.train()
    yield made
    await made.core.close_controllers()


async def test_an_operator_that_is_cut_off_restarts_no_job(city: City) -> None:
    before = city.pods()
    await city.silence(*JOBS)
    await city.pass_time(600)
    assert set(city.phases().values()) == {JobPhase.RUNNING}
    assert city.pods() == before
    assert city.suspicion.offers.startswith("3 of 3 coordinators cannot be reached")


async def test_a_cut_off_operator_says_so(city: City) -> None:
    await city.silence(*JOBS)
    await city.pass_time(10)
    reason, message = city.condition("one")
    assert reason == "Unreachable"
    assert "this operator considers itself cut off" in message
    assert city.town.events.reasons.count("OperatorCutOff") == 3


async def test_a_job_that_is_reached_is_looked_after_all_the_while(city: City) -> None:
    await city.silence("one", "two")
    await city.pass_time(100, "three")
    fact = wire.Fact(id="x", kind=wire.PROCESS_EXITED, node_rank=1, ranks=[2], incarnation=1, exit_code=-9, step=5)
    state = wire.CoordinatorState(controller_ready=True, attempt=1, step=5)
    city.controller("three").coordinator.apply_report(wire.Report(sequence=99, state=state, facts=[fact]))
    assert city.phases() == {"one": JobPhase.RUNNING, "two": JobPhase.RUNNING, "three": JobPhase.GATHERING}


async def test_one_lost_coordinator_of_three_is_a_lost_one(city: City) -> None:
    await city.silence("one")
    await city.pass_time(80, "two", "three")
    assert city.suspicion.why_suspect == ""
    assert city.phases() == {"one": JobPhase.UNPROTECTED, "two": JobPhase.RUNNING, "three": JobPhase.RUNNING}


async def test_one_still_silent_afterwards_gets_its_whole_time(city: City) -> None:
    await city.silence(*JOBS)
    await city.pass_time(600)
    for name in ("two", "three"):
        await city.report(name, step=6)
    assert city.suspicion.why_suspect == ""
    await city.pass_time(COORDINATOR_SECONDS, "two", "three")
    assert set(city.phases().values()) == {JobPhase.RUNNING}
    await city.pass_time(20, "two", "three")
    assert city.phases() == {"one": JobPhase.UNPROTECTED, "two": JobPhase.RUNNING, "three": JobPhase.RUNNING}


def put_into(city: City, phase: JobPhase, attempt: int, *those: str) -> None:
    """These jobs are in this phase of this attempt; their coordinators have last spoken in attempt 1."""
    for name in those:
        memory = city.controller(name)._memory
        state = dataclasses.replace(memory.state, phase=phase, attempt=attempt)
        memory.journal = dataclasses.replace(memory.journal, state=state)


@pytest.mark.parametrize(
    ("phase", "attempt", "counts"),
    [
        (JobPhase.RESTARTING, 1, False),
        (JobPhase.PENDING, 2, False),
        (JobPhase.STARTING, 2, False),
        (JobPhase.STARTING, 1, True),
        (JobPhase.SUSPENDED, 1, False),
        (JobPhase.COMPLETE, 1, False),
        (JobPhase.FAILED, 1, False),
        (JobPhase.RUNNING, 1, True),
        (JobPhase.GATHERING, 1, True),
    ],
)
async def test_jobs_without_a_training_say_nothing_of_reach(
    city: City, phase: JobPhase, attempt: int, counts: bool
) -> None:
    put_into(city, phase, attempt, "one", "two")
    await city.silence("one", "two")
    city.core.count_coordinators()
    assert bool(city.suspicion.why_suspect) is counts


async def test_coordinators_that_died_with_their_node_are_lost(city: City) -> None:
    for name in JOBS[:2]:
        pod = next(p for p in city.caches.pods.values() if p.role == "coordinator" and p.job_uid == f"uid-of-{name}")
        node = dataclasses.replace(city.caches.all_nodes[pod.node_name], ready=False)
        city.core.handle_changed_node(node, deleted=False)
    await city.silence("one", "two")
    await city.pass_time(80, "three")
    assert city.phases() == {"one": JobPhase.UNPROTECTED, "two": JobPhase.UNPROTECTED, "three": JobPhase.RUNNING}


async def test_a_pod_lost_meanwhile_waits_until_it_hears_again(city: City) -> None:
    """The API server tells of it; what follows needs a coordinator, and each of them is well."""
    await city.silence("one", "two")
    await city.pass_time(3, "three")
    await city.silence("three")
    await city.pass_time(20)
    for pod in [pod for pod in city.caches.pods.values() if pod.node_rank == 1]:
        city.core.handle_changed_pod(pod, deleted=True)
    await city.pass_time(700)
    assert set(city.phases().values()) == {JobPhase.HELD}
    for name in JOBS:
        await city.report(name, step=6)
    assert set(city.phases().values()) == {JobPhase.GATHERING}
