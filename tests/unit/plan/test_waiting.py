"""A start without quota or nodes waits; what the cluster takes while it starts comes anew alone; active deadlines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import Action
from hajob.domain.facts import FactKind
from hajob.plan import effects as do
from hajob.plan import events as e
from hajob.plan.placements import placements
from hajob.plan.policy import RELEASE_SECONDS, ActionLimits, Mode, Policy
from hajob.plan.state import Deadline, JobPhase, JobState, Waiting
from tests.rigs.plan_moments import starting
from tests.rigs.plan_rig import Rig

DAY_MS = 86_400_000
FULL = e.PlacesMissing(message="of 4 nodes 4 lack huawei.com/Ascend910")


def let_pass(rig: Rig, milliseconds: int) -> None:
    """Every deadline that is due on the way is told."""
    end = rig.now + milliseconds
    while rig.state.deadlines and min(rig.state.deadlines.values()) <= end:
        name = min(rig.state.deadlines, key=lambda key: rig.state.deadlines[key])
        rig.tell(e.DeadlineReached(name=name), max(rig.now, rig.state.deadlines[name]))
    rig.now = end


def test_a_full_cluster_ends_no_job() -> None:
    rig = starting()
    assert rig.tell(FULL) == (do.Announce(EventReason.WAITING_FOR_CAPACITY, FULL.message),)
    assert rig.tell(FULL) == ()
    let_pass(rig, 30 * DAY_MS)
    assert rig.at(JobPhase.PENDING)
    assert (rig.state.spent, rig.state.stalls) == ((), ())


def test_the_start_up_clock_goes_on_where_it_stood() -> None:
    rig = starting(startup_deadline_seconds=100)
    rig.tell(FULL, rig.now + 30_000)
    rig.tell(e.PlacesFound(), rig.now + DAY_MS)
    assert rig.state.waiting is None
    assert rig.state.deadlines[Deadline.STARTUP] == rig.now + 70_000
    let_pass(rig, 70_000)
    assert rig.at(JobPhase.FAILED)


def test_a_wait_may_be_bounded_at_any_time() -> None:
    rig = starting()
    rig.tell(FULL)
    since = rig.now
    rig.policy = replace(rig.policy, capacity_timeout_seconds=3600)
    rig.tell(e.PolicyChanged())
    assert rig.state.deadlines[Deadline.CAPACITY] == since + 3_600_000
    let_pass(rig, 3_600_000)
    assert rig.at(JobPhase.FAILED)
    assert rig.transition is not None
    assert "CapacityTimeoutExceeded" in str(rig.transition.effects)


def test_a_bound_counts_only_while_places_are_missing() -> None:
    rig = starting(capacity_timeout_seconds=60)
    rig.tell(FULL)
    rig.tell(e.PlacesFound())
    assert Deadline.CAPACITY not in rig.state.deadlines


def test_a_restart_without_nodes_waits_as_well() -> None:
    rig = Rig.running()
    rig.exits(5)
    rig.tell(e.ResultReported(2, 499))
    assert rig.at(JobPhase.RESTARTING)
    spent = rig.state.spent
    rig.tell(FULL)
    let_pass(rig, DAY_MS)
    assert rig.at(JobPhase.RESTARTING)
    assert rig.state.spent == spent


def test_a_new_attempt_waits_anew() -> None:
    rig = starting()
    rig.tell(FULL)
    rig.tell(e.RestartRequested())
    assert rig.state.waiting is None
    assert Deadline.STARTUP in rig.state.deadlines


def test_suspending_ends_a_wait() -> None:
    rig = starting(capacity_timeout_seconds=60)
    rig.tell(FULL)
    rig.tell(e.SuspendRequested())
    assert rig.state.waiting is None
    assert rig.state.deadlines == {}


def test_starts_that_never_trained_are_no_lack_of_progress() -> None:
    rig = starting(startup_deadline_seconds=10)
    for _ in range(6):
        rig.see(FactKind.AGENT_SILENT, node=1)
    assert rig.at(JobPhase.RESTARTING)
    assert rig.state.stalls == ()
    assert rig.state.restarts_program == 0


def test_starts_that_take_all_their_time_end_by_name() -> None:
    rig = starting(startup_deadline_seconds=10, limits=dict.fromkeys(Action, ActionLimits(99, 1, 60)))
    rig.see(FactKind.AGENT_SILENT, node=1)
    let_pass(rig, 600_000)
    assert rig.at(JobPhase.FAILED)
    assert rig.transition is not None
    assert "StartupDeadlineExceeded" in str(rig.transition.effects)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (FactKind.POD_LOST, "PodDeleted"),
        (FactKind.POD_FAILED, "Evicted"),
        (FactKind.POD_FAILED, "UnexpectedAdmissionError"),
        (FactKind.POD_FAILED, "OutOfhuawei.com/Ascend910"),
        (FactKind.NODE_NOT_READY, "NodeNotReady"),
        (FactKind.NODE_DELETED, "NodeDeleted"),
    ],
)
@pytest.mark.parametrize("phase", [JobPhase.PENDING, JobPhase.RESTARTING])
def test_a_pod_taken_while_starting_comes_anew_alone(kind: FactKind, code: str, phase: JobPhase) -> None:
    rig = starting()
    if phase is JobPhase.RESTARTING:
        rig.see(FactKind.AGENT_SILENT, node=0)
    before, attempt = rig.served, rig.state.attempt
    rig.see(kind, node=2, code=code)
    assert rig.at(phase)
    number = rig.state.incarnation
    assert rig.served == {**before, 2: number}
    assert number > before[2]
    assert (rig.state.attempt, rig.orders()) == (attempt, [])
    assert rig.state.restarts_infrastructure == int(phase is JobPhase.RESTARTING)


def test_a_pod_that_a_node_refuses_goes_elsewhere_where_it_can() -> None:
    rig = starting()
    rig.view = replace(rig.view, nodes_to_avoid=("node-2",))
    rig.see(FactKind.POD_FAILED, node=2, code="UnexpectedAdmissionError")
    made = placements(rig.state, rig.view.layout.num_nodes).ranks
    assert [(one.node_rank, one.avoid) for one in made if one.avoid] == [(2, ("node-2",))]


def test_a_pod_that_fails_by_itself_still_restarts_the_start() -> None:
    rig = starting()
    rig.see(FactKind.POD_FAILED, node=2, code="Error", exit_code=1)
    assert rig.at(JobPhase.RESTARTING)
    assert rig.state.restarts_program == 1


def test_a_pod_lost_once_ranks_start_restarts_them() -> None:
    rig = starting()
    rig.tell(e.PodsReady())
    rig.see(FactKind.POD_LOST, node=2)
    assert rig.at(JobPhase.RESTARTING)


def test_a_failed_job_is_revived_on_request() -> None:
    rig = starting(active_deadline_seconds=100)
    let_pass(rig, 100_000)
    assert rig.at(JobPhase.FAILED)
    before = rig.state
    rig.tell(e.RestartRequested(), rig.now + 5000)
    assert rig.at(JobPhase.PENDING)
    assert rig.state.attempt == before.attempt + 1
    assert all(number > before.incarnation for number in rig.served.values())
    assert (rig.state.spent, rig.state.stalls) == ((), ())
    assert rig.state.deadlines[Deadline.ACTIVE] == rig.now + 100_000


# ------------------------------------------------------------------------------------------- active deadline


def active(rig: Rig, seconds: int | None) -> int | None:
    """The spec is edited; when the job is over now."""
    rig.policy = replace(rig.policy, active_deadline_seconds=seconds)
    rig.tell(e.PolicyChanged())
    return rig.state.deadlines.get(Deadline.ACTIVE)


def test_an_active_deadline_follows_the_spec() -> None:
    rig = starting()
    began = rig.now
    rig.tell(e.PodsReady(), rig.now + 50_000)
    assert active(rig, 100) == began + 100_000
    assert active(rig, 500) == began + 500_000
    assert active(rig, None) is None
    assert active(rig, 10) == began + 10_000
    let_pass(rig, 0)
    assert rig.at(JobPhase.FAILED)


def test_a_deadline_extended_while_nobody_looked_is_not_due() -> None:
    rig = starting(active_deadline_seconds=100)
    rig.policy = replace(rig.policy, active_deadline_seconds=500)
    rig.tell(e.DeadlineReached(name="Active"), rig.now + 200_000)
    assert rig.at(JobPhase.PENDING)


def test_time_in_suspense_is_not_active() -> None:
    rig = Rig(JobState(), policy=Policy(active_deadline_seconds=100, startup_deadline_seconds=10_000))
    rig.tell(e.SuspendRequested())
    assert rig.state.deadlines == {}
    rig.tell(e.ResumeRequested(), rig.now + DAY_MS)
    assert rig.state.deadlines[Deadline.ACTIVE] == rig.now + 100_000
    rig.tell(e.SuspendRequested(), rig.now + 40_000)
    assert rig.state.deadlines == {}
    rig.tell(e.ResumeRequested(), rig.now + DAY_MS)
    assert rig.state.deadlines[Deadline.ACTIVE] == rig.now + 60_000


def test_a_deadline_of_an_older_journal_keeps_its_time() -> None:
    rig = Rig.running(policy=Policy(active_deadline_seconds=100))
    rig.state = replace(rig.state, active_since_ms=None, deadlines={"Active": rig.now + 30_000})
    at = rig.now + 30_000
    rig.tell(e.PolicyChanged())
    assert rig.state.deadlines["Active"] == at
    assert active(rig, 200) == at + 100_000


def test_a_wait_is_remembered_as_it_is() -> None:
    rig = starting(startup_deadline_seconds=100)
    rig.tell(FULL)
    assert rig.state.waiting == Waiting(rig.now, 100_000 - 10)
    assert Action.RESTART.value not in {spend.budget for spend in rig.state.spent}


def gives_back() -> Rig:
    """A start that waits for nodes and has given its chips back."""
    rig = starting(release_waiting_pods=True)
    rig.view = replace(rig.view, free_nodes=1)
    rig.tell(FULL)
    let_pass(rig, 1000 * RELEASE_SECONDS)
    return rig


def rank_pods(rig: Rig) -> list[int]:
    return [pod.incarnation for pod in placements(rig.state, rig.view.layout.num_nodes).ranks]


def test_a_waiting_start_keeps_its_chips_by_default() -> None:
    rig = starting()
    rig.tell(FULL)
    let_pass(rig, DAY_MS)
    assert rank_pods(rig) == [1, 1, 1, 1]


def test_chips_held_in_vain_are_given_back_after_a_minute() -> None:
    rig = starting(release_waiting_pods=True)
    rig.view = replace(rig.view, free_nodes=1)
    rig.tell(FULL)
    let_pass(rig, 1000 * RELEASE_SECONDS - 1)
    assert len(rank_pods(rig)) == 4
    let_pass(rig, 1)
    assert rank_pods(rig) == []
    assert placements(rig.state, 4).coordinator is not None  # it holds no chips
    let_pass(rig, 30 * DAY_MS)
    assert (rig.state.phase, rank_pods(rig)) == (JobPhase.PENDING, [])


def test_nodes_for_all_bring_every_pod_back() -> None:
    rig = gives_back()
    let_pass(rig, DAY_MS)
    rig.tell(e.CapacityAvailable(nodes=3))
    assert rank_pods(rig) == []
    rig.tell(e.CapacityAvailable(nodes=4))
    assert rank_pods(rig) == [2, 2, 2, 2]
    rig.tell(e.PlacesFound())
    assert (rig.state.waiting, Deadline.RELEASE in rig.state.deadlines) == (None, False)


def test_chips_are_not_taken_back_at_once() -> None:
    rig = gives_back()
    rig.view = replace(rig.view, free_nodes=4)
    rig.tell(e.CapacityAvailable(nodes=4))
    assert rank_pods(rig) == []
    let_pass(rig, 1000 * RELEASE_SECONDS)
    assert rank_pods(rig) == [2, 2, 2, 2]


def test_a_policy_that_is_taken_back_releases_nothing() -> None:
    rig = starting(release_waiting_pods=True)
    rig.tell(FULL)
    rig.policy = Policy()
    rig.tell(e.PolicyChanged())
    let_pass(rig, DAY_MS)
    assert len(rank_pods(rig)) == 4


def test_a_wait_without_chips_counts_for_its_timeout() -> None:
    rig = starting(release_waiting_pods=True, capacity_timeout_seconds=300)
    rig.view = replace(rig.view, free_nodes=1)
    rig.tell(FULL)
    let_pass(rig, 300_000)
    assert rig.at(JobPhase.FAILED)


def test_a_start_without_chips_waits_on_after_a_hold() -> None:
    rig = gives_back()
    rig.deadline("Release")
    assert not rank_pods(rig)
    rig.tell(e.PlacesFound())
    assert rig.state.waiting is not None, "pods that were given up have no places"
    rig.policy = replace(rig.policy, mode=Mode.HOLD)
    rig.silent(1)
    assert rig.at(JobPhase.HELD)
    rig.tell(e.FactsWithdrawn(ids=rig.incident.fact_ids))
    assert rig.at(JobPhase.PENDING)
    rig.deadline("Release")
    rig.tell(e.CapacityAvailable(nodes=rig.view.layout.num_nodes))
    assert rank_pods(rig)
