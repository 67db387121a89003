"""The table as a whole: total, reachable, bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from e2e.harness.marks import EVERY_POINT
from hajob.domain.facts import FactKind
from hajob.plan import events as e
from hajob.plan.clocks import follow_deadlines
from hajob.plan.effects import ExplainIncident, SendOrder
from hajob.plan.guards import ALWAYS
from hajob.plan.machine import CELLS, TABLE, Transition, advance_job
from hajob.plan.policy import Mode, Policy
from hajob.plan.state import ENDED, STEADY, JobPhase, JobState
from tests.rigs.plan_rig import from_dict, to_dict
from tests.rigs.plan_worlds import LAYOUT, VIEW, WORLDS, Walk, fact, small_policy

pytestmark = pytest.mark.timeout(900)  # the walk takes a minute of a processor, which may be shared

SETTLED = STEADY | ENDED


class Look:
    """What is wrong with a transition of the walk, in lists: each of them should be empty."""

    def __init__(self) -> None:
        self.without_reason: list[object] = []
        self.changed_by_ignoring: list[object] = []
        self.orders_that_fall: list[object] = []

    def __call__(self, state: JobState, event: e.JobEvent, done: Transition, policy: Policy, at_ms: int) -> None:
        if done.row.handler.name == "ignore":
            explained = tuple(each for each in done.effects if isinstance(each, ExplainIncident))
            if isinstance(event, e.DeadlineReached | e.PolicyChanged):
                unchanged = done.state == follow_deadlines(state, policy, at_ms)
            else:
                unchanged = done.state is state
            if done.effects != explained or not (unchanged or explained):  # it may tell why ranks have ended
                self.changed_by_ignoring.append((state, event, done.effects))
            if not done.ignored:
                self.without_reason.append((state.phase, event))
        incident = state.incident
        before_it = (incident.incarnation, incident.revision) if incident else (state.base, 0)
        orders = [(each.incarnation, each.revision) for each in done.effects if isinstance(each, SendOrder)]
        if orders != sorted(set(orders)) or any(order <= before_it for order in orders):
            self.orders_that_fall.append((state.phase, type(event).__name__, before_it, orders))


@pytest.fixture(scope="module")
def look() -> Look:
    return Look()


@pytest.fixture(scope="module")
def walk(look: Look) -> Walk:
    made = Walk(look).run()
    return made.run(part=1) if EVERY_POINT else made  # of a shape each may meet another state


def test_every_cell_ends_with_the_only_row_that_always_holds() -> None:
    for cell, rows in CELLS.items():
        assert rows, cell
        assert [row.guard is ALWAYS for row in rows].index(True) == len(rows) - 1, cell


def test_every_cell_was_walked(walk: Walk) -> None:
    assert walk.cells == set(CELLS)


def test_every_row_is_reached(walk: Walk) -> None:
    assert not {(row.event.__name__, row.guard.name) for row in TABLE if id(row) not in walk.rows}


def test_every_state_is_reached(walk: Walk) -> None:
    assert {state.phase for state, _ in walk.states.values()} == set(JobPhase)


def test_every_reached_state_survives_the_journal(walk: Walk) -> None:
    for state, _ in walk.states.values():
        assert from_dict(to_dict(state)) == state


def test_silence_ends_within_twelve_deadlines(walk: Walk) -> None:
    """Whatever has happened, when nothing but time passes the job trains, waits for a person, or has ended."""
    for policy in {id(policy): policy for policy, _ in WORLDS}.values():
        for state, now in walk.states.values():
            end = rest(state, now, policy)
            waits_for_the_policy = end.phase is JobPhase.ENDING and policy.mode is not Mode.ENFORCE
            assert end.phase in SETTLED or waits_for_the_policy, (state, end)


def rest(state: JobState, now_ms: int, policy: Policy) -> JobState:
    """Let only deadlines pass, but not that of the whole job, which would end everything, nor a mere look for nodes."""
    for _ in range(12):
        waiting = {name: at for name, at in state.deadlines.items() if name not in {"Active", "Fit"}}
        if state.phase in SETTLED or not waiting:
            return state
        name = min(waiting, key=lambda key: waiting[key])
        now_ms = max(now_ms, waiting[name])
        state = advance_job(state, e.DeadlineReached(name=name), replace(VIEW, free_nodes=0), policy, now_ms).state
    return state


@pytest.mark.usefixtures("walk")
def test_no_event_is_an_exception_and_no_op_says_why(look: Look) -> None:
    assert not look.without_reason
    assert not look.changed_by_ignoring


@pytest.mark.usefixtures("walk")
def test_orders_only_ever_rise(look: Look) -> None:
    """A coordinator takes the highest (incarnation, revision); a new order must never be below the one before."""
    assert not look.orders_that_fall


@pytest.mark.parametrize("kind", [FactKind.PROCESS_EXITED, FactKind.AGENT_SILENT, FactKind.MEMORY_FAULT])
def test_the_same_fault_for_ever_spends_budget_and_ends(kind: FactKind) -> None:
    """A fault that comes back after each recovery takes larger and larger actions and fails the job in the end."""
    state, now = JobState(), 0
    phases: list[JobPhase] = []
    for _ in range(400):
        state, now = settle(state, now)
        phases.append(state.phase)
        if state.phase in ENDED:
            break
        spent = len(state.spent)
        now += 1000
        rank = 2 if state.shrunk else 5
        state = advance_job(state, fact(kind, state, rank=rank), VIEW, small_policy(), now).state
        assert len(state.spent) > spent or state.phase is JobPhase.FAILED
    assert state.phase is JobPhase.FAILED


def settle(state: JobState, now: int) -> tuple[JobState, int]:
    """A coordinator to which everything succeeds."""
    for _ in range(30):
        if state.phase in {JobPhase.RUNNING, JobPhase.SHRUNK, *ENDED}:
            return state, now
        number = state.incident.incarnation if state.incident else 0
        answer: dict[JobPhase, e.JobEvent] = {
            JobPhase.NEW: e.Accepted(),
            JobPhase.PENDING: e.PodsReady(),
            JobPhase.RESTARTING: e.PodsReady(),
            JobPhase.STARTING: e.AllRanksStarted(attempt=state.attempt),
            JobPhase.WARMING: e.Resumed(number, 5),
            JobPhase.GATHERING: e.Named(number),
            JobPhase.RESUMING: e.Resumed(number, 5),
            JobPhase.CONFIRMING: e.ResultReported(number, 0),
            JobPhase.SHRINKING: e.Resumed(number, 5),
            JobPhase.SAVING: e.ResultReported(number, 0, "", "dump"),
        }
        now += 10
        state = advance_job(state, answer[state.phase], VIEW, small_policy(), now).state
    raise AssertionError(f"did not settle: {state}")


def test_a_death_before_the_first_step_fails_with_its_output() -> None:
    state, now = JobState(), 0
    transition = advance_job(state, e.Accepted(), VIEW, small_policy(), now)
    for _ in range(20):
        state, now = transition.state, now + 1000
        if state.phase is JobPhase.FAILED:
            break
        dead = fact(FactKind.PROCESS_EXITED, state, rank=0, exit_code=1, message="ModuleNotFoundError: no torch")
        transition = advance_job(state, dead, replace(VIEW, step=-1), Policy(), now)
    assert state.phase is JobPhase.FAILED
    reasons = [effect for effect in transition.effects if type(effect).__name__ == "FailJob"]
    assert "ProgramFailures" in str(reasons)
    assert "ModuleNotFoundError" in str(reasons)
    assert state.restarts_program == 3


def test_layout_of_the_worlds_is_the_one_of_the_readme() -> None:
    assert (LAYOUT.world_size, LAYOUT.data) == (8, 4)
