"""In which order the parts of one report are heard."""

from __future__ import annotations

from hajob.plan.events import FactSeen
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.report import read_report

MILLISECOND = 1_000_000
NOW = 1_795_255_200_000


def report(*parts: tuple[str, int, int]) -> wire.Report:
    """A report; a part is fact or milestone, its kind and its age in milliseconds."""
    made = wire.Report(state=wire.CoordinatorState(incarnation=2))
    for what, kind, age in parts:
        if what == "fact":
            made.facts.add(id=f"fact-{age}", kind=kind, ranks=[3], age_nanoseconds=age * MILLISECOND)
        else:
            made.milestones.add(kind=kind, incarnation=2, age_nanoseconds=age * MILLISECOND)
    return made


def order(made: wire.Report) -> list[str]:
    return [type(each.event).__name__ for each in read_report(made, NOW).observed]


def test_a_fact_told_with_a_resumption_counts_after_it() -> None:
    made = report(("milestone", wire.RESUMED, 5), ("fact", wire.PROCESS_EXITED, 9))
    assert order(made) == ["Resumed", "FactSeen"]


def test_a_new_leader_hears_a_fact_before_the_stop_it_caused() -> None:
    made = report(
        ("milestone", wire.STOPPED, 800),
        ("milestone", wire.NAMED, 90),
        ("milestone", wire.RESUMED, 5),
        ("fact", wire.PROCESS_EXITED, 850),
    )
    assert order(made) == ["FactSeen", "Stopped", "Named", "Resumed"]


def test_a_fact_after_a_whole_recovery_is_heard_after_it() -> None:
    made = report(("milestone", wire.STOPPED, 800), ("milestone", wire.RESUMED, 100), ("fact", wire.PROCESS_EXITED, 20))
    assert order(made) == ["Stopped", "Resumed", "FactSeen"]


def test_a_fact_that_tells_why_is_heard_before_one_that_does_not() -> None:
    made = report(("fact", wire.PROCESS_EXITED, 9), ("fact", wire.SCRIPT_ENDED, 8), ("fact", wire.PROCESS_EXITED, 3))
    made.facts[0].unexplained = made.facts[1].unexplained = True
    heard = [each.event.fact for each in read_report(made, NOW).observed if isinstance(each.event, FactSeen)]
    assert [(fact.id, fact.unexplained) for fact in heard] == [("fact-3", False), ("fact-9", True), ("fact-8", True)]
