"""Life with fewer ranks, the way back, planned moves: what is taken over, remembered and given back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import Action, OrderCommand
from hajob.domain.facts import FactKind, Source
from hajob.domain.incidents import Cause, Purpose
from hajob.plan import effects as do
from hajob.plan import events as e
from hajob.plan.incident_state import RENEWED_LIMIT
from hajob.plan.policy import ActionLimits, Mode, NodePolicy, Policy
from hajob.plan.state import JobPhase, Spend
from hajob.plan.view import ClusterView
from hajob.plan.waits import WaitReason, nodes_to_return, wait_of_job
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_worlds import VIEW

FULL = {1000 + number: 1 for number in range(RENEWED_LIMIT)}
"""As many keys as are remembered, none of them of the world of these tests."""


def shrinking() -> Rig:
    """Node rank 2 is lost, none comes, and MindIO has been told to drop its ranks."""
    rig = Rig.running(view=replace(VIEW, free_nodes=0))
    rig.silent(2)
    rig.deadline("Recovery")
    assert rig.at(JobPhase.SHRINKING)
    return rig


@pytest.mark.parametrize(
    ("named", "ranks", "said"),
    [
        ((), (4, 5), ""),
        ((4, 5), (4, 5), ""),
        ((5, 4, 8, -1), (4, 5), ""),
        ((4, 5, 6, 7), (4, 5, 6, 7), "MindIO drops 4 ranks, Hajob expected 2"),
        ((0, 4, 5), (0, 4, 5), "MindIO drops 3 ranks, Hajob expected 2"),
    ],
)
def test_what_mindio_drops_is_taken_over_where_it_differs(
    named: tuple[int, ...], ranks: tuple[int, ...], said: str
) -> None:
    rig = shrinking()
    before = rig.state
    done = rig.tell(e.ResultReported(2, 201, "isolate", "downgrade", named))
    assert done == ((do.Announce(EventReason.DROP_SET_DIFFERS, said),) if said else ())
    assert rig.state.shrunk is not None
    assert rig.state.shrunk.ranks == ranks
    assert said or rig.state is before


@pytest.mark.parametrize("lost", [True, False])
def test_capacity_that_is_not_there_counts_from_never(lost: bool) -> None:
    rig = Rig.shrunk()
    rig.view = VIEW
    rig.tell(e.CapacityAvailable(nodes=4))
    assert rig.state.shrunk is not None
    assert rig.state.shrunk.capacity_ms == rig.now
    if lost:
        rig.tell(e.CapacityLost())
    else:
        rig.grow()
        rig.deadline("Recovery")
    assert rig.at(JobPhase.SHRUNK)
    assert rig.state.shrunk.capacity_ms == 0


def test_growth_given_up_names_the_dropped_and_restarts_nobody() -> None:
    rig = shrinking()
    rig.tell(e.ResultReported(2, 201, "isolate", "downgrade", (4, 5, 6, 7)))
    rig.tell(e.Resumed(2, 11))
    rig.view = VIEW
    started = rig.order(rig.grow())
    assert (started.lost_ranks, started.restart_ranks, started.replaced_nodes) == ((4, 5, 6, 7), (6, 7), (2,))
    assert rig.incident.cause == Cause(code="ExpandDue", time_ms=rig.now, step=5)
    back = rig.order(rig.deadline("Recovery"))
    assert (back.command, back.revision) == (OrderCommand.SHRINK, 2)
    assert (back.lost_ranks, back.restart_ranks, back.replaced_nodes) == ((4, 5, 6, 7), (), ())


def waits(rig: Rig, policy: Policy | None = None, missing: str = "") -> tuple[WaitReason, str] | None:
    """What the job says that it waits for."""
    wait = wait_of_job(rig.state, rig.view, policy or rig.policy, rig.now, missing)
    return (wait.reason, wait.message) if wait is not None else None


def test_a_shrunk_job_says_what_it_waits_for() -> None:
    rig = Rig.shrunk()
    limits = {**Policy().limits, Action.EXPAND: ActionLimits(1, 100_000, 60)}
    need = "needs 1 free node at once with 2 chips each, for node ranks 2"
    assert waits(rig) == (WaitReason.NO_FREE_NODE, f"{need}; free after jobs ahead in the queue: 0")
    rig.view = VIEW
    rig.tell(e.CapacityAvailable(nodes=4))
    steady = "available, must remain so until 1970-01-01T00:23:10Z"
    assert waits(rig, Policy(limits=limits)) == (WaitReason.DELAY, f"{need}; {steady}")
    assert nodes_to_return(rig.state, Policy(limits=limits), rig.now) == (2,)
    rig.deadline("Expand")
    assert rig.at(JobPhase.EXPANDING)
    ready = "waiting for all ranks of node ranks 2 to be ready, until 1970-01-01T00:38:10Z"
    assert waits(rig) == (WaitReason.RETURNING, ready)
    assert waits(rig, missing="no node") == (WaitReason.RETURNING, f"{ready}; no node")
    rig.deadline("Recovery")
    rig.tell(e.CapacityAvailable(nodes=4))
    assert waits(rig, Policy(limits=limits)) == (
        WaitReason.BUDGET_SPENT,
        "budget exhausted: 1 of 1 in the last 100000 s",
    )
    assert nodes_to_return(rig.state, Policy(limits=limits), rig.now) == ()
    assert waits(Rig.running()) is None


@pytest.mark.parametrize(
    ("nodes", "view", "follows"),
    [
        ((2,), VIEW, "Shrink"),
        ((0,), VIEW, "Checkpoint"),
        ((0, 2), VIEW, "Restart"),
        ((3,), replace(VIEW, coordinator_ready=False), "Restart"),
    ],
)
def test_a_job_that_waits_for_nodes_says_what_follows(nodes: tuple[int, ...], view: ClusterView, follows: str) -> None:
    rig = Rig.running(view=replace(VIEW, free_nodes=0))
    for node in nodes:
        rig.silent(node)
    rig.view = view
    told = (
        f"node ranks {', '.join(map(str, nodes))}: of 4 nodes 4 lack chips; until 1970-01-01T00:21:10Z, then {follows}"
    )
    assert waits(rig, missing="of 4 nodes 4 lack chips") == (WaitReason.REPLACEMENT, told)
    assert waits(rig) is None, "every pod has its node"
    rig.deadline("Recovery")
    assert rig.action == follows


def test_a_process_that_is_restarted_waits_for_no_node() -> None:
    rig = Rig.running()
    rig.exits(5)
    assert waits(rig, missing="a pod of a start finds no node") is None


def test_each_growth_makes_the_next_one_wait_twice_as_long() -> None:
    rig = Rig.shrunk()
    limits = {**rig.policy.limits, Action.EXPAND: ActionLimits(10, 3600, 60)}
    rig.view, rig.policy = VIEW, replace(rig.policy, limits=limits)
    delays = []
    for _ in range(7):
        rig.tell(e.CapacityAvailable(nodes=4))
        delays.append((rig.state.deadlines["Expand"] - rig.now) // 1000)
        rig.deadline("Expand")
        assert rig.at(JobPhase.EXPANDING)
        rig.deadline("Recovery")
    assert delays == [120, 240, 480, 960, 1800, 960, 960], "what is older than an hour is forgotten"


@pytest.mark.parametrize(("patience", "seconds"), [(20, 900), (3600, 3600)])
def test_ranks_that_return_get_time_to_start(patience: int, seconds: int) -> None:
    """The others train on: a job that shrinks soon does not give up its growth as soon."""
    rig = Rig.shrunk()
    rig.view, rig.policy = VIEW, replace(rig.policy, replacement_timeout_seconds=patience)
    assert rig.order(rig.grow()).timeout_seconds == seconds
    assert rig.state.deadlines["Recovery"] == rig.now + 1000 * seconds


def test_a_delay_longer_than_the_limit_is_the_users_own() -> None:
    rig = Rig.shrunk()
    rig.policy = replace(rig.policy, expand_delay_seconds=7200)
    rig.state = replace(rig.state, spent=(Spend("Expand", rig.now),))
    rig.tell(e.CapacityAvailable(nodes=4))
    assert rig.state.deadlines["Expand"] == rig.now + 7_200_000


def test_a_shrink_remembers_how_long_a_step_took_before() -> None:
    rig = Rig.running(view=replace(VIEW, free_nodes=0, step_ms=250))
    rig.silent(2)
    rig.view = replace(rig.view, step_ms=None)
    rig.deadline("Recovery")
    assert rig.state.shrunk is not None
    assert rig.state.shrunk.full_step_ms == 0, "what is seen when it begins counts"


# ------------------------------------------------------------------------------------------------ what is remembered


def test_growth_remembers_what_is_new_and_when_it_forgot() -> None:
    rig = shrinking()
    rig.tell(e.ResultReported(2, 201, "isolate", "downgrade", (4, 5, 6, 7)))
    rig.tell(e.Resumed(2, 11))
    rig.view = VIEW
    rig.state = replace(rig.state, renewed=FULL)
    rig.grow()
    assert (rig.state.renewed[6], rig.state.renewed[7], rig.state.pods) == (3, 3, {2: 3})
    assert (len(rig.state.renewed), rig.state.forgotten_ms) == (RENEWED_LIMIT, rig.now)


def test_a_move_remembers_its_pods_and_its_end() -> None:
    rig = Rig.running()
    rig.tell(e.MigrateRequested(nodes=(1,)))
    rig.tell(e.Resumed(2, 7))
    assert (rig.state.pods, rig.state.renewed, rig.state.resumed_ms) == ({1: 2}, {}, rig.now)


def test_what_is_renewed_once_more_is_the_last_to_be_forgotten() -> None:
    rig = Rig.running()
    known = {5: 1, **dict(list(FULL.items())[1:])}
    rig.state = replace(rig.state, renewed=known)
    rig.exits(5)
    assert (list(rig.state.renewed)[-1], len(rig.state.renewed), rig.state.forgotten_ms) == (5, RENEWED_LIMIT, 0)


def test_uses_older_than_their_window_are_forgotten() -> None:
    rig = Rig.running()
    longest = Policy().forgotten_after_ms("Retry")
    rig.state = replace(
        rig.state, spent=(Spend("Retry", rig.now + 10 - longest), Spend("Retry", rig.now + 11 - longest))
    )
    rig.exits(5)
    assert rig.state.spent == (Spend("Retry", rig.now + 1 - longest), Spend("InPlace", rig.now))


# ------------------------------------------------------------------------------------------------ when it goes wrong


def test_a_move_that_fails_has_lost_nobody() -> None:
    """Ranks 1 and 5 hold each other's copy; both were to be moved, both live, so the step can be saved."""
    rig = Rig.running()
    rig.tell(e.MigrateRequested(nodes=(0, 2)))
    rig.tell(e.ResultReported(2, 406, "no", "migration"))
    assert (rig.state.phase, rig.incident.lost_ranks) == (JobPhase.SAVING, ())
    assert rig.incident.cause == Cause(code="ResultReported", message="406 no", time_ms=rig.now, step=5)
    assert rig.state.problem == "migration failed: 406 no"


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (e.ResultReported(2, 406, "no copy", "recover"), "recover failed: 406 no copy"),
        (e.ResultReported(2, 499), "MindIO failed: 499"),
    ],
)
def test_what_mindio_said_when_it_failed_is_kept(result: e.ResultReported, problem: str) -> None:
    rig = Rig.naming()
    rig.tell(result)
    assert rig.state.problem == problem


