"""Facts: duplicates, replays, stale and out-of-order observations, and nonsense change nothing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hajob.domain.facts import INFORMATION, TAKES_THE_NODE, Fact, FactKind, Source
from hajob.plan import events as e
from hajob.plan.incident_state import FACT_LIMIT, RENEWED_LIMIT
from hajob.plan.machine import advance_job
from hajob.plan.policy import Policy
from hajob.plan.state import JobPhase, JobState, Stall
from hajob.sources.report import KIND
from tests.rigs.plan_rig import Rig, from_dict, to_dict
from tests.rigs.plan_worlds import VIEW


def log_of_a_bad_day() -> list[e.JobEvent]:
    """Two incidents with everything that is reported on the way, each report as it is repeated until acknowledged."""

    def exits(name: str, rank: int, number: int, time_ms: int) -> e.FactSeen:
        return e.FactSeen(fact=Fact(name, FactKind.PROCESS_EXITED, ranks=(rank,), incarnation=number, time_ms=time_ms))

    silent = Fact(
        "node 2 silent", FactKind.AGENT_SILENT, Source.COORDINATOR, node_rank=2, incarnation=1, time_ms=1_000_120
    )
    memory = Fact("memory", FactKind.MEMORY_FAULT, Source.MINDIO, ranks=(3,), incarnation=1, time_ms=1_000_850)
    return [
        exits("rank 5", 5, 1, 1_000_000),
        e.FactSeen(fact=silent),
        e.Stopped(2, (4, 5)),
        e.FactSeen(
            fact=Fact("pod 2 failed", FactKind.POD_FAILED, Source.POD, node_rank=2, incarnation=1, time_ms=1_000_200)
        ),
        e.ReplacementsReady(2, 2),
        e.Named(2, 2),
        e.StrategiesOffered(2, ("exit", "dump", "recover")),
        e.Resumed(2, 6),
        e.ResultReported(2, 0, "", "recover"),
        e.FactSeen(fact=memory),
        e.Named(3, 1),
        e.Resumed(3, 7),
        e.ResultReported(3, 0, "", "retry"),
    ]


def play(log: list[e.JobEvent], state: JobState | None = None, start: int = 1_000_000) -> JobState:
    """One event every hundred milliseconds."""
    state = state or Rig.running().state
    for place, event in enumerate(log):
        state = advance_job(state, event, VIEW, Policy(), start + 100 * place).state
    return state


def test_the_log_itself_is_two_incidents() -> None:
    state = play(log_of_a_bad_day())
    assert (state.phase, state.incarnation, state.incident) == (JobPhase.RUNNING, 3, None)
    assert [spend.budget for spend in state.spent] == ["InPlace", "Replace", "Retry"]


def test_replayed_whole_it_changes_nothing() -> None:
    log = log_of_a_bad_day()
    state = play(log)
    assert play(log, state, start=2_000_000) == state


@given(st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_shuffled_it_changes_nothing(dice: random.Random) -> None:
    log = log_of_a_bad_day()
    state = play(log)
    again = log * 2
    dice.shuffle(again)
    assert play(again, state, start=2_000_000) == state


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_every_event_repeated_at_any_later_place_changes_nothing(data: st.DataObject) -> None:
    """Reports are repeated until acknowledged: an event may come again after any later one, with its own number."""
    log = log_of_a_bad_day()
    first = data.draw(st.integers(0, len(log) - 1))
    later = data.draw(st.integers(first + 1, len(log)))
    twice = [*log[:later], log[first], *log[later:]]
    end, plain = play(twice), play(log)
    assert (end.phase, end.incarnation, end.renewed, end.pods, end.stalls) == (
        plain.phase,
        plain.incarnation,
        plain.renewed,
        plain.pods,
        plain.stalls,
    )
    assert [spend.budget for spend in end.spent] == [spend.budget for spend in plain.spent]


@given(st.permutations(range(4)))
@settings(max_examples=24, deadline=None)
def test_losses_in_any_order_make_the_same_incident(order: list[int]) -> None:
    facts = [
        Fact("a", FactKind.PROCESS_EXITED, ranks=(1,), incarnation=1, time_ms=1),
        Fact("b", FactKind.PROCESS_EXITED, ranks=(6,), incarnation=1, time_ms=1),
        Fact("c", FactKind.AGENT_SILENT, node_rank=2, incarnation=1, time_ms=1),
        Fact("d", FactKind.PROCESS_EXITED, ranks=(4,), incarnation=1, time_ms=1),
    ]
    state = play([e.FactSeen(fact=facts[place]) for place in order])
    assert state.incident is not None
    assert (state.incident.lost_ranks, state.incident.restart_ranks) == ((1, 4, 5, 6), (1, 6))
    assert (state.incident.replaced_nodes, state.incident.number, state.incarnation) == ((2,), 2, 2)


def fact(**more: object) -> e.FactSeen:
    base = Fact("x", FactKind.PROCESS_EXITED, ranks=(5,), incarnation=1, time_ms=10**9)
    return e.FactSeen(fact=replace(base, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", sorted(set(KIND.values()) - TAKES_THE_NODE - INFORMATION))
def test_a_note_about_a_node_is_no_fault_of_its_ranks(kind: FactKind) -> None:
    """Agents of 0.2.0 say so that a log rule is off: all ranks of the node would be restarted for a note."""
    rig = Rig.running()
    before = rig.state
    assert rig.tell(fact(kind=kind, ranks=(), node_rank=2, code="nan", message="the log rule nan is off")) == ()
    assert rig.state is before
    assert f"of kind {kind} names no rank" in rig.ignored


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (fact(ranks=(99,)), "Invalid: fact x: rank 99 is outside the world of 8 ranks (0 to 7)"),
        (fact(ranks=(-1,)), "rank -1 is outside"),
        (fact(kind=FactKind.POD_LOST, ranks=(), node_rank=9), "node rank 9 is outside the job of 4 nodes"),
        (fact(kind=FactKind.AGENT_SILENT, ranks=(), node_rank=-2), "node rank -2"),
        (fact(ranks=()), "Invalid: fact x of kind ProcessExited names no rank"),
        (fact(kind=FactKind.POD_LOST, ranks=()), "of kind PodLost names neither a rank nor a node rank"),
        (fact(incarnation=7), "Invalid: fact x is of incarnation 7, the newest is 1"),
        (fact(incarnation=0), "Stale: fact x is of incarnation 0, rank 5 has a newer one"),
    ],
)
def test_nonsense_is_named_and_changes_nothing(event: e.FactSeen, words: str) -> None:
    rig = Rig.running()
    before = rig.state
    assert rig.tell(event) == ()
    assert rig.state is before
    assert words in rig.ignored


@pytest.mark.parametrize(
    "phase", [JobPhase.COMPLETE, JobPhase.FAILED, JobPhase.DELETED, JobPhase.SUSPENDED, JobPhase.NEW]
)
def test_a_fault_of_a_job_that_does_not_train(phase: JobPhase) -> None:
    rig = Rig(JobState(phase=phase, incarnation=1, base=1))
    assert rig.tell(fact()) == ()
    assert rig.ignored.startswith(f"NothingToDo: in {phase}, FactSeen(")


def test_an_unknown_incarnation_is_taken_as_now() -> None:
    rig = Rig.running()
    rig.tell(fact(incarnation=-1))
    assert rig.at(JobPhase.GATHERING)


def test_facts_about_a_renewed_process_are_stale() -> None:
    rig = Rig.running()
    rig.exits(5)
    rig.recover()
    assert rig.tell(fact(id="late word", incarnation=1)) == ()
    assert rig.ignored.startswith("Stale")
    rig.tell(fact(id="the new one", incarnation=2))
    assert rig.at(JobPhase.GATHERING)


def test_of_several_ranks_only_the_living_ones_count() -> None:
    rig = Rig.running()
    rig.exits(5)
    rig.recover()
    rig.tell(fact(id="two", ranks=(4, 5), incarnation=1))
    assert rig.incident.lost_ranks == (4,)


def test_a_pod_is_older_than_a_process_started_in_it() -> None:
    """The pod of a rank that was restarted in place still has its old number; its loss is news."""
    rig = Rig.running()
    rig.exits(5)
    rig.recover()
    rig.tell(fact(id="pod", kind=FactKind.POD_LOST, ranks=(), node_rank=2, incarnation=1))
    assert rig.incident.replaced_nodes == (2,)


def test_an_old_word_about_a_living_process_is_stale() -> None:
    rig = Rig.running().memory(3, Source.MINDIO)
    rig.recover()
    end = rig.state.resumed_ms
    memory = {"kind": FactKind.MEMORY_FAULT, "source": Source.MINDIO, "ranks": (1,), "incarnation": 1}
    assert rig.tell(fact(id="old", time_ms=end - 1, **memory)) == ()
    assert "older than the recovery" in rig.ignored
    rig.tell(fact(id="new", time_ms=end, **memory))
    assert rig.at(JobPhase.GATHERING)


@pytest.mark.parametrize(
    "event",
    [
        e.Stopped(1),
        e.ReplacementsReady(3),
        e.Named(9),
        e.StrategiesOffered(1),
        e.Resumed(99, 7),
        e.ResultReported(1, 499),
    ],
)
def test_events_of_another_incarnation_are_counted_no_ops(event: e.JobEvent) -> None:
    rig = Rig.running()
    rig.exits(5)
    before = rig.state
    assert rig.tell(event) == ()
    assert rig.state is before
    assert rig.ignored.startswith("OtherIncarnation")


def test_an_unknown_strategy_is_named() -> None:
    rig = Rig.naming()
    for event in (e.StrategiesOffered(2, ("fly", "dance")), e.ResultReported(2, 499, "", "fly")):
        before = rig.state
        assert rig.tell(event) == ()
        assert rig.state is before
        assert rig.ignored.startswith("UnknownStrategy: fly")
    rig.tell(e.StrategiesOffered(2, ("fly", "recover")))
    assert rig.at(JobPhase.RESUMING)


def test_a_no_op_names_what_it_refused() -> None:
    rig = Rig.naming()
    for event, words in ((e.Named(99), "incarnation=99"), (e.DeadlineReached(name="Tea"), "name='Tea'")):
        assert rig.tell(event) == ()
        assert words in rig.ignored


def test_a_step_that_is_not_known_leaves_what_was_known() -> None:
    rig = Rig.naming()
    rig.tell(e.Resumed(2, -1))
    assert (rig.state.phase, rig.state.step) == (JobPhase.CONFIRMING, 5)


def test_an_unknown_result_ends_nothing() -> None:
    rig = Rig.naming()
    assert rig.tell(e.ResultReported(2, 403, "undocumented")) == ()
    assert rig.ignored.startswith("EndsNothing")


def test_an_answer_to_an_older_order_is_not_the_answer() -> None:
    rig = Rig.running()
    rig.exits(5)
    rig.exits(3)
    assert rig.tell(e.ReplacementsReady(2, 1)) == ()
    assert not rig.incident.ready
    rig.tell(e.ReplacementsReady(2, 2))
    assert rig.incident.ready


def test_memory_is_bounded() -> None:
    """A thousand incidents leave the state as large as a hundred do."""
    sizes = []
    rig = Rig.running()
    for round_ in range(1000):
        rig.exits(round_ % 8, step=round_)
        rig.recover()
        rig.now += 3_600_000
        if round_ in {200, 999}:
            sizes.append(len(str(to_dict(rig.state))))
    assert rig.state.phase is JobPhase.RUNNING
    assert len(rig.state.fact_ids) <= FACT_LIMIT
    assert sizes[1] < sizes[0] * 1.2
    assert len(rig.state.spent) <= 25


def test_what_is_forgotten_is_stale_by_its_time() -> None:
    from hajob.domain.layout import Layout

    big = replace(VIEW, layout=Layout(num_nodes=600, chips_per_node=2, tensor=2))
    rig = Rig.running(view=big)
    for rank in range(RENEWED_LIMIT + 2):
        rig.exits(rank, step=rank)
        rig.recover()
        rig.now += 3_600_000
    assert len(rig.state.renewed) == RENEWED_LIMIT
    assert rig.state.incarnation_of(0, 0) == 1
    assert rig.tell(fact(id="ancient", ranks=(0,), incarnation=1, time_ms=rig.state.forgotten_ms - 1)) == ()


def test_the_journal_of_a_healthy_job_is_small() -> None:
    state = Rig.running().state
    assert to_dict(state) == {
        "phase": "Running",
        "incarnation": 1,
        "attempt": 1,
        "base": 1,
        "coordinator": 1,
        "step": 5,
        "active_since_ms": 1_000_000,
    }
    assert from_dict({}) == JobState()
    stalled = replace(state, stalls=(Stall(Rig.running().memory(3, Source.MINDIO).action, 3, 5, 1),))
    assert from_dict(to_dict(stalled)) == stalled


@pytest.mark.parametrize("named", [(), (5, 7)])
def test_beyond_what_is_remembered_older_facts_are_stale(named: tuple[int, ...]) -> None:
    """A process that is forgotten may be of any age; both ways of starting one anew note the time."""
    rig = Rig.running()
    full = {100 + number: 1 for number in range(512)}
    if named:
        rig.exits(5)
    rig.state = replace(rig.state, renewed=full)
    if named:
        rig.tell(e.Stopped(2, named))
    else:
        rig.exits(5)
    assert (len(rig.state.renewed), rig.state.forgotten_ms) == (512, rig.now)
    assert 100 not in rig.state.renewed
