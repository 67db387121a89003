"""Life with fewer ranks, the way back, planned moves: what is taken over, remembered and given back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.actions import Action, OrderCommand
from hajob.domain.facts import FactKind, Source
from hajob.domain.incidents import Cause, Purpose
from hajob.plan import effects as do
from hajob.plan import events as e
from hajob.plan.bookkeeping import RENEWED_LIMIT
from hajob.plan.elastic import GrowthWait, why_not_grown
from hajob.plan.policy import ActionLimits, NodePolicy, Policy
from hajob.plan.state import JobPhase, Spend
from tests.unit.plan.plan_rig import Rig
from tests.unit.plan.plan_worlds import VIEW

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
        ((4, 5, 6, 7), (4, 5, 6, 7), "MindIO drops 4 ranks where 2 were expected"),
        ((0, 4, 5), (0, 4, 5), "MindIO drops 3 ranks where 2 were expected"),
    ],
)
def test_what_mindio_drops_is_taken_over_where_it_differs(
    named: tuple[int, ...], ranks: tuple[int, ...], said: str
) -> None:
    rig = shrinking()
    before = rig.state
    done = rig.tell(e.ResultReported(2, 201, "isolate", "downgrade", named))
    assert done == ((do.Announce("DropSetDiffers", said),) if said else ())
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


def test_a_shrunk_job_says_what_it_waits_for() -> None:
    rig = Rig.shrunk()
    limits = {**Policy().limits, Action.EXPAND: ActionLimits(1, 100_000, 60)}
    assert why_not_grown(rig.state, rig.policy, rig.now) is GrowthWait.NO_FREE_NODE
    rig.view = VIEW
    rig.tell(e.CapacityAvailable(nodes=4))
    assert why_not_grown(rig.state, Policy(limits=limits), rig.now) is GrowthWait.DELAY
    rig.deadline("Expand")
    assert rig.at(JobPhase.EXPANDING)
    assert why_not_grown(rig.state, rig.policy, rig.now) is None
    rig.deadline("Recovery")
    rig.tell(e.CapacityAvailable(nodes=4))
    assert why_not_grown(rig.state, Policy(limits=limits), rig.now) is GrowthWait.BUDGET_SPENT
    assert why_not_grown(Rig.running().state, rig.policy, rig.now) is None


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


def test_uses_older_than_the_longest_window_are_forgotten() -> None:
    rig = Rig.running()
    longest = Policy().longest_window_ms
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
    assert rig.incident.cause == Cause(code="ResultReported", time_ms=rig.now, step=5)
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


def test_a_shrunk_job_that_mindio_gives_up_is_saved_for_free() -> None:
    rig = Rig.shrunk()
    before = rig.state.spent
    rig.tell(e.ResultReported(0, 406, "no", "downgrade"))
    assert (rig.state.phase, rig.action, rig.incident.lost_ranks) == (JobPhase.SAVING, Action.CHECKPOINT, ())
    assert rig.state.spent == before


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