def test_a_shrunk_job_that_mindio_gives_up_pays_for_its_save() -> None:
    rig = Rig.shrunk()
    before = rig.state.spent
    rig.tell(e.ResultReported(0, 406, "no", "downgrade"))
    assert (rig.state.phase, rig.action, rig.incident.lost_ranks) == (JobPhase.SAVING, Action.CHECKPOINT, ())
    assert [one.budget for one in rig.state.spent[len(before) :]] == [Action.CHECKPOINT]


def test_after_405_pods_come_anew_only_where_they_were_lost() -> None:
    rig = Rig.running()
    rig.silent(2)
    rig.exits(0)
    rig.tell(e.Named(2, 2))
    order = rig.order(rig.tell(e.ResultReported(2, 405)))
    assert (order.command, order.lost_ranks) == (OrderCommand.REPLACE, (0, 4, 5))
    assert (order.restart_ranks, order.replaced_nodes) == ((0,), (2,))


# ------------------------------------------------------------------------------------------------ nodes that still work


def test_a_move_off_a_cordoned_node_names_it_as_its_cause() -> None:
    rig = Rig.running()
    rig.see(FactKind.CORDONED, node=3, node_name="node-3", source=Source.NODE)
    assert (rig.state.phase, rig.incident.purpose) == (JobPhase.MIGRATING, Purpose.MIGRATE)
    cause = rig.incident.cause
    assert (cause.kind, cause.code, cause.source, cause.node_name) == (
        FactKind.CORDONED,
        "Cordoned",
        Source.NODE,
        "node-3",
    )
    assert (cause.first_rank, cause.num_ranks, cause.step) == (6, 2, 5)


