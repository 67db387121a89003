"""A planned pause: every rank waits at the end of a step while other work is done on the nodes, then all go on.

MindIO holds the ranks (docs/protocols/mindio.md); the shell does the other work and reports its end
(docs/decisions/0036-planned-pauses.md).
"""

from dataclasses import replace
from typing import Final

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import Action, OrderCommand
from hajob.domain.incidents import IncidentOutcome, Purpose
from hajob.plan import effects, events
from hajob.plan.context import Context, Guard, HandlerResult
from hajob.plan.incident_state import abandon_planned, clear_deadlines, close_incident, new_incident, set_deadline
from hajob.plan.policy import CONTINUE_SECONDS, HELD_SECONDS, WITHOUT_MINDIO, Mode
from hajob.plan.recovery import build_order, step_after_outage
from hajob.plan.state import Deadline


def _why_never_pausable(context: Context) -> str:
    """Return why this job can never be paused, or not for this work; empty where it can."""
    policy, event = context.policy, context.event
    if isinstance(event, events.PauseRequested) and event.refused:
        return event.refused
    if policy.mode is not Mode.ENFORCE:
        return f"recovery.mode is {policy.mode}"
    if not policy.hot_switch:
        return "ProcessRecovery: MindSpore holds at the end of a step only where InPlace or Replace can work"
    return "" if policy.through_mindio else WITHOUT_MINDIO


def _may_pause_now(context: Context) -> bool:
    """Whether MindIO can hold the training now; if not, the shell repeats the request."""
    return not _why_never_pausable(context) and context.view.step >= 1 and context.view.coordinator_ready


MAY_PAUSE: Final = Guard(
    "may pause", "mode is Enforce, ranks can be held, a step has ended, MindIO serves", _may_pause_now
)
NEVER_PAUSES: Final = Guard(
    "never pauses",
    "mode is not Enforce, no rank can be held, MindIO is left out, or no pod of the work can be made",
    lambda context: bool(_why_never_pausable(context)),
)
HELD: Final = Guard(
    "not going on yet",
    "MindIO has not been told to go on",
    lambda context: context.incident is not None and not context.incident.ready,
)

GOING_ON: Final = Guard(
    "going on",
    "MindIO has been told to go on",
    lambda context: context.incident is not None and context.incident.ready,
)


def begin_pause(context: Context) -> HandlerResult:
    """Have every rank wait at the end of its step."""
    event, state = context.event_of(events.PauseRequested), context.state
    incident = new_incident(context, state, Action.PAUSE, Purpose.PAUSE, revision=1)
    state = replace(state, incident=incident, incarnation=incident.number, pause_seen=event.request)
    state = set_deadline(state, Deadline.RECOVERY, context.now_ms + 1000 * event.seconds)
    return state, (build_order(incident, OrderCommand.PAUSE, event.seconds + CONTINUE_SECONDS),)


def refuse_pause(context: Context) -> HandlerResult:
    """Announce, once for each request, why the job cannot be paused."""
    event = context.event_of(events.PauseRequested)
    said = effects.Announce(EventReason.PAUSE_REFUSED, f"the training is not paused: {_why_never_pausable(context)}")
    return replace(context.state, pause_seen=event.request), (said,)


def continue_after_pause(context: Context) -> HandlerResult:
    """Order the training to continue: the work is done, its time is over, or another request came."""
    event, incident = context.event, context.open_incident
    incident = replace(incident, revision=incident.revision + 1, ready=True)
    wait = CONTINUE_SECONDS if context.view.coordinator_ready else HELD_SECONDS
    state = set_deadline(context.state, Deadline.RECOVERY, context.now_ms + 1000 * wait)
    said = (effects.Announce(EventReason.PAUSE_ENDS, event.message),) if isinstance(event, events.PauseEnded) else ()
    return replace(state, incident=incident), (build_order(incident, OrderCommand.CONTINUE, 0), *said)


def close_pause(context: Context) -> HandlerResult:
    """Close the pause: the job trains again."""
    state = replace(context.state, step=step_after_outage(context), resumed_ms=context.now_ms)
    return close_incident(clear_deadlines(state, Deadline.RECOVERY), IncidentOutcome.RECOVERED)


def abandon_pause(context: Context) -> HandlerResult:
    """Abandon a pause that MindIO gave up; MindIO or their silence then reports ranks that do not continue."""
    event, incident = context.event, context.open_incident
    told = f"{event.code} {event.text}".rstrip() if isinstance(event, events.ResultReported) else "no answer of MindIO"
    return abandon_planned(
        clear_deadlines(context.state, Deadline.RECOVERY), incident, f"the pause was given up: {told}"
    )
