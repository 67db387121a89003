"""What is edited on a running job reaches whoever needs it within two seconds, one row for each field.

The table is complete: a field that can be edited and has no row fails a test, and so does a row whose field reaches
somebody else than it says. docs/user/hatrainingjob.md, "Editing a job", tells people the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import pytest
from pydantic import BaseModel

from e2e.memory_api.requests import Request
from hajob.api.job import HATrainingJob
from hajob.api.spec import HATrainingJobSpec
from hajob.job.status.journal import read_journal
from hajob.kube.client import ApiError
from hajob.plan.state import JobPhase
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.hook_pod import build_hook_pod
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from hajob.pods.spare_pod import build_spare_pod
from hajob.protocol import sidecar_pb2 as wire
from tests.rigs.job_controller import ControllerTown, condition_of, death_of_rank, settle_town

SECONDS: Final = 2.0
"""Within so long of virtual time everybody knows."""

IMMUTABLE: Final = frozenset(
    {"framework", "accelerator", "numNodes", "parallelism", "optimizer", "launcher", "managedBy", "checkpoint"}
) | {"network.agentPort", "network.mindIOTLSPolicy", "network.rankTablePolicy", "template"}
"""The server refuses an edit (hajob.api.spec.SPEC_RULES); the template may be edited while the job is suspended."""

HOOK: Final = {"spec": {"containers": [{"name": "work", "image": "example/rails:1"}]}}
PAUSE: Final = {"requestTime": "2030-01-01T00:00:00Z"}

PLANNER, COORDINATOR, AGENTS, RANKS = "planner", "coordinator", "agents", "ranks"
RANK_POD, COORDINATOR_POD, SPARE_POD, HOOK_POD = "rank pod", "coordinator pod", "spare pod", "hook pod"
STATE, STATUS, PODS = "state", "status", "pods"

EDITS: Final[dict[str, tuple[Any, set[str]]]] = {
    "model.parameters": (7_000_000_000, {STATUS}),
    "suspend": (True, {STATE}),
    "restartRequestTime": ("2030-01-01T00:00:00Z", {STATE}),
    "restartCheckpointPolicy": ("Required", set()),
    "finishTimeoutSeconds": (7200, {PLANNER}),
    "startupDeadlineSeconds": (60, {PLANNER}),
    "activeDeadlineSeconds": (86_400, {PLANNER, STATE}),
    "ttlSecondsAfterFinished": (60, set()),
    "scheduling.gangPolicy": ("None", set()),
    "scheduling.queueName": ("research", set()),
    "scheduling.numSpareNodes": (1, {PODS, STATUS}),
    "scheduling.spareMode": ("Warm", {SPARE_POD}),
    "scheduling.capacityTimeoutSeconds": (600, {PLANNER}),
    "scheduling.waitingPodPolicy": ("Release", {PLANNER}),
    "scheduling.excludedNodeNames": (["node-77"], {RANK_POD, SPARE_POD, COORDINATOR_POD}),
    "recovery.mode": ("Observe", {PLANNER, COORDINATOR, STATUS}),
    "recovery.actions": (
        [{"name": "InPlace", "maxCount": 0}, {"name": "Retry", "maxCount": 0}],
        {PLANNER, COORDINATOR, RANKS},
    ),
    "recovery.maxProgramFailures": (7, {PLANNER}),
    "recovery.replacementTimeoutSeconds": (600, {PLANNER, COORDINATOR}),
    "recovery.subHealthPolicy": ("Ignore", {PLANNER}),
    "recovery.cordonPolicy": ("Ignore", {PLANNER}),
    "recovery.drainTimeoutSeconds": (60, {PLANNER}),
    "recovery.preemptionTimeoutSeconds": (60, {PLANNER}),
    "recovery.coordinatorLossPolicy": ("Never", {PLANNER}),
    "recovery.hang.stepTimeMultiple": (7, {COORDINATOR}),
    "recovery.hang.minTimeoutSeconds": (77, {COORDINATOR}),
    "recovery.logRules": ([{"name": "nan", "pattern": "loss: nan"}], {PLANNER, AGENTS}),
    "elastic.policy": ("Disabled", {PLANNER, RANKS}),
    "elastic.minDataParallel": (2, {PLANNER}),
    "elastic.shrunkPodPolicy": ("Release", {PLANNER}),
    "elastic.expandDelaySeconds": (7, {PLANNER}),
    "elastic.restartSize": ("Available", {PLANNER}),
    "pause": ({**PAUSE, "template": HOOK}, {STATE, HOOK_POD}),
    "coordinator.resources.requests": ({"cpu": "7"}, {COORDINATOR_POD}),
    "coordinator.resources.limits": ({"cpu": "7"}, {COORDINATOR_POD}),
    "coordinator.nodeSelector": ({"kind": "cpu"}, {COORDINATOR_POD}),
    "coordinator.tolerations": ([{"operator": "Exists"}], {COORDINATOR_POD}),
    "coordinator.priorityClassName": ("high", {COORDINATOR_POD}),
    "coordinator.pythonPath": ("/opt/python", {COORDINATOR_POD}),
    "agent.resources.requests": ({"cpu": "7"}, {RANK_POD, SPARE_POD, COORDINATOR_POD}),
    "agent.resources.limits": ({"cpu": "7"}, {RANK_POD, SPARE_POD, COORDINATOR_POD}),
    "network.interface": ("eth7", {RANKS}),
    "network.coordinatorPort": (7777, {COORDINATOR_POD}),
    "network.mindIOPort": (7777, {PLANNER, RANK_POD, COORDINATOR_POD}),
    "network.rendezvousPort": (7777, {RANKS, RANK_POD, COORDINATOR_POD}),
    "output.path": ("/logs", {RANK_POD}),
    "output.attemptLimit": (7, {RANK_POD}),
}


@pytest.fixture
async def town() -> AsyncIterator[ControllerTown]:
    made = ControllerTown()
    yield made
    await made.controller.stop_managing()


async def edit(town: ControllerTown, field: str, value: Any) -> None:
    """Edit one field of the job as a person would, and let two seconds pass."""
    stored = town.stored()
    place = stored["spec"]
    *parents, last = field.split(".")
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = value
    stored["metadata"]["generation"] += 1
    town.controller.apply_job(HATrainingJob.from_object(deepcopy(stored)))
    await town.clock.advance(SECONDS)


def assignment(town: ControllerTown) -> wire.Assignment:
    return town.links[-1].assignments[-1]


def built(build: Callable[[HATrainingJob, PodSettings], Any]) -> Callable[[ControllerTown], Any]:
    """A pod that would be made now."""

    def look(town: ControllerTown) -> Any:
        try:
            return build(town.controller.job, PodSettings(sidecar_image="hajob/sidecar:dev"))
        except ValueError:
            return None  # no hook is asked for

    return look


KNOWERS: Final[dict[str, Callable[[ControllerTown], Any]]] = {
    PLANNER: lambda town: town.controller.policy,
    COORDINATOR: lambda town: (assignment(town).standing_orders, assignment(town).hang_rule),
    AGENTS: lambda town: list(assignment(town).log_rules),
    RANKS: lambda town: dict(assignment(town).environment),
    RANK_POD: built(lambda job, settings: build_rank_pod(job, 0, 7, settings)),
    COORDINATOR_POD: built(lambda job, settings: coordinator_pod(job, 7, settings)),
    SPARE_POD: built(lambda job, settings: build_spare_pod(job, 0, settings)),
    HOOK_POD: built(lambda job, _settings: build_hook_pod(job, 0, "node-1", 7)),
    STATE: lambda town: (town.controller.state.phase, dict(town.controller.state.deadlines)),
    STATUS: lambda town: (town.status()["effective"], town.status().get("spares"), held(town)),
    PODS: lambda town: sorted(pod.name for pod in town.pods()),
}


def held(town: ControllerTown) -> str:
    return next(str(one["reason"]) for one in town.status()["conditions"] if one["type"] == "Held")


def known(town: ControllerTown) -> dict[str, Any]:
    return {name: deepcopy(look(town)) for name, look in KNOWERS.items()}


def fields(model: type[BaseModel] = HATrainingJobSpec, before: str = "") -> Iterator[str]:
    """Names of all editable fields, as they stand in a manifest: leaves of the spec."""
    for name, field in model.model_fields.items():
        path = f"{before}{field.alias or name}"
        if path in IMMUTABLE:
            continue
        kind = field.annotation
        kinds = [kind] if get_origin(kind) is tuple else [kind, *get_args(kind)]
        inner = [one for one in kinds if isinstance(one, type) and issubclass(one, BaseModel)]
        yield from fields(inner[0], f"{path}.") if inner and path != "pause" else (path,)


def test_every_editable_field_has_a_row() -> None:
    assert sorted(fields()) == sorted(EDITS)


@pytest.mark.parametrize("field", EDITS)
async def test_an_edit_reaches_whoever_needs_it(town: ControllerTown, field: str) -> None:
    value, who = EDITS[field]
    await town.train()
    before = known(town)
    await edit(town, field, value)
    after = known(town)
    assert {name for name in KNOWERS if before[name] != after[name]} == who
    assert town.status()["observedGeneration"] == 2


@pytest.mark.parametrize("phase", [phase for phase in JobPhase if phase not in {JobPhase.NEW, JobPhase.DELETED}])
async def test_the_generation_is_observed_in_every_phase(town: ControllerTown, phase: JobPhase) -> None:
    await town.train()
    await town.controller.stop_managing()
    journal = read_journal(town.status()["journal"]).journal
    town.status()["journal"] = replace(journal, state=replace(journal.state, phase=phase)).to_text(0)
    town.open()
    assert town.controller.state.phase is phase
    await edit(town, "recovery.maxProgramFailures", 7)
    assert town.status()["observedGeneration"] == 2


async def test_what_was_edited_while_no_operator_ran_is_observed(town: ControllerTown) -> None:
    await town.train()
    await town.controller.stop_managing()
    stored = town.stored()
    stored["spec"]["recovery"] = {"logRules": [{"name": "nan", "pattern": "loss: nan"}], "mode": "Observe"}
    stored["metadata"]["generation"] += 1
    town.open()
    await settle_town(town)
    town.controller.coordinator.note_connection_change(True, "")
    await town.clock.advance(SECONDS)
    assert town.status()["observedGeneration"] == 2
    assert held(town) == "ModeObserve"
    assert [rule.name for rule in assignment(town).log_rules] == ["nan"]


async def test_a_held_fault_is_called_a_recovery_once_it_is_one(town: ControllerTown) -> None:
    """Under Observe an Event that names the action as begun would say what is not so."""
    await town.train()
    await edit(town, "recovery.mode", "Observe")
    await town.report(death_of_rank(0), step=5)
    assert ("Observed" in town.events.reasons, "Recovering" in town.events.reasons) == (True, False)
    await edit(town, "recovery.mode", "Enforce")
    assert town.events.reasons.count("Recovering") == 1


async def test_a_pod_that_is_gone_while_faults_are_held_is_missed(town: ControllerTown) -> None:
    await town.train()
    await edit(town, "recovery.mode", "Observe")
    lost = next(pod for pod in town.pods() if pod.node_rank == 2)
    del town.kube.objects["pods", lost.namespace, lost.name]
    town.controller.apply_pod(lost, deleted=True)
    await town.clock.advance(SECONDS)
    assert condition_of(town, "Scheduled")[:2] == ("False", "PodsMissing")
    assert condition_of(town, "Scheduled")[2].endswith("without a pod: 2")


async def test_an_edit_with_which_no_pod_can_be_made_is_told(town: ControllerTown) -> None:
    """The pods that exist stay; the coordinator's next one would be refused, when it is needed."""
    await town.train()
    refusal = ApiError(403, "Forbidden", "no PriorityClass with name nonsense was found")
    told = "pods that Hajob would make now are refused: no PriorityClass with name nonsense"

    def names_it(request: Request) -> bool:
        return request.dry_run and "nonsense" in str(request.body)

    town.kube.server.faults.refuse(refusal, matching=names_it, times=None)
    await edit(town, "coordinator.priorityClassName", "nonsense")
    status, _, message = condition_of(town, "Accepted")
    assert (status, told in message) == ("True", True)
    await edit(town, "coordinator.priorityClassName", "high")
    assert told not in condition_of(town, "Accepted")[2]


async def test_an_edit_without_meaning_for_anybody_is_observed(town: ControllerTown) -> None:
    await town.train()
    await edit(town, "startupDeadlineSeconds", 1800)  # the default, written down
    assert town.status()["observedGeneration"] == 2


def test_the_docs_name_every_field() -> None:
    page = (Path(__file__).parents[3] / "docs/user/hatrainingjob.md").read_text()
    section = page.partition("## Editing a job")[2].partition("\n## ")[0]
    missing = [
        field for field in fields() if f"`{field}`" not in section and f"`{field.rpartition('.')[0]}.*`" not in section
    ]
    assert missing == []