@pytest.mark.parametrize(
    ("kind", "policy", "why"),
    [
        (FactKind.SUB_HEALTH, Policy(sub_health=NodePolicy.IGNORE), "Tolerated: fact {}, subHealthPolicy is Ignore"),
        (FactKind.CORDONED, Policy(cordon=NodePolicy.IGNORE), "Tolerated: fact {}, cordonPolicy is Ignore"),
        (FactKind.SUB_HEALTH, Policy(cordon=NodePolicy.IGNORE), ""),
        (FactKind.CORDONED, Policy(sub_health=NodePolicy.IGNORE), ""),
        (FactKind.POD_LOST, Policy(sub_health=NodePolicy.IGNORE, cordon=NodePolicy.IGNORE), ""),
    ],
)
def test_a_policy_tolerates_its_own_kind_of_fact(kind: FactKind, policy: Policy, why: str) -> None:
    rig = Rig.running(policy=policy)
    rig.see(kind, node=1)
    assert rig.ignored == why.format(rig.last_fact.id)
    assert rig.at(JobPhase.RUNNING) is bool(why)


# ------------------------------------------------------------------------------------------------ pods that were kept


def kept() -> Rig:
    """Shrunk by the data-parallel ranks of the pods 2 and 3, of which 3 is healthy and was kept."""
    rig = shrinking()
    rig.tell(e.ResultReported(2, 201, "isolate", "downgrade", (4, 5, 6, 7)))
    rig.tell(e.Resumed(2, 11))
    assert rig.served == {0: 1, 1: 1, 2: 0, 3: 1}
    return rig


