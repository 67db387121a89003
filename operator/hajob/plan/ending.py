"""Guards and handlers of a job whose last step has ended: nothing is left to train, ranks save and end.

Until the final checkpoint is complete, a lost rank may have taken it along. So a loss opens an incident and waits for
one more look at the checkpoints; only then the job starts anew, from the newest there is. Once that checkpoint is
complete nothing can be lost, and the job is complete as soon as nothing of it works any more.
"""

from dataclasses import replace
from typing import Final

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import Action
from hajob.domain.facts import ENDS_PROCESSES
from hajob.domain.incidents import Cause, IncidentOutcome, Purpose
from hajob.plan import effects, events
from hajob.plan.context import Context, Guard, HandlerResult
from hajob.plan.elastic import give_up_planned
from hajob.plan.guards import is_deadline_due
from hajob.plan.incident_state import (
    PLANNED,
    abandon_planned,
    clear_deadlines,
    close_incident,
    new_incident,
    set_deadline,
)
from hajob.plan.lifecycle import add_held_fact, with_held_incident
from hajob.plan.policy import FINAL_LOOK_SECONDS
from hajob.plan.state import Deadline, Ending, JobPhase, JobState

_SAVED_TEXT: Final = "the final checkpoint is complete; nothing is left to train"
_BESIDE: Final = frozenset({JobPhase.EXPANDING, JobPhase.MIGRATING})
"""Phases of an action beside the training, which is given up."""


def is_final_saved(context: Context) -> bool:
    """Return whether the final checkpoint is complete."""
    return context.state.ending is not None and context.state.ending.saved


def _is_loss_harmless(context: Context) -> bool:
    ending, fact = context.state.ending, context.required_fact
    assert ending is not None
    nodes = context.view.layout.nodes_of_ranks(context.fact_ranks())
    return ending.saved or fact.kind not in ENDS_PROCESSES or set(nodes) <= set(ending.over)


SAVED: Final = Guard("saved", "the final checkpoint is complete", is_final_saved)
REPORTED_SAVED: Final = Guard(
    "final checkpoint",
    "its checkpoint is complete",
    lambda context: context.event_of(events.LastStepEnded).saved,
)
HARMLESS: Final = Guard(
    "nothing to lose",
    "the final checkpoint is complete, or the fact ends no process, or only such as have finished",
    _is_loss_harmless,
)
DUE_FINISH: Final = Guard(
    "finish due", "finishTimeoutSeconds are over", lambda context: is_deadline_due(context, Deadline.FINISH)
)


def begin_ending(context: Context) -> HandlerResult:
    """End what is under way: nothing is left to train."""
    state, closing = _settle_before_ending(context)
    event = context.event_of(events.LastStepEnded)
    state = clear_deadlines(state, Deadline.RECOVERY, Deadline.STARTUP, Deadline.EXPAND)
    ending = Ending(context.now_ms, event.saved, tuple(sorted(event.nodes)))
    return replace(state, ending=ending, problem=""), closing


def _settle_before_ending(context: Context) -> HandlerResult:
    state, incident = context.state, context.incident
    if state.phase in _BESIDE:
        return give_up_planned(context, "the last step has ended")
    if incident is not None and incident.purpose in PLANNED:
        return abandon_planned(state, incident, "the last step has ended")
    return close_incident(state, IncidentOutcome.RECOVERED, "the last step has ended")


def follow_ending(context: Context) -> HandlerResult:
    """Note who has finished since, and close the incident of a loss once the final checkpoint is complete."""
    state, ending, event = context.state, context.state.ending, context.event_of(events.LastStepEnded)
    assert ending is not None
    over = tuple(sorted({*ending.over, *event.nodes}))
    state = replace(state, ending=replace(ending, saved=ending.saved or event.saved, over=over))
    if not event.saved or state.incident is None:
        return state, ()
    return close_incident(clear_deadlines(state, Deadline.RECOVERY), IncidentOutcome.RECOVERED, _SAVED_TEXT)


def await_checkpoint(context: Context) -> HandlerResult:
    """Hold the loss until the checkpoints were looked at once more."""
    if context.incident is not None:
        return add_held_fact(context)
    state = _with_look_deadline(context, with_held_incident(context))
    why = f"fact {context.required_fact.id} waits for a look at the final checkpoint: the last step has ended"
    return state, (effects.Announce(EventReason.HELD, why),)


def await_late_checkpoint(context: Context) -> HandlerResult:
    """Hold the job whose ranks do not end until the checkpoints were looked at once more."""
    state, ending = context.state, context.state.ending
    assert ending is not None
    left = sorted(set(range(context.view.layout.num_nodes)).difference(ending.over, _nodes_left_out(state)))
    seconds = context.policy.finish_timeout_seconds
    words = f"ranks of node ranks {left} have not ended {seconds} s after the last step (spec.finishTimeoutSeconds)"
    incident = new_incident(context, state, Action.RESTART, Purpose.FAULT)
    cause = Cause(code="FinishTimeout", message=words, time_ms=context.now_ms, step=context.view.step)
    state = replace(state, incident=replace(incident, cause=cause), incarnation=incident.number)
    return _with_look_deadline(context, state), (effects.Announce(EventReason.HELD, words),)


def hold_loss_again(context: Context) -> HandlerResult:
    """Keep holding the loss: the policy forbids to act on it."""
    return _with_look_deadline(context, context.state), ()


def _with_look_deadline(context: Context, state: JobState) -> JobState:
    """Return the state with an incident that only a restart can end, and with its deadline."""
    assert state.incident is not None
    state = replace(state, incident=replace(state.incident, action=Action.RESTART))
    return set_deadline(state, Deadline.RECOVERY, context.now_ms + 1000 * FINAL_LOOK_SECONDS)


def _nodes_left_out(state: JobState) -> tuple[int, ...]:
    return state.shrunk.nodes if state.shrunk is not None else ()
