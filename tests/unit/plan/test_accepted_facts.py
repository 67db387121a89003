"""Which facts count: whose ranks they lose, and whether the process or pod that was seen is still the one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.actions import Action
from hajob.domain.errors import HajobInputError
from hajob.domain.facts import Fact, FactKind, Source
from hajob.plan import events as e
from hajob.plan.context import Context
from hajob.plan.evaluator import FAULT, UNTRAINED
from hajob.plan.policy import DEFAULT_ACTION_LIMITS, ActionLimits, NodePolicy, Policy, parse_spec
from hajob.plan.state import JobPhase, JobState, Spend
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_worlds import VIEW


@pytest.mark.parametrize(
    ("kind", "node", "ranks", "lost"),
    [
        (FactKind.PROCESS_EXITED, 2, (5,), (5,)),
        (FactKind.PROCESS_EXITED, None, (7, 3, 7), (3, 7)),
        (FactKind.PROCESS_EXITED, None, (7, 3), (3, 7)),
        (FactKind.AGENT_SILENT, 2, (), (4, 5)),
        (FactKind.POD_LOST, 2, (5,), (4, 5)),
        (FactKind.POD_LOST, None, (5,), (4, 5)),
        (FactKind.PORT_TAKEN, None, (7, 3), (2, 3, 6, 7)),
    ],
)
def test_a_fact_loses_its_own_ranks_or_all_of_a_node(
    kind: FactKind, node: int | None, ranks: tuple[int, ...], lost: tuple[int, ...]
) -> None:
    rig = Rig.running()
    rig.see(kind, node=node, ranks=ranks)
    assert rig.incident.lost_ranks == lost


def test_facts_about_the_processes_of_an_old_pod_are_stale() -> None:
    rig = Rig.running()
    rig.silent(2)
    rig.recover()
    for rank in (4, 5):
        rig.exits(rank, incarnation=1)
        assert rig.ignored.endswith(f"is of incarnation 1, rank {rank} has a newer one")
    rig.exits(5, incarnation=2)
    assert rig.at(JobPhase.GATHERING)


def test_a_death_counts_however_late_it_is_told() -> None:
    """Only of a living process an old word is stale: an incarnation tells which process has died."""
    rig = Rig.naming()
    rig.recover()
    assert rig.state.resumed_ms
    rig.exits(5, time_ms=rig.state.resumed_ms - 1)
    assert (rig.at(JobPhase.GATHERING), rig.ignored) == (True, "")


def test_a_node_that_left_with_a_shrink_is_no_news_as_a_whole() -> None:
    rig = Rig.shrunk()
    assert rig.silent(2) == ()
    assert rig.ignored.startswith("Dropped")


@pytest.mark.parametrize(("incarnation", "stale"), [(0, False), (1, True), (2, True), (3, False), (-1, False)])
def test_only_the_controller_of_an_older_attempt_is_ignored(incarnation: int, stale: bool) -> None:
    rig = Rig(JobState(phase=JobPhase.RUNNING, incarnation=3, attempt=2, base=3, step=5))
    rig.see(FactKind.CONTROLLER_LOST, incarnation=incarnation)
    assert rig.at(JobPhase.RUNNING if stale else JobPhase.UNPROTECTED)
    assert ("of an earlier attempt" in rig.ignored) is stale


def test_a_decision_is_made_once_for_each_trigger() -> None:
    fact = Fact("a", FactKind.PROCESS_EXITED, ranks=(5,), incarnation=1, time_ms=10**9)
    context = Context(Rig.running().state, e.FactSeen(fact=fact), VIEW, Policy(), 1_000_000)
    assert context.concerns_job()
    choice = context.decide_action(FAULT)
    assert context.decide_action(FAULT) is choice
    assert context.decide_action(UNTRAINED).action is Action.RESTART
    assert context.decide_action(FAULT).action is Action.IN_PLACE


def test_the_row_that_answered_is_told() -> None:
    rig = Rig.running()
    rig.exits(5)
    assert rig.transition is not None
    assert (rig.transition.row.handler.name, rig.transition.row.target) == ("restart processes", JobPhase.GATHERING)


# ------------------------------------------------------------------------------------------------ words and budgets


def test_a_sick_node_that_asks_for_a_save_is_not_said_to_be_lost() -> None:
    rig = Rig.running(policy=Policy(sub_health=NodePolicy.CHECKPOINT))
    rig.see(FactKind.SUB_HEALTH, node=1)
    assert (rig.state.phase, rig.incident.replaced_nodes) == (JobPhase.SAVING, ())
    assert "PodAlive" not in {name for names in rig.refused.values() for name in names}
    assert rig.refused[Action.REPLACE] == ("Sufficient",)


def test_uses_of_budgets_are_kept_for_a_day_at_least() -> None:
    year = Policy(limits={**DEFAULT_ACTION_LIMITS, Action.RESTART: ActionLimits(1, 31_622_400, 60)})
    assert year.forgotten_after_ms(Action.RESTART) == 31_622_400_000
    assert {year.forgotten_after_ms(name) for name in (Action.RETRY, Action.MIGRATE, "Program", "Maintenance")} == {
        86_400_000
    }


def test_a_long_window_of_restarts_keeps_no_moves() -> None:
    """A job may be moved ten times an hour; all of it stands in the journal, in the status."""
    rig = Rig.running(policy=Policy(limits={**DEFAULT_ACTION_LIMITS, Action.RESTART: ActionLimits(1, 31_622_400, 60)}))
    old = rig.now - 86_400_000
    rig.state = replace(rig.state, spent=(Spend("Migrate", old), Spend("Restart", old)))
    rig.exits(5)
    assert rig.state.spent == (Spend("Restart", old), Spend("InPlace", rig.now))


def test_every_wrong_field_of_a_spec_is_named_with_what_is_wrong() -> None:
    wrong = {"numNodes": "x", "parallelism": 7}
    with pytest.raises(HajobInputError) as error:
        parse_spec(wrong)
    said = str(error.value).split("; ")
    assert {one.partition(": ")[0] for one in said} >= {"spec.numNodes", "spec.parallelism"}
    assert all(one.startswith("spec.") and one.partition(": ")[2] for one in said)


def test_a_pod_of_a_move_that_was_given_up_is_not_missed() -> None:
    """It goes with the move; another coordinator has heard it, and hears it no more."""
    rig = Rig.running()
    rig.tell(e.MigrateRequested(nodes=(1,)))
    moved = rig.incident.incarnation
    rig.tell(e.CoordinatorLost())
    rig.tell(e.ControllerTakenOver(duration_ms=40))
    rig.tell(e.CoordinatorReady())
    assert rig.at(JobPhase.RUNNING)
    rig.see(FactKind.AGENT_SILENT, node=1, source=Source.COORDINATOR, incarnation=moved)
    assert rig.at(JobPhase.RUNNING)
    assert "a move that was given up" in rig.ignored
    rig.silent(1)
    assert not rig.at(JobPhase.RUNNING)


def test_who_is_about_to_be_left_out_is_not_missed() -> None:
    """Another coordinator tells of the lost pod once more: the shrink goes on."""
    rig = Rig.running(view=replace(VIEW, free_nodes=0))
    rig.silent(2)
    rig.deadline("Recovery")
    assert rig.at(JobPhase.SHRINKING)
    rig.silent(2)
    assert rig.at(JobPhase.SHRINKING)
    assert "left with the shrink" in rig.ignored
    rig.silent(1)
    assert rig.at(JobPhase.SAVING)