def test_a_kept_pod_that_is_lost_is_made_anew_with_the_growth() -> None:
    rig = kept()
    rig.tell(e.CapacityAvailable(nodes=1))
    done = rig.silent(3)
    assert done == (
        do.Announce(EventReason.KEPT_POD_LOST, f"lost pods kept to grow back, node ranks [3]: {rig.last_fact.message}"),
    )
    assert rig.served == {0: 1, 1: 1, 2: 0, 3: 0}
    assert rig.state.shrunk is not None
    assert (rig.state.shrunk.lost_nodes, rig.state.shrunk.capacity_ms) == ((2, 3), 0)
    rig.view = replace(VIEW, free_nodes=2)
    order = rig.order(rig.grow())
    assert (order.restart_ranks, order.replaced_nodes) == ((), (2, 3))


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.HOLD])
def test_a_kept_pod_lost_outside_enforce_goes_with_the_growth(mode: Mode) -> None:
    rig = kept()
    rig.policy = replace(rig.policy, mode=mode)
    rig.silent(3)
    assert rig.served == {0: 1, 1: 1, 2: 0, 3: 1}
    rig.policy, rig.view = replace(rig.policy, mode=Mode.ENFORCE), replace(VIEW, free_nodes=2)
    assert rig.order(rig.grow()).replaced_nodes == (2, 3)


