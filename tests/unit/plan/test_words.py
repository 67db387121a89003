"""Decisions explain themselves: every refusal word for word, with its numbers, and what is booked for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.actions import Action
from hajob.domain.facts import FactKind, Source
from hajob.domain.incidents import Cause, Purpose
from hajob.domain.layout import Layout
from hajob.plan import events as e
from hajob.plan.evaluator import (
    DUMP_OR_EXIT,
    EXIT_ONLY,
    FAULT,
    LATE,
    UNREPAIRABLE,
    UNTRAINED,
    Evaluator,
    Loss,
    count_budget_uses,
    count_stalls,
)
from hajob.plan.policy import ActionLimits, Policy, Refusal
from hajob.plan.state import JobPhase, JobState, Shrunk, Spend, Stall
from hajob.plan.view import ClusterView
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_worlds import LAYOUT, VIEW, without

TRAINING = JobState(phase=JobPhase.RUNNING, incarnation=1, attempt=1, base=1, step=5)
MISALIGNED = Layout(num_nodes=6, chips_per_node=8, tensor=2, pipeline=4)
ONE_COPY = Layout(num_nodes=4, chips_per_node=2, tensor=2, copies=1)


def evaluator(
    loss: Loss, state: JobState = TRAINING, view: ClusterView = VIEW, policy: Policy | None = None, now: int = 1000
) -> Evaluator:
    return Evaluator(loss, FAULT, state, view, policy or Policy(), now)


@pytest.mark.parametrize(
    ("evaluated", "action", "refusals"),
    [
        (
            evaluator(Loss((5,), floor=Action.IN_PLACE)),
            Action.RETRY,
            [("ProcessAlive", "rank 5 needs a new process; repeating a step does not start one")],
        ),
        (
            evaluator(Loss((), floor=Action.RESTART)),
            Action.RETRY,
            [("Sufficient", "smaller than the requested action (Restart)")],
        ),
        (
            evaluator(Loss((4, 5), (2,), floor=Action.RESTART)),
            Action.REPLACE,
            [("Sufficient", "smaller than the requested action (Restart)")],
        ),
        (
            evaluator(Loss((0,), rank=0, step=7), replace(TRAINING, stalls=(Stall(Action.IN_PLACE, 0, 7, 3),))),
            Action.IN_PLACE,
            [("Progress", "rank 0 has failed 3 times at step 7 without progress")],
        ),
        (
            evaluator(Loss((4, 5), (2,), floor=Action.REPLACE)),
            Action.IN_PLACE,
            [("PodAlive", "InPlace needs the pod of node rank 2, which is lost")],
        ),
        (
            evaluator(Loss((4, 5), (2,), floor=Action.RESTART)),
            Action.CHECKPOINT,
            [("Sufficient", "smaller than the requested action (Restart)")],
        ),
        (
            evaluator(Loss((5,)), policy=without(Action.RETRY)),
            Action.RETRY,
            [("ActionAllowed", "the spec does not allow Retry")],
        ),
        (
            evaluator(Loss((5,)), replace(TRAINING, step=-1), replace(VIEW, step=0)),
            Action.RETRY,
            [("FirstStepFinished", "the newest finished step is 0; MindIO needs step 1")],
        ),
        (
            evaluator(Loss((5,)), view=replace(VIEW, coordinator_ready=False)),
            Action.CHECKPOINT,
            [("CoordinatorReady", "the MindIO controller does not serve")],
        ),
        (
            evaluator(Loss((5,)), view=replace(VIEW, layout=ONE_COPY, checkpoint_step=-1)),
            Action.IN_PLACE,
            [("CheckpointPresent", "no complete optimizer copy and no periodic checkpoint is left")],
        ),
        (
            evaluator(Loss((5,)), view=replace(VIEW, layout=ONE_COPY), policy=Policy(no_copy_repair=False)),
            Action.RETRY,
            [("CompleteCopy", "no complete optimizer copy is left, and MindSpore needs one")],
        ),
        (
            evaluator(Loss((4, 5)), replace(TRAINING, shrunk=Shrunk(nodes=(2,)))),
            Action.SHRINK,
            [("NotShrunk", "the job is shrunk already, and MindIO shrinks only once")],
        ),
        (
            evaluator(Loss((0,))),
            Action.SHRINK,
            [("RankZeroInSet", "data-parallel rank 0 would be dropped: [0]")],
        ),
        (
            evaluator(Loss((40,)), view=replace(VIEW, layout=MISALIGNED)),
            Action.SHRINK,
            [
                ("RankZeroInSet", "data-parallel rank 0 would be dropped: [0, 1, 2, 3, 4, 5]"),
                ("DropSetClosed", "MindIO would drop 32 ranks, the pods that leave hold 48"),
                ("CompleteCopy", "the remaining ranks would not hold a complete optimizer copy"),
                ("MinDataParallel", "0 data-parallel ranks would be left; elastic.minDataParallel is 1"),
            ],
        ),
        (
            evaluator(Loss((2, 6), corrupted=True)),
            Action.SHRINK,
            [("CompleteCopy", "the remaining ranks would not hold a complete optimizer copy")],
        ),
        (
            evaluator(Loss((4,)), policy=Policy(min_data_parallel=4)),
            Action.SHRINK,
            [("MinDataParallel", "3 data-parallel ranks would be left; elastic.minDataParallel is 4")],
        ),
        (
            evaluator(Loss((5,), corrupted=True)),
            Action.CHECKPOINT,
            [("DataSound", "data was reported corrupted, so nothing is saved")],
        ),
        (
            evaluator(Loss((1, 5))),
            Action.CHECKPOINT,
            [("CompleteCopy", "the remaining ranks do not hold a complete optimizer copy")],
        ),
        (
            evaluator(Loss((5,)), replace(TRAINING, spent=(Spend("Retry", 10),) * 3)),
            Action.RETRY,
            [("BudgetLeft", "budget exhausted: 3 of 3 in the last 600 s")],
        ),
        (
            evaluator(Loss((5,), program_failure=True), replace(TRAINING, spent=(Spend("Program", 10),) * 3)),
            Action.IN_PLACE,
            [("ProgramBudgetLeft", "4th failure of the program in 0 s, 3 allowed")],
        ),
        (
            evaluator(Loss((5,), rank=5, step=7), replace(TRAINING, stalls=(Stall(Action.IN_PLACE, 5, 7, 3),))),
            Action.IN_PLACE,
            [("Progress", "rank 5 has failed 3 times at step 7 without progress")],
        ),
        (
            evaluator(Loss((5,), rank=5), replace(TRAINING, stalls=(Stall(Action.IN_PLACE, 5, -1, 3),))),
            Action.IN_PLACE,
            [("Progress", "rank 5 has failed 3 times before the first step without progress")],
        ),
        (
            evaluator(Loss((), rank=-1, step=7), replace(TRAINING, stalls=(Stall(Action.RESTART, -1, 7, 4),))),
            Action.RESTART,
            [("Progress", "the job has failed 4 times at step 7 without progress")],
        ),
        (
            evaluator(Loss((5,)), policy=Policy(refusals={Action.RETRY: (Refusal("Bf16", "words"),)})),
            Action.RETRY,
            [("Bf16", "words")],
        ),
    ],
)
def test_every_refusal_word_for_word(evaluated: Evaluator, action: Action, refusals: list[tuple[str, str]]) -> None:
    assert [(one.name, one.message) for one in evaluated.refusals_of_action(action)] == refusals


@pytest.mark.parametrize("trigger", [LATE, UNREPAIRABLE, DUMP_OR_EXIT, EXIT_ONLY, UNTRAINED])
def test_a_trigger_leaves_these_actions(trigger: object) -> None:
    assert trigger in {LATE, UNREPAIRABLE, DUMP_OR_EXIT, EXIT_ONLY, UNTRAINED}
    evaluated = replace(evaluator(Loss((5,))), trigger=trigger)
    for action in Action:
        if action in {Action.EXPAND, Action.MIGRATE, Action.PAUSE}:
            continue
        refusals = evaluated.refusals_of_action(action)
        left = action in evaluated.trigger.actions
        assert left or [(one.name, one.message) for one in refusals] == [("StillPossible", evaluated.trigger.why)]


def test_a_verdict_in_words() -> None:
    choice = evaluator(Loss((4, 5), (2,), floor=Action.REPLACE)).choose_action()
    assert [verdict.verdict_message for verdict in choice.considered] == [
        "Retry needs the pod of node rank 2, which is lost",
        "InPlace needs the pod of node rank 2, which is lost",
        "taken: the smallest action that works",
    ]
    assert [verdict.taken for verdict in choice.considered] == [False, False, True]
    two = evaluator(Loss((0, 4)), policy=Policy(min_data_parallel=4)).refusals_of_action(Action.SHRINK)
    assert len(two) == 3


def test_one_below_every_limit_is_allowed() -> None:
    assert (
        evaluator(Loss((5,)), replace(TRAINING, spent=(Spend("Retry", 10),) * 2)).refusals_of_action(Action.RETRY) == ()
    )
    failed = replace(TRAINING, spent=(Spend("Program", 10),) * 2)
    assert evaluator(Loss((5,), program_failure=True), failed).refusals_of_action(Action.IN_PLACE) == ()
    assert (
        evaluator(Loss((5,)), replace(TRAINING, spent=(Spend("Program", 10),) * 9)).refusals_of_action(Action.IN_PLACE)
        == ()
    )
    stood = replace(TRAINING, stalls=(Stall(Action.IN_PLACE, 5, 7, 2),))
    assert evaluator(Loss((5,), rank=5, step=7), stood).refusals_of_action(Action.IN_PLACE) == ()
    planned = evaluator(Loss((5,), counted=False), replace(TRAINING, spent=(Spend("Retry", 10),) * 3))
    assert planned.refusals_of_action(Action.RETRY) == ()
    joined = evaluator(Loss((5,), continues=Action.RETRY), replace(TRAINING, spent=(Spend("Retry", 10),) * 3))
    assert joined.refusals_of_action(Action.RETRY) == ()


def test_budgets_are_counted_within_their_window() -> None:
    state = replace(TRAINING, spent=(Spend("Retry", 1000), Spend("Retry", 2000), Spend("InPlace", 2000)))
    assert count_budget_uses(state, "Retry", 5, 5999) == 2
    assert count_budget_uses(state, "Retry", 5, 6000) == 1
    assert count_budget_uses(state, "Retry", 5, 6999) == 1
    assert count_budget_uses(state, "Retry", 5, 7000) == 0
    assert count_budget_uses(state, "Replace", 5, 2000) == 0


def test_stalls_are_of_one_action_rank_and_step() -> None:
    state = replace(TRAINING, stalls=(Stall(Action.RETRY, 5, 7, 2), Stall(Action.IN_PLACE, 5, 8, 1)))
    assert count_stalls(state, Action.RETRY, 5, 7) == 2
    assert count_stalls(state, Action.RETRY, 5, 8) == 0
    assert count_stalls(state, Action.RETRY, 4, 7) == 0
    assert count_stalls(state, Action.IN_PLACE, 5, 8) == 1


# ------------------------------------------------------------------------------------------------ what is booked


def test_the_cause_is_the_fact_in_short() -> None:
    rig = Rig.running()
    rig.see(
        FactKind.AGENT_SILENT, node=2, source=Source.COORDINATOR, message="x" * 5000, node_name="n", step=9, time_ms=77
    )
    cause = rig.incident.cause
    assert cause == Cause(FactKind.AGENT_SILENT, Source.COORDINATOR, "AgentSilent", "n", 4, 2, "x" * 1024, 77, 9)
    assert (rig.incident.opened_ms, rig.incident.purpose) == (rig.now, Purpose.FAULT)
    rig = Rig.running()
    rig.exits(5, code="E42", message="boom")
    assert (rig.incident.cause.code, rig.incident.cause.message, rig.incident.cause.step) == ("E42", "boom", 5)


def test_what_falls_is_booked_on_the_rank_and_step_of_the_cause() -> None:
    rig = Rig.running()
    rig.exits(5, step=9)
    rig.tell(e.Named(2, 1))
    rig.tell(e.ResultReported(2, 406))
    assert rig.state.stalls == (Stall(Action.IN_PLACE, 5, 9, 1), Stall(Action.CHECKPOINT, 5, 9, 1))
    assert [spend.budget for spend in rig.state.spent] == ["InPlace", "Checkpoint"]
    assert rig.incident.lost_ranks == (5,)


def test_a_second_stall_counts_on_and_a_new_step_begins_again() -> None:
    rig = Rig.running(policy=Policy(max_program_failures=9))
    for step, count in ((7, 1), (7, 2), (8, 1), (8, 2), (8, 3)):
        rig.exits(5, step=step)
        assert rig.state.stalls == (Stall(Action.IN_PLACE, 5, step, count),)
        rig.recover()


def test_old_uses_of_budgets_are_forgotten() -> None:
    rig = Rig.running()
    rig.exits(5, step=1)
    rig.recover()
    rig.now += Policy().forgotten_after_ms("InPlace")
    rig.exits(6, step=2)
    assert [spend.time_ms for spend in rig.state.spent] == [rig.now]
    assert Policy().forgotten_after_ms("InPlace") == 86_400_000
    long = Policy(limits={**Policy().limits, Action.RETRY: ActionLimits(1, 100_000, 1)})
    assert long.forgotten_after_ms("Retry") == 100_000_000


def test_a_replaced_node_is_not_restarted_in_place_after_405() -> None:
    rig = Rig.running()
    rig.silent(2)
    rig.tell(e.Named(2, 1))
    done = rig.tell(e.ResultReported(2, 405))
    assert rig.action is Action.REPLACE
    assert rig.order(done).replaced_nodes == (2,)
    assert rig.served[2] == 2


def test_requests_spend_no_budget_their_missed_deadlines_do() -> None:
    rig = Rig.running()
    rig.tell(e.RestartRequested())
    rig.tell(e.ResultReported(2, 499))
    assert (rig.state.phase, rig.state.spent) == (JobPhase.RESTARTING, ())
    rig.deadline("Startup")
    assert [spend.budget for spend in rig.state.spent] == ["Restart"]


def test_a_restart_for_the_controller_books_a_restart() -> None:
    rig = Rig.running()
    rig.lose_for_good("gone")
    rig.tell(e.CheckpointVerified(step=9))
    assert rig.incident.purpose is Purpose.COORDINATOR
    assert [spend.budget for spend in rig.state.spent] == ["Maintenance"]
    assert (rig.state.restarts_infrastructure, rig.state.restarts_program) == (1, 0)


def test_the_view_of_the_worlds() -> None:
    assert LAYOUT.first_other_holder(5) == 1
