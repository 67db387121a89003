"""What is seen of a job becomes events in one place; what is no news, or no fault, becomes none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from hajob.api import constants as names
from hajob.api.enums import CordonPolicy
from hajob.api.spec import HATrainingJobSpec, Scheduling
from hajob.domain.facts import FactKind
from hajob.plan import events
from hajob.plan.policy import Policy
from hajob.plan.state import JobPhase, JobState, Shrunk
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources import observe
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView

NOW = 5_000
PODS = {
    rank: PodView(
        "ns", f"pod-{rank}", f"uid-{rank}", "job", names.ROLE_RANK, rank, 1, phase="Running", address="10.0.0.1",
        node_name=f"node-{rank}",
    )
    for rank in range(4)
}  # fmt: skip


def kinds(seen: object) -> list[str]:
    return [type(event).__name__ for event in seen]  # type: ignore[attr-defined]


def facts(seen: object) -> list[FactKind]:
    return [event.fact.kind for event in seen]  # type: ignore[attr-defined]


def in_phase(phase: JobPhase, **more: object) -> JobState:
    return JobState(phase=phase, attempt=1, incarnation=1, base=1, **more)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- of_spec


SPEC = HATrainingJobSpec.model_construct(suspend=False, restart_request_time=None)
ASKED = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("phase", "suspend", "event"),
    [
        (JobPhase.NEW, False, "Accepted"),
        (JobPhase.NEW, True, "SuspendRequested"),
        (JobPhase.RUNNING, True, "SuspendRequested"),
        (JobPhase.GATHERING, True, "SuspendRequested"),
        (JobPhase.SAVING, True, ""),
        (JobPhase.SUSPENDED, True, ""),
        (JobPhase.SUSPENDED, False, "ResumeRequested"),
        (JobPhase.COMPLETE, True, ""),
        (JobPhase.RUNNING, False, ""),
    ],
)
def test_what_the_spec_asks_is_told_until_it_is_followed(phase: JobPhase, suspend: bool, event: str) -> None:
    spec = SPEC.model_copy(update={"suspend": suspend})
    assert kinds(observe.events_of_spec(in_phase(phase), spec, "")) == ([event] if event else [])


def test_a_restart_is_asked_for_once_and_never_of_a_new_job() -> None:
    spec = SPEC.model_copy(update={"restart_request_time": ASKED})
    seen = observe.restart_asked(spec)
    assert kinds(observe.events_of_spec(in_phase(JobPhase.RUNNING), spec, "")) == ["RestartRequested"]
    assert kinds(observe.events_of_spec(in_phase(JobPhase.RUNNING), spec, seen)) == []
    assert kinds(observe.events_of_spec(in_phase(JobPhase.NEW), spec, "")) == ["Accepted"]


def excluding(*nodes: str) -> HATrainingJobSpec:
    return SPEC.model_copy(update={"scheduling": Scheduling(excluded_node_names=nodes)})


@pytest.mark.parametrize(
    ("phase", "excluded", "moved"),
    [
        (JobPhase.RUNNING, ("node-1", "node-3", "node-9"), [(1, 3)]),
        (JobPhase.RUNNING, ("node-9",), []),
        (JobPhase.RUNNING, (), []),
        (JobPhase.GATHERING, ("node-1",), []),
        (JobPhase.MIGRATING, ("node-1",), []),
    ],
)
def test_pods_on_excluded_nodes_are_to_be_moved(
    phase: JobPhase, excluded: tuple[str, ...], moved: list[tuple[int, ...]]
) -> None:
    seen = list(observe.events_of_moves(in_phase(phase), excluding(*excluded), PODS, ()))
    assert [event.nodes for event in seen] == moved
    assert all(event.avoid == excluded for event in seen)


# -------------------------------------------------------------------------------------------- pods and nodes


def test_a_gone_pod_is_lost_and_a_running_one_says_nothing() -> None:
    assert facts(observe.events_of_pod(PODS[0], deleted=True, now_ms=NOW)) == [FactKind.POD_LOST]
    assert facts(observe.events_of_pod(PODS[0], deleted=False, now_ms=NOW)) == []


def test_a_pod_being_deleted_is_a_loss_in_the_making() -> None:
    dying = replace(PODS[0], deleting=True)
    (early,) = observe.events_of_pod(dying, deleted=False, now_ms=NOW)
    (late,) = observe.events_of_pod(dying, deleted=True, now_ms=NOW)
    assert isinstance(early, events.FactSeen)
    assert isinstance(late, events.FactSeen)
    assert (early.fact.kind, early.fact.id) == (FactKind.POD_LOST, late.fact.id)
    assert facts(observe.events_of_pod(replace(dying, exit_code=0), deleted=False, now_ms=NOW)) == []


@pytest.mark.parametrize(
    ("exit_code", "kind"),
    [(64, FactKind.SCRIPT_ENDED), (65, FactKind.SCRIPT_ENDED), (1, FactKind.POD_FAILED), (137, FactKind.POD_FAILED)],
)
def test_a_pod_that_trained_nothing_is_the_end_of_its_script(exit_code: int, kind: FactKind) -> None:
    pod = replace(PODS[0], phase="Failed", exit_code=exit_code, trouble_code="Error", trouble="container trainer: hi")
    (seen,) = observe.events_of_pod(pod, deleted=False, now_ms=NOW)
    assert isinstance(seen, events.FactSeen)
    assert (seen.fact.kind, seen.fact.message) == (kind, "container trainer: hi")
    assert seen.fact.unexplained is (exit_code != 137), "a rank's last lines may tell why"


@pytest.mark.parametrize(
    ("pod", "deleted", "told"),
    [
        (PodView("ns", "c", "u", "job", names.ROLE_COORDINATOR, -1, 1, phase="Running"), False, []),
        (PodView("ns", "c", "u", "job", names.ROLE_COORDINATOR, -1, 1, phase="Running"), True, [False]),
        (PodView("ns", "c", "u", "job", names.ROLE_COORDINATOR, -1, 1, phase="Failed", exit_code=1), False, [True]),
        (PodView("ns", "c", "u", "job", names.ROLE_COORDINATOR, -1, 1, phase="Failed", exit_code=1), True, [False]),
    ],
)
def test_a_coordinator_is_lost_when_its_pod_ended_or_went(pod: PodView, deleted: bool, told: list[bool]) -> None:
    seen = list(observe.events_of_coordinator_pod(pod, deleted=deleted))
    assert [event.program for event in seen if isinstance(event, events.CoordinatorLost)] == told


def test_a_coordinator_pod_says_whether_it_has_a_node() -> None:
    pod = PodView("ns", "c", "u", "job", names.ROLE_COORDINATOR, -1, 1)
    assert kinds(observe.events_of_coordinator_pod(pod, deleted=False)) == []
    unplaced = replace(pod, unschedulable="0/4 nodes are available")
    assert kinds(observe.events_of_coordinator_pod(unplaced, deleted=False)) == ["CoordinatorUnplaced"]
    assert kinds(observe.events_of_coordinator_pod(replace(pod, node_name="n"), deleted=False)) == ["CoordinatorPlaced"]


def test_the_end_is_when_every_rank_that_trains_has_succeeded() -> None:
    running = in_phase(JobPhase.RUNNING)
    assert kinds(observe.events_of_end(running, 4, {0, 1, 2, 3}, PODS)) == ["PodsFinished"]
    assert kinds(observe.events_of_end(running, 4, {0, 1, 3}, PODS)) == []
    assert kinds(observe.events_of_end(running, 5, {0, 1, 2, 3}, PODS)) == []
    shrunk = in_phase(JobPhase.SHRUNK, shrunk=Shrunk(nodes=(2,)))
    assert kinds(observe.events_of_end(shrunk, 4, {0, 1, 3}, PODS)) == ["PodsFinished"]
    assert kinds(observe.events_of_end(shrunk, 4, {0, 1, 2}, PODS)) == []
    assert kinds(observe.events_of_end(in_phase(JobPhase.COMPLETE), 4, {0, 1, 2, 3}, PODS)) == []


def test_only_a_never_started_pod_is_stranded_on_a_dead_node() -> None:
    nodes = {f"node-{rank}": NodeView(f"node-{rank}", ready=rank != 1) for rank in range(4)}
    assert list(observe.events_of_nodes(PODS.values(), nodes, NOW)) == []
    waiting = {rank: replace(pod, address="", phase="Pending") for rank, pod in PODS.items()}
    assert facts(observe.events_of_nodes(waiting.values(), nodes, NOW)) == [FactKind.NODE_NOT_READY]
    unknown = replace(waiting[1], node_name="unheard-of")
    assert list(observe.events_of_nodes([unknown], nodes, NOW)) == []
    assert facts(observe.events_of_nodes([unknown, PODS[1]], nodes, NOW, gone=True)) == [FactKind.NODE_DELETED]


@pytest.mark.parametrize(
    ("capacity_ms", "free", "told"),
    [(0, 1, ["CapacityAvailable"]), (0, 0, []), (7, 1, []), (7, 0, ["CapacityLost"])],
)
def test_capacity_is_told_when_it_comes_and_when_it_goes(capacity_ms: int, free: int, told: list[str]) -> None:
    shrunk = Shrunk(nodes=(0,), lost_nodes=(0,), capacity_ms=capacity_ms)
    assert kinds(observe.events_of_capacity(in_phase(JobPhase.SHRUNK, shrunk=shrunk), Policy(), lambda: free)) == told


def test_a_job_at_full_size_does_not_count_nodes() -> None:
    def count() -> int:
        raise AssertionError("asked")

    assert list(observe.events_of_capacity(in_phase(JobPhase.RUNNING), Policy(), count)) == []


# ------------------------------------------------------------------------------------------------ coordinator


def silent(node_rank: int) -> wire.Report:
    fact = wire.Fact(id="silent", kind=wire.AGENT_SILENT, node_rank=node_rank, incarnation=1)
    return wire.Report(facts=[fact])


def test_facts_get_their_node_and_finished_pods_may_be_silent() -> None:
    (seen,) = observe.events_of_report(silent(2), PODS, NOW).observed
    assert isinstance(seen.event, events.FactSeen)
    assert seen.event.fact.node_name == "node-2"
    finished = {**PODS, 2: replace(PODS[2], exit_code=0)}
    assert observe.events_of_report(silent(2), finished, NOW).observed == ()


def test_a_milestone_that_is_only_a_mark_is_no_event() -> None:
    report = wire.Report(milestones=[wire.Milestone(kind=wire.STEP_BEFORE, step=7)])
    (seen,) = observe.events_of_report(report, PODS, NOW).observed
    assert (seen.event, seen.step_before) == (None, 7)


def told(state: JobState, before: observe.Heard, **now: object) -> list[str]:
    heard = before.after_report(wire.CoordinatorState(**now))  # type: ignore[arg-type]
    return kinds(observe.events_of_coordinator(state, before, heard, 4))


def test_a_serving_controller_is_told_once_and_after_each_gap() -> None:
    state, serving = in_phase(JobPhase.RUNNING), observe.Heard(serving=True)
    assert told(state, observe.Heard(), controller_ready=True) == ["CoordinatorReady"]
    assert told(state, serving, controller_ready=True) == []
    assert told(state, serving.after_loss(), controller_ready=True) == ["CoordinatorReady"]


def test_a_checkpoint_is_news_when_an_older_one_was_known() -> None:
    state = in_phase(JobPhase.RUNNING)
    found, first = wire.CheckpointState(step=40, tracked=True), observe.Heard(serving=True)
    assert told(state, first, checkpoint=found) == []
    assert told(state, replace(first, checkpoint=20), checkpoint=found) == ["CheckpointVerified"]
    assert told(state, replace(first, checkpoint=40), checkpoint=found) == []
    unread = wire.CheckpointState(step=60, problem="read-only")
    after = replace(first, checkpoint=40).after_report(wire.CoordinatorState(checkpoint=unread))
    assert after.checkpoint == 40


def test_a_start_goes_on_by_the_coordinators_word_on_its_attempt() -> None:
    nodes = [wire.NodeState(connected=True, launcher_ready=True)] * 4
    ready: dict[str, object] = {"controller_ready": True, "nodes": nodes}
    serving, pending = observe.Heard(serving=True), in_phase(JobPhase.PENDING)
    assert told(pending, serving, attempt=1, **ready) == ["PodsReady"]
    assert told(pending, serving, attempt=2, **ready) == []
    assert told(pending, serving, attempt=1, **{**ready, "nodes": nodes[:3]}) == []
    assert told(in_phase(JobPhase.WARMING), serving, attempt=1, step=1) == ["Resumed"]
    assert told(in_phase(JobPhase.WARMING), serving, attempt=1, step=0) == []
    broken = [wire.Problem(code="ImageUnusable"), wire.Problem(code="CopiesNotRegistered")]
    assert told(pending, serving, attempt=1, problems=broken) == ["Unworkable"]


@pytest.mark.parametrize(
    ("phase", "more", "news"),
    [
        (JobPhase.RUNNING, {"step": 9}, False),
        (JobPhase.RUNNING, {"step": 9, "nodes": [wire.NodeState(ranks=[wire.RankState(step=9)])]}, False),
        (JobPhase.WARMING, {}, True),
        (JobPhase.RUNNING, {"controller_ready": False}, True),
        (JobPhase.RUNNING, {"controller_problem": "gone"}, True),
        (JobPhase.RUNNING, {"checkpoint": wire.CheckpointState(step=20)}, True),
        (JobPhase.RUNNING, {"problems": [wire.Problem(code="ImageUnusable")]}, True),
        (JobPhase.RUNNING, {"launched": ["train.py"]}, True),
    ],
)
def test_what_every_step_changes_is_no_news(phase: JobPhase, more: dict[str, object], news: bool) -> None:
    known: dict[str, object] = {"controller_ready": True, "attempt": 1, "step": 8}
    before = observe.Heard().after_report(wire.CoordinatorState(**known))  # type: ignore[arg-type]
    report = wire.Report(state=wire.CoordinatorState(**{**known, **more}))  # type: ignore[arg-type]
    assert observe.is_report_news(in_phase(phase), report, before) is news


def test_facts_milestones_and_what_never_passes_are_news() -> None:
    state, before = in_phase(JobPhase.RUNNING), observe.Heard()
    assert not observe.is_report_news(state, wire.Report(), before)
    assert observe.is_report_news(state, wire.Report(facts=[wire.Fact()]), before)
    assert observe.is_report_news(state, wire.Report(milestones=[wire.Milestone()]), before)
    broken = wire.CoordinatorState(problems=[wire.Problem(code="ImageUnusable")])
    assert observe.is_report_news(state, wire.Report(state=broken), before.after_report(broken))


@pytest.mark.parametrize(
    ("policy", "ready", "moved"), [("Migrate", True, (1,)), ("Ignore", True, ()), ("Migrate", False, ())]
)
def test_a_cordoned_node_is_left_as_the_policy_says(policy: str, ready: bool, moved: tuple[int, ...]) -> None:
    spec = SPEC.model_copy(
        update={"recovery": SPEC.recovery.model_copy(update={"cordon_policy": CordonPolicy(policy)})}
    )
    cordoned = NodeView(PODS[1].node_name, ready=ready, unschedulable=True)
    drained = [pod for pod in PODS.values() if observe.is_node_drained(pod, {cordoned.name: cordoned})]
    seen = list(observe.events_of_moves(in_phase(JobPhase.RUNNING), spec, PODS, drained))
    assert [move.nodes for move in seen] == ([moved] if moved else [])
