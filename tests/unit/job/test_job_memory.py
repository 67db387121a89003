"""What is remembered of a job: events that change nothing are counted, time is booked when things happened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from hajob import metrics
from hajob.api.job import HATrainingJob
from hajob.domain.facts import Fact, FactKind
from hajob.domain.goodput import Bucket
from hajob.domain.timeline import Mark
from hajob.job.memory import JobMemory
from hajob.plan import events
from hajob.plan.policy import layout_from_spec
from hajob.plan.state import JobPhase
from hajob.plan.view import ClusterView
from tests.rigs.fake_clock import FakeClock

EXAMPLE = Path(__file__).parents[3] / "examples/quickstart.yaml"
JOB = HATrainingJob.model_validate(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")))
VIEW = ClusterView(layout_from_spec(JOB.spec), step=10, free_nodes=1)


def memory(clock: FakeClock) -> JobMemory:
    return JobMemory(JOB, clock)


def trained(clock: FakeClock) -> JobMemory:
    """The memory of a job that trains, and has done ten steps."""
    told = memory(clock)
    for event in (events.Accepted(), events.PodsReady(), events.AllRanksStarted(attempt=1), events.Resumed(1, 1)):
        told.advance_plan(event, VIEW)
    return told


def ignored(event: str, reason: str) -> float:
    return metrics.REGISTRY.get_sample_value("hajob_events_ignored_total", {"event": event, "reason": reason}) or 0.0


def test_an_event_that_changes_nothing_is_counted_by_reason() -> None:
    told, before = memory(FakeClock()), ignored("AllFinished", "NothingToDo")
    assert told.advance_plan(events.AllFinished(), VIEW) is None
    assert ignored("AllFinished", "NothingToDo") == before + 1


def test_an_outage_is_booked_from_when_it_happened() -> None:
    clock = FakeClock()
    told = trained(clock)
    clock.seconds += 100
    told.record_time(VIEW)
    clock.seconds += 10
    now = told.time.now()
    fact = Fact("a", FactKind.PROCESS_EXITED, ranks=(3,), incarnation=1, time_ms=now - 4000)
    told.advance_plan(events.FactSeen(fact=fact), VIEW, now - 4000)
    assert told.state.phase is JobPhase.GATHERING
    clock.seconds += 2
    told.advance_plan(events.Named(2), VIEW)
    told.recorder.record_mark(Mark.STEP_BEFORE, now - 5000, 10)
    clock.seconds += 1
    told.advance_plan(events.Resumed(2, 11), replace(VIEW, step=11))
    account = told.journal.account
    assert account is not None
    assert account.booked == {Bucket.TRAINING: 105_000, Bucket.DETECTION: 1000, Bucket.RECOVERY: 7000}


def test_a_word_of_the_former_coordinator_is_of_the_outage() -> None:
    clock = FakeClock()
    told = trained(clock)
    told.store_last_step(9, 1000)
    assert told.recorder.record is None
    now = told.time.now()
    fact = Fact("a", FactKind.PROCESS_EXITED, ranks=(3,), incarnation=1, time_ms=now)
    told.advance_plan(events.FactSeen(fact=fact), VIEW, now)
    clock.seconds += 1
    told.store_last_step(10, 1500)
    assert told.recorder.marks_of_open[Mark.STEP_BEFORE] == now - 500
    assert told.recorder.record is not None
    assert told.recorder.record.restoration.before == 10


def test_steps_are_booked_alone_as_with_all_that_is_seen() -> None:
    for steps in ([10, 11, 12], [4, 4, 10, 11], [4, 11, -1, 12]):
        clock, other = FakeClock(), FakeClock()
        alone, whole = trained(clock), trained(other)
        for step in steps:
            clock.seconds, other.seconds = clock.seconds + 3, other.seconds + 3
            alone.store_step(step)
            whole.record_time(replace(VIEW, step=step))
        account, expected = alone.journal.account, whole.journal.account
        assert account is not None
        assert expected is not None
        assert account.book_until(alone.time.now()) == expected.book_until(whole.time.now())


def test_only_a_step_that_is_new_is_booked() -> None:
    clock = FakeClock()
    told = memory(clock)
    assert not told.store_step(1)
    told = trained(clock)
    assert not told.store_step(10)
    assert told.store_step(11)
    fact = Fact("a", FactKind.PROCESS_EXITED, ranks=(3,), incarnation=1, time_ms=told.time.now())
    told.advance_plan(events.FactSeen(fact=fact), VIEW)
    assert not told.store_step(12)
