"""Conditions of the table's rows: what each is called, what it says, when it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import Action
from hajob.domain.facts import Fact, FactKind
from hajob.domain.incidents import Purpose
from hajob.plan import effects as do
from hajob.plan import events as e
from hajob.plan import guards as g
from hajob.plan.context import Context, Guard
from hajob.plan.evaluator import FAULT, UNTRAINED
from hajob.plan.policy import DEFAULT_ACTION_LIMITS, ActionLimits, Mode, Policy
from hajob.plan.state import JobPhase, JobState
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_worlds import VIEW

EXIT = Fact("a", FactKind.PROCESS_EXITED, ranks=(5,), incarnation=1, time_ms=10**9)
CORDONED = Fact("b", FactKind.CORDONED, node_rank=1, incarnation=1, time_ms=10**9)
FREE = Guard("free", "there are nodes", lambda context: context.view.free_nodes == 1)


def sick() -> Guard:
    return g.is_fact_about("sick", "the node is sick", frozenset({FactKind.CORDONED, FactKind.SUB_HEALTH}))


def context(event: e.JobEvent, state: JobState | None = None, policy: Policy | None = None) -> Context:
    made = Context(state or Rig.running().state, event, VIEW, policy or Policy(), 1_000_000)
    if isinstance(event, e.FactSeen):
        assert made.concerns_job()
    return made


def test_a_guard_says_what_it_asks() -> None:
    said = {
        g.chooses_action(FAULT, Action.IN_PLACE): (
            "Fault: InPlace",
            "on the trigger Fault InPlace is the smallest action that works",
        ),
        sick(): ("sick", "the node is sick"),
        g.has_result(0): ("result 0", "MindIO's code is 0"),
        g.has_result(404, 499): ("result 404 or 499", "MindIO's code is 404 or 499"),
        g.has_result(0, strategy="dump"): ("result 0 of dump", "MindIO's code is 0 of dump"),
        g.both_guards(sick(), FREE): ("sick, free", "the node is sick, and there are nodes"),
    }
    for guard, words in said.items():
        assert (guard.name, guard.sentence) == words


@pytest.mark.parametrize("action", [Action.RETRY, Action.IN_PLACE, Action.REPLACE, Action.RESTART])
def test_an_action_guard_holds_for_the_smallest_that_works(action: Action) -> None:
    seen = e.FactSeen(fact=EXIT)
    assert g.chooses_action(FAULT, action).test(context(seen)) is (action is Action.IN_PLACE)
    assert g.chooses_action(UNTRAINED, action).test(context(seen)) is (action is Action.RESTART)


def test_a_guard_about_kinds_holds_for_facts_of_these_kinds() -> None:
    assert sick().test(context(e.FactSeen(fact=CORDONED)))
    assert not sick().test(context(e.FactSeen(fact=EXIT)))


@pytest.mark.parametrize(
    ("codes", "strategy", "event", "holds"),
    [
        ((0,), "", e.ResultReported(0, 0, "", "recover"), True),
        ((0,), "", e.ResultReported(0, 499), False),
        ((404, 499), "", e.ResultReported(0, 499), True),
        ((404, 499), "", e.ResultReported(0, 406), False),
        ((0,), "dump", e.ResultReported(0, 0, "", "dump"), True),
        ((0,), "dump", e.ResultReported(0, 0, "", "recover"), False),
        ((0,), "dump", e.ResultReported(0, 0), True),
        ((0,), "dump", e.ResultReported(0, 499, "", "dump"), False),
    ],
)
def test_a_result_guard_holds_by_code_and_by_strategy(
    codes: tuple[int, ...], strategy: str, event: e.ResultReported, holds: bool
) -> None:
    guard = g.has_result(*codes, strategy=strategy) if strategy else g.has_result(*codes)
    assert guard.test(context(event)) is holds


def test_both_holds_where_each_does() -> None:
    about, other = context(e.FactSeen(fact=CORDONED)), context(e.FactSeen(fact=EXIT))
    never = Guard("never", "never", lambda _: False)
    assert g.both_guards(sick(), FREE).test(about)
    assert not g.both_guards(sick(), FREE).test(other)
    assert not g.both_guards(sick(), never).test(about)
    assert not g.both_guards(never, sick()).test(about)


@pytest.mark.parametrize("guard", [g.SUSPENDING, g.CONFIRMED, g.NO_POD_AWAITED, g.RETURNING, g.MORE_RANKS])
def test_a_guard_about_the_open_incident_holds_for_none(guard: Guard) -> None:
    assert not guard.test(context(e.Stopped(0, (1, 2))))


def test_suspending_is_the_purpose_of_the_incident() -> None:
    rig = Rig.running()
    rig.tell(e.SuspendRequested())
    assert g.SUSPENDING.test(context(e.Deleted(), rig.state))
    rig.tell(e.ResumeRequested())
    assert rig.incident.purpose is Purpose.REQUEST
    assert not g.SUSPENDING.test(context(e.Deleted(), rig.state))


def test_of_a_job_at_full_size_no_node_is_missing() -> None:
    assert g.ENOUGH_NODES.test(context(e.CapacityAvailable(nodes=0)))


def test_ranks_outside_the_world_are_not_lost_by_mindios_word() -> None:
    rig = Rig.running()
    rig.exits(5)
    rig.tell(e.Stopped(2, (5, 8, -1)))
    assert (rig.incident.lost_ranks, rig.incident.revision) == ((5,), 1)
    rig.tell(e.Stopped(2, (7, 8)))
    assert rig.incident.lost_ranks == (5, 7)


def test_every_unknown_strategy_is_named() -> None:
    rig = Rig.naming()
    rig.tell(e.StrategiesOffered(2, ("fly", "dance")))
    assert rig.ignored == "UnknownStrategy: fly, dance"


@pytest.mark.parametrize(("attempt", "phase"), [(0, JobPhase.WARMING), (1, JobPhase.PENDING), (2, JobPhase.WARMING)])
def test_ranks_of_another_attempt_do_not_count(attempt: int, phase: JobPhase) -> None:
    rig = Rig(JobState(phase=JobPhase.PENDING, incarnation=2, attempt=2, base=2))
    rig.tell(e.AllRanksStarted(attempt=attempt))
    assert rig.at(phase)


# ------------------------------------------------------------------------------------------------ moves


@pytest.mark.parametrize(
    ("nodes", "step", "phase"),
    [
        ((0,), 5, JobPhase.MIGRATING),
        ((3,), 5, JobPhase.MIGRATING),
        ((4,), 5, JobPhase.RUNNING),
        ((1, 4), 5, JobPhase.RUNNING),
        ((-1,), 5, JobPhase.RUNNING),
        ((), 5, JobPhase.RUNNING),
        ((1,), 1, JobPhase.MIGRATING),
        ((1,), 0, JobPhase.RUNNING),
    ],
)
def test_only_node_ranks_of_the_job_move_once_a_step_has_ended(
    nodes: tuple[int, ...], step: int, phase: JobPhase
) -> None:
    rig = Rig.running(view=replace(VIEW, step=step))
    rig.tell(e.MigrateRequested(nodes=nodes))
    assert rig.at(phase)


def test_moves_have_a_budget() -> None:
    rig = Rig.running(policy=Policy(limits={**DEFAULT_ACTION_LIMITS, Action.MIGRATE: ActionLimits(1, 3600, 60)}))
    for phase in (JobPhase.MIGRATING, JobPhase.RUNNING):
        rig.tell(e.MigrateRequested(nodes=(1,)))
        assert rig.at(phase)
        if phase is JobPhase.MIGRATING:
            rig.tell(e.Resumed(rig.incident.number, 7))
    assert "budget exhausted: 1 of 1 in the last 3600 s" in str(rig.transition)


@pytest.mark.parametrize("mode", [Mode.HOLD, Mode.OBSERVE])
def test_nothing_moves_while_the_mode_is_not_enforce(mode: Mode) -> None:
    rig = Rig.running(policy=Policy(mode=mode))
    rig.tell(e.MigrateRequested(nodes=(1,)))
    assert rig.at(JobPhase.RUNNING)
    assert f"cannot be moved now: recovery.mode is {mode}" in str(rig.transition)
    rig.see(FactKind.CORDONED, node=1)
    assert rig.at(JobPhase.RUNNING)


def test_nothing_moves_where_no_rank_can_be_held() -> None:
    """MindIO would stop the ranks, wait out its limit and offer only exit."""
    rig = Rig.running(policy=Policy(hot_switch=False))
    rig.tell(e.MigrateRequested(nodes=(1,)))
    assert rig.at(JobPhase.RUNNING)
    assert "cannot be moved now: ProcessRecovery: MindSpore" in str(rig.transition)
    rig.see(FactKind.CORDONED, node=1)
    assert rig.at(JobPhase.RUNNING)


def test_a_move_asked_for_during_a_recovery_says_why_not() -> None:
    rig = Rig.running()
    rig.exits(5)
    done = rig.tell(e.MigrateRequested(nodes=(1,)))
    why = "the job is Gathering; a move can begin only while it is Running"
    assert done == (do.Announce(EventReason.MOVE_REFUSED, f"node ranks [1] cannot be moved now: {why}"),)


@pytest.mark.parametrize(("node", "phase"), [(2, JobPhase.SHRUNK), (1, JobPhase.SAVING)])
def test_a_returning_node_lost_again_ends_growth_another_saves(node: int, phase: JobPhase) -> None:
    rig = Rig.shrunk()
    rig.view = VIEW
    rig.grow()
    assert rig.at(JobPhase.EXPANDING)
    rig.silent(node)
    assert rig.at(phase)
