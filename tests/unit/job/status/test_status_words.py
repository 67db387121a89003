"""The columns of kubectl: state and reason say in two words what a person would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.api.conditions import Reason
from hajob.api.enums import ConditionStatus
from hajob.api.status import ActionRecoverability, HATrainingJobStatus
from hajob.domain.actions import Action
from hajob.domain.facts import FactKind, Origin
from hajob.domain.incidents import Cause, Incident, IncidentOutcome, Purpose
from hajob.domain.timeline import Mark
from hajob.job.status.build import Snapshot, build_status
from hajob.job.status.incidents import Record
from hajob.job.status.summary import protection_in_a_word, step_time_in_words
from hajob.plan.state import JobPhase, JobState
from hajob.sources.creation import NotCreated
from hajob.sources.pod import PodView
from tests.rigs.example_jobs import example_job

JOB = example_job("quickstart")
POD = PodView("team", "job-0", "uid", JOB.metadata.uid, names.ROLE_RANK, 0, 1)
PENDING = JobState(phase=JobPhase.PENDING, attempt=1)


NO_CLAIM = '0/6 nodes are available: persistentvolumeclaim "data" not found. not found'


def status(state: JobState = PENDING, **fields: Any) -> HATrainingJobStatus:
    return build_status(Snapshot(JOB, state, 1, 600_000, **fields))


def words(state: JobState = PENDING, **fields: Any) -> tuple[str, str]:
    summary = status(state, **fields).summary
    assert summary is not None
    return summary.state, summary.reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, ""),
        ({"pods": [replace(POD, gate=0)]}, "NoCapacity"),
        ({"pods": [replace(POD, unschedulable="0/6 nodes are available: 6 node(s) were full.")]}, "NoCapacity"),
        ({"pods": [replace(POD, unschedulable=NO_CLAIM)], "shortfall": "needs 2 nodes"}, "NoVolume"),
        ({"pods": [POD], "unsatisfiable": "none of 8 nodes has example.com/npu"}, "Unsatisfiable"),
        ({"not_created": NotCreated("exceeded quota", over_quota=True)}, "NoQuota"),
        ({"not_created": NotCreated("a webhook says no")}, "PodsNotCreated"),
        ({"pods": [replace(POD, node_name="node-1", trouble_code="ErrImagePull")]}, "ImagePull"),
        (
            {"pods": [replace(POD, node_name="node-1", trouble_code="CreateContainerConfigError")]},
            "CreateContainerConfigError",
        ),
        ({"pods": [replace(POD, node_name="node-1", phase="Succeeded", exit_code=0)]}, "ScriptEnded"),
    ],
)
def test_a_pending_job_says_what_it_waits_for(fields: dict[str, Any], reason: str) -> None:
    assert words(**fields) == ("Pending", reason)


def test_what_waits_for_a_volume_speaks_of_no_nodes() -> None:
    told = status(pods=[replace(POD, unschedulable=NO_CLAIM)], shortfall="needs 2 nodes; 13 are free")
    (found,) = [each for each in told.conditions if each.type == "Scheduled"]
    assert found.reason == "WaitingForVolume"
    assert found.message == 'pod job-0 waits for its volume: persistentvolumeclaim "data" not found'


def test_a_refused_job_says_by_whom() -> None:
    state = JobState(phase=JobPhase.PENDING)
    assert words(state, accepted=Reason.POD_REFUSED) == ("Refused", "PodRefused")


def test_a_failed_job_says_what_failed() -> None:
    failed = JobState(phase=JobPhase.FAILED, attempt=2)
    assert words(failed, failed_reason="ProgramFailures", failed_message="nan") == ("Failed", "ProgramFailed")


def test_no_node_that_fits_is_told_before_all_else() -> None:
    found = status(pods=[POD], unsatisfiable="none of 8 nodes has example.com/npu")
    scheduled = next(one for one in found.conditions if one.type == "Scheduled")
    assert (scheduled.status, scheduled.reason) == ("False", "Unsatisfiable")
    assert scheduled.message == "can never start: none of 8 nodes has example.com/npu"


def test_a_silent_volcano_is_told_with_its_queue() -> None:
    """Its scheduler is away: a replacement says nothing, and the PodGroup still says that it runs."""
    job = example_job("quickstart", scheduling={"gangPolicy": "Volcano", "queueName": "research"})
    coordinator = replace(POD, name="job-coordinator", role=names.ROLE_COORDINATOR, node_rank=-1)

    def told(*pods: PodView) -> str:
        found = build_status(Snapshot(job, PENDING, 1, 600_000, pods=pods))
        return next(one.message for one in found.conditions if one.type == "Scheduled")

    assert told(replace(POD, node_name="node-1"), replace(POD, name="job-1", node_rank=1)) == (
        "queue research of Volcano: pods without a node yet: 1 of 2, "
        "and Volcano has not said why: does its scheduler run?"
    )
    assert told(replace(POD, node_name="node-1"), coordinator) == "pods without a node yet: 1 of 2", (
        "that one is not its"
    )


def test_a_checkpoint_keeps_the_time_of_its_first_sight() -> None:
    first = status(JobState(phase=JobPhase.RUNNING, attempt=1), step=40, checkpoint_step=30, step_ms=1_423)
    job = JOB.model_copy(update={"status": first})
    later, newer = (
        build_status(Snapshot(job, PENDING, 1, 900_000, step=60, checkpoint_step=saved)).progress for saved in (30, 60)
    )
    assert first.progress is not None
    assert later is not None
    assert newer is not None
    assert (first.progress.step_milliseconds, later.checkpoint_time) == (1_423, first.progress.checkpoint_time)
    assert newer.checkpoint_time == newer.observed_time


def test_wide_columns_count_nodes_and_spares() -> None:
    pods = [replace(POD, name=f"job-{number}", node_name=f"node-{number}") for number in range(3)]
    summary = status(JobState(phase=JobPhase.RUNNING, attempt=1), pods=pods).summary
    assert summary is not None
    assert (summary.nodes, summary.spares) == (f"3/{JOB.spec.num_nodes}", "")


@pytest.mark.parametrize(("milliseconds", "told"), [(None, ""), (103, "103ms"), (1_423, "1.42s"), (61_000, "61.00s")])
def test_step_times_are_short(milliseconds: int | None, told: str) -> None:
    assert step_time_in_words(milliseconds) == told


@pytest.mark.parametrize(
    ("statuses", "told"),
    [
        ([], ""),
        ([ConditionStatus.TRUE, ConditionStatus.UNKNOWN], "Full"),
        ([ConditionStatus.TRUE, ConditionStatus.FALSE], "Partial"),
        ([ConditionStatus.FALSE, ConditionStatus.FALSE], "None"),
    ],
)
def test_protection_in_a_word(statuses: list[ConditionStatus], told: str) -> None:
    actions = (Action.RETRY, Action.REPLACE)
    evaluated = [
        ActionRecoverability(action=action, status=one) for action, one in zip(actions, statuses, strict=False)
    ]
    assert protection_in_a_word(evaluated) == told


MOVED = Incident(
    *(2, 2, 1, Purpose.FAULT, Origin.INFRASTRUCTURE, Action.REPLACE),
    Cause(FactKind.AGENT_SILENT, code="AgentSilent", node_name="node-0", first_rank=0, num_ranks=2, step=41),
    opened_ms=500_000,
    replaced_nodes=(0,),
)
RECORD = Record(MOVED, {Mark.NOTICED: 500_000})


def test_an_incident_names_the_nodes_its_step_and_its_end() -> None:
    running = JobState(phase=JobPhase.RUNNING, attempt=1)
    lost = replace(POD, node_name="node-0")
    taken = replace(POD, name="job-0-2", node_name="node-7", incarnation=2)
    opened = status(running, pods=[lost], record=RECORD)
    job = JOB.model_copy(update={"status": opened})
    over = replace(RECORD.with_mark(Mark.RESUMED, 506_200), outcome=IncidentOutcome.RECOVERED)
    closed = build_status(Snapshot(job, running, 1, 600_000, pods=[taken], record=over))
    later = JOB.model_copy(update={"status": closed})
    moved = replace(taken, node_name="node-9")
    found = build_status(Snapshot(later, running, 1, 900_000, pods=[moved], record=over)).incidents[0]
    assert opened.incidents[0].end_time is None
    assert found == closed.incidents[0], "what is over does not change"
    assert (found.from_nodes, found.to_nodes, found.step) == (("node-0",), ("node-7",), 41)
    assert found.end_time is not None
    assert found.end_time.timestamp() == 506.2
    assert found.message == (
        "node-0 fell silent; ranks 0-1 go to another node (Replace); training again after 6.2 s, no step lost"
    )


def test_a_coordinator_counts_for_images_and_not_for_nodes() -> None:
    coordinator = replace(POD, role=names.ROLE_COORDINATOR, node_rank=-1, node_name="cpu-0")
    assert words(pods=[POD, coordinator], unsatisfiable="none has it") == ("Pending", "Unsatisfiable")
    pulls = replace(coordinator, trouble_code="ImagePullBackOff")
    found = status(pods=[replace(POD, gate=0), pulls]).summary
    assert found is not None
    assert (found.reason, found.nodes) == ("ImagePull", "0/4")


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ("", "KeyError: the vocabulary (found by MindIO, node-2, rank 1)"),
        (
            "recover failed: 406 do last repair failed!",
            "KeyError: the vocabulary (found by MindIO, node-2, rank 1; recover failed: 406 do last repair failed!)",
        ),
        ("two\nlines", "KeyError: the vocabulary (found by MindIO, node-2, rank 1)\ntwo\nlines"),
    ],
)
def test_the_cause_comes_before_what_an_action_came_to(problem: str, told: str) -> None:
    cause = Cause(
        FactKind.PROCESS_FAULT,
        message="found by MindIO: KeyError: the vocabulary",
        node_name="node-2",
        first_rank=1,
        num_ranks=1,
    )
    incident = Incident(2, 2, 1, Purpose.FAULT, Origin.PROGRAM, Action.RESTART, cause, opened_ms=0)
    state = JobState(phase=JobPhase.RESTARTING, attempt=1, incident=incident, problem=problem)
    (running,) = [each for each in status(state).conditions if each.type == "Running"]
    assert running.message == told
