"""What a coordinator reports, as facts and events of the planner (docs/protocols/sidecar.md).

A report may come from a newer or older coordinator than this operator: a kind that is not known here is counted and
said, never an exception, and the rest of the report is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from hajob.domain.facts import OF_THE_CONTAINER, Fact, FactKind, Source
from hajob.domain.timeline import Mark
from hajob.plan import events
from hajob.protocol import sidecar_pb2 as wire
from hajob.protocol.steps import known_step

NANOSECONDS_PER_MILLISECOND: Final = 1_000_000

KIND: Final = {
    wire.PROCESS_EXITED: FactKind.PROCESS_EXITED,
    wire.AGENT_SILENT: FactKind.AGENT_SILENT,
    wire.MEMORY_FAULT: FactKind.MEMORY_FAULT,
    wire.COMMUNICATION_FAULT: FactKind.COMMUNICATION_FAULT,
    wire.PROCESS_FAULT: FactKind.PROCESS_FAULT,
    wire.HANG: FactKind.HANG,
    wire.LOG_RULE: FactKind.LOG_RULE,
    wire.HEARTBEAT_SILENT: FactKind.HEARTBEAT_SILENT,
    wire.SCRIPT_ENDED: FactKind.SCRIPT_ENDED,
    wire.CONTROLLER_LOST: FactKind.CONTROLLER_LOST,
    wire.PORT_TAKEN: FactKind.PORT_TAKEN,
}

SOURCE: Final = {
    wire.AGENT_SILENT: Source.COORDINATOR,
    wire.MEMORY_FAULT: Source.MINDIO,
    wire.COMMUNICATION_FAULT: Source.MINDIO,
    wire.PROCESS_FAULT: Source.MINDIO,
    wire.CONTROLLER_LOST: Source.COORDINATOR,
    wire.HANG: Source.COORDINATOR,
}
"""Who saw it; an agent where nothing else is said."""

MARK: Final = {
    wire.STEP_BEFORE: Mark.STEP_BEFORE,
    wire.STOPPED: Mark.STOPPED,
    wire.REPLACEMENTS_STARTED: Mark.STARTED,
    wire.REPLACEMENTS_READY: Mark.READY,
    wire.NAMED: Mark.NAMED,
    wire.RESUMED: Mark.RESUMED,
}
"""Milestones that are marks of an incident's timeline."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One thing in a report, with the time at which it happened.

    Attributes:
        event: None for a milestone that only is a mark of the incident's timeline.
        step_before: of that mark, -1 else.
    """

    event: events.JobEvent | None
    time_ms: int
    mark: Mark | None = None
    step_before: int = -1


@dataclass(frozen=True, slots=True)
class ReportReading:
    """A whole report: what it says, in order, and what could not be understood."""

    observed: tuple[Observed, ...]
    refused: tuple[str, ...]


def read_report(report: wire.Report, now_ms: int) -> ReportReading:
    """Translate a report.

    Milestones come before facts: a fact that arrives together with "resumed" belongs to the time after it. The
    exception is a stop in the report that is younger than the fact: it answers the fact. A new leader hears it so when
    the one before it was killed right after its order; heard the other way round, the fact would open an incident that
    is over. A fact that does not tell why something ended comes after those that may.
    """
    observed: list[Observed] = []
    refused: list[str] = []
    for milestone in report.milestones:
        time_ms = now_ms - milestone.age_nanoseconds // NANOSECONDS_PER_MILLISECOND
        event = _event_of_milestone(milestone, report.state)
        mark = MARK.get(milestone.kind)
        if event is not None or mark is not None:
            before = milestone.step if mark is Mark.STEP_BEFORE else -1
            observed.append(Observed(event, time_ms, mark, step_before=before))
        elif milestone.kind not in _SILENT:
            refused.append(f"milestone kind {milestone.kind}")
    for raw in sorted(report.facts, key=lambda fact: fact.unexplained):
        if raw.kind not in KIND:
            refused.append(f"fact kind {raw.kind}")
            continue
        found = _fact_of_wire(raw, now_ms)
        observed.insert(
            _place_of_fact(found, observed), Observed(events.FactSeen(report.state.incarnation, found), found.time_ms)
        )
    return ReportReading(tuple(observed), tuple(refused))


def _place_of_fact(fact: Fact, observed: Sequence[Observed]) -> int:
    """Where a fact belongs: before the first stop that is not older than itself, else behind everything."""
    answers = (
        place
        for place, other in enumerate(observed)
        if isinstance(other.event, events.Stopped) and other.time_ms >= fact.time_ms
    )
    return next(answers, len(observed))


_SILENT: Final = frozenset({wire.STOP_ACCEPTED, wire.STRATEGY_SENT})


def _event_of_milestone(milestone: wire.Milestone, state: wire.CoordinatorState) -> events.JobEvent | None:
    number = milestone.incarnation
    match milestone.kind:
        case wire.STARTED:
            return events.AllRanksStarted(number, state.attempt)
        case wire.STOPPED:
            return events.Stopped(number, tuple(milestone.ranks))
        case wire.REPLACEMENTS_READY:
            return events.ReplacementsReady(number, state.order_revision)
        case wire.NAMED:
            return events.Named(number, state.order_revision)
        case wire.STRATEGIES:
            return events.StrategiesOffered(number, tuple(milestone.strategies))
        case wire.RESUMED:
            return events.Resumed(number, milestone.step)
        case wire.RESULT:
            return events.ResultReported(
                number,
                milestone.result_code,
                milestone.text,
                milestone.strategy,
                tuple(milestone.ranks),
                milestone.unverified,
            )
        case wire.TAKEN_OVER:
            took_ms = milestone.duration_nanoseconds // NANOSECONDS_PER_MILLISECOND
            return events.ControllerTakenOver(duration_ms=took_ms, store_kept=milestone.store_kept)
        case wire.FINISHED_ALL:
            return events.AllFinished(number, finished_nodes(state))
    return None


def _fact_of_wire(raw: wire.Fact, now_ms: int) -> Fact:
    return Fact(
        id=raw.id,
        kind=OF_THE_CONTAINER.get(raw.code, KIND[raw.kind]) if raw.kind == wire.PROCESS_EXITED else KIND[raw.kind],
        source=SOURCE.get(raw.kind, Source.AGENT),
        node_rank=raw.node_rank if raw.node_rank >= 0 else None,
        ranks=tuple(raw.ranks),
        incarnation=raw.incarnation,
        code=raw.code,
        message=raw.message,
        step=known_step(raw),
        time_ms=now_ms - raw.age_nanoseconds // NANOSECONDS_PER_MILLISECOND,
        exit_code=raw.exit_code if raw.kind in {wire.PROCESS_EXITED, wire.SCRIPT_ENDED} else None,
        unexplained=raw.unexplained,
        load_failed=raw.load_failed,
    )


def finished_nodes(state: wire.CoordinatorState) -> tuple[int, ...]:
    """Return the node ranks whose ranks have all ended with 0."""
    ended = wire.FINISHED
    return tuple(node.node_rank for node in state.nodes if node.ranks and all(r.phase == ended for r in node.ranks))


def launchers_ready(nodes: Iterable[wire.NodeState], count: int) -> bool:
    """Return whether the start script of every one of `count` node ranks has asked for its ranks."""
    return sum(1 for node in nodes if node.connected and node.launcher_ready) >= count