def test_a_pod_that_trains_stays_when_a_growth_is_held_up() -> None:
    rig = Rig.shrunk()
    rig.view = VIEW
    rig.grow()
    assert rig.at(JobPhase.EXPANDING)
    rig.policy = replace(rig.policy, mode=Mode.HOLD)
    rig.silent(1)
    assert rig.at(JobPhase.HELD)
    assert rig.served == {0: 1, 1: 1, 2: 0, 3: 1}


def test_a_pod_of_which_half_is_dropped_stays() -> None:
    rig = shrinking()
    rig.policy = replace(rig.policy, release_shrunk_pods=True)
    rig.tell(e.ResultReported(2, 201, "isolate", "downgrade", (4, 5, 6)))
    rig.tell(e.Resumed(2, 11))
    assert rig.served == {0: 1, 1: 1, 2: 0, 3: 1}


def test_a_kept_pod_that_only_loses_a_process_is_kept() -> None:
    rig = kept()
    before = rig.state
    rig.exits(6)
    assert rig.state == before
    rig.see(FactKind.SUB_HEALTH, node=3)
    assert rig.served == {0: 1, 1: 1, 2: 0, 3: 1}


def test_a_kept_pod_lost_while_growing_is_not_awaited_again() -> None:
    rig = kept()
    rig.view = replace(VIEW, free_nodes=1)
    rig.grow()
    rig.silent(3)
    assert rig.at(JobPhase.SHRUNK)
    assert rig.state.shrunk is not None
    assert rig.state.shrunk.lost_nodes == (2, 3)
    assert rig.served == {0: 1, 1: 1, 2: 0, 3: 0}


def test_without_a_delay_a_shrunk_job_does_not_look_all_the_time() -> None:
    rig = Rig.shrunk()
    rig.policy = replace(rig.policy, expand_delay_seconds=0)
    rig.deadline("Expand")
    assert rig.state.deadlines["Expand"] == rig.now + 10_000
    rig.view = VIEW
    rig.tell(e.CapacityAvailable(nodes=1))
    assert rig.state.deadlines["Expand"] == rig.now


# ------------------------------------------------------------------------------------------------ preempted


def test_a_preempted_pod_without_a_node_shrinks_its_job() -> None:
    """A higher job has taken its node: it is waited for one, then the job goes on with fewer ranks, and grows later."""
    rig = Rig.running(view=replace(VIEW, free_nodes=0))
    rig.see(FactKind.POD_LOST, node=2, code="PreemptionByScheduler", source=Source.POD, node_name="node-2")
    assert (rig.state.phase, rig.action) == (JobPhase.GATHERING, Action.REPLACE)
    order = rig.order(rig.deadline("Recovery"))
    assert (order.command, order.lost_ranks) == (OrderCommand.SHRINK, (4, 5))
    rig.tell(e.Resumed(2, 11))
    assert (rig.state.phase, rig.state.restarts_infrastructure) == (JobPhase.SHRUNK, 0)
    assert {spend.budget for spend in rig.state.spent} == {"Maintenance"}, "no fault of the job"
    rig.view = VIEW
    rig.grow()
    rig.tell(e.Resumed(3, 12))
    assert (rig.state.phase, rig.state.shrunk) == (JobPhase.RUNNING, None)
