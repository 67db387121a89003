"""The machine: one event in, one row of the table, a new state and effects out.

`advance_job` is a pure function and total: every event in every state has an answer, and an event that makes no sense
is a no-op that says why. It never raises for what the outside world may send.
"""

from dataclasses import replace
from typing import Final

from hajob.plan.clocks import follow_deadlines
from hajob.plan.context import Context, TableRow, Transition
from hajob.plan.events import EVENTS, DeadlineReached, JobEvent, PolicyChanged
from hajob.plan.guards import ALWAYS
from hajob.plan.incident_state import explain_cause
from hajob.plan.invariants import permitted_row
from hajob.plan.policy import Policy
from hajob.plan.repeats import remember_failure
from hajob.plan.state import ENDED, JobPhase, JobState
from hajob.plan.table import TABLE
from hajob.plan.view import ClusterView

__all__ = ["CELLS", "TABLE", "Transition", "advance_job"]


def _rows_of_cell(phase: JobPhase, event: type[JobEvent]) -> tuple[TableRow, ...]:
    rows = [row for row in TABLE if row.event is event and phase in row.states]
    last = next(place for place, row in enumerate(rows) if row.guard is ALWAYS)
    return tuple(rows[: last + 1])


CELLS: Final = {(phase, event): _rows_of_cell(phase, event) for phase in JobPhase for event in EVENTS}
"""Rows of each state and kind of event in table order, up to and with the first that always applies."""


def advance_job(state: JobState, event: JobEvent, view: ClusterView, policy: Policy, now_ms: int) -> Transition:
    """Answer one event.

    Args:
        state: as the last outcome left it.
        event: what happened, one of `hajob.plan.events.EVENTS`.
        view: the cluster and the training now.
        policy: what the user allows.
        now_ms: the operator's clock, in milliseconds; never read anywhere else.
    """
    if isinstance(event, PolicyChanged | DeadlineReached):  # the spec may have changed since the deadline was set
        state = follow_deadlines(state, policy, now_ms)
    context = Context(state, event, view, policy, now_ms)
    context.state, explanation = explain_cause(context)
    row = next(row for row in CELLS[state.phase, type(event)] if row.guard.test(context))  # the last is `always`
    row = permitted_row(row, context)
    new, effects = row.handler.run(context)
    if row.target is not None and row.target is not new.phase:
        new = replace(new, phase=row.target)
    counts = context.ignored is None and context.relevance.ignored is None
    if context.seen_fact is not None and counts and new.phase not in ENDED:
        failures = remember_failure(context.seen_fact, context.fact_ranks(), context.state, view, now_ms)
        new = replace(new, failures=failures) if failures != new.failures else new
    if new.held_from is not None and new.phase is not JobPhase.HELD:
        new = replace(new, held_from=None)
    if new is not state:
        new = follow_deadlines(new, policy, now_ms)
    considered = context.choice.considered if context.choice else ()
    return Transition(new, (*explanation, *effects), considered, row, context.ignored)
