"""Handlers outside fault recovery: start and end of a job, user requests, held faults and notes."""

from dataclasses import replace
from typing import Any, Final

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import ACTION_ORDER, Action, OrderCommand
from hajob.domain.cause_words import report_of_cause
from hajob.domain.facts import HARMLESS_SO_FAR, FactKind
from hajob.domain.incidents import Cause, Incident, IncidentOutcome, Purpose
from hajob.domain.text import last_lines
from hajob.plan import effects, events
from hajob.plan.context import Context, HandlerResult
from hajob.plan.effects import Effect
from hajob.plan.elastic import give_up_planned, set_next_look
from hajob.plan.evaluator import DUMP_OR_EXIT, EXIT_ONLY, FAULT, ActionVerdict, Evaluator, Loss, Trigger
from hajob.plan.guards import start_due_ms, unknown_ranks
from hajob.plan.ignored import Ignored, IgnoreReason
from hajob.plan.incident_state import (
    FACT_LIMIT,
    MESSAGE_LIMIT,
    PLANNED,
    abandon_planned,
    avoid_nodes,
    clear_deadlines,
    close_incident,
    fields_after_join,
    incident_to_continue,
    new_incident,
    next_incarnation,
    place_on_spares,
    release_nodes,
    renew_incarnations,
    set_deadline,
    with_failed_load,
)
from hajob.plan.policy import (
    RELEASE_SECONDS,
    Mode,
    Refusal,
)
from hajob.plan.recovery import launch_attempt, order_checkpoint
from hajob.plan.relevance import joined_by_faults
from hajob.plan.state import OF_COORDINATOR, UNTRAINED, Deadline, Ending, JobPhase, JobState, Waiting

_EVENT_LIMIT: Final = 240
SAVE_FIRST: Final = Trigger("Asked", (Action.CHECKPOINT,), "only a checkpoint was asked for")


def accept_job(context: Context) -> HandlerResult:
    """Make pods and coordinator: for the first time, or anew after a suspend."""
    return launch_attempt(context, context.state, None, [])


def revive_failed_job(context: Context) -> HandlerResult:
    """Start a failed job again; forget its spent budgets and counts."""
    state = replace(context.state, spent=(), stalls=(), failures=(), failed_loads=(), problem="", active_ms=0)
    return launch_attempt(context, state, None, [])


def remake_taken_pod(context: Context) -> HandlerResult:
    """Recreate only the pod that the cluster took before its ranks were started."""
    state, nodes = context.state, context.view.layout.nodes_of_ranks(context.fact_ranks())
    number = next_incarnation(context, state)
    ids = (*state.fact_ids, context.required_fact.id)[-FACT_LIMIT:]
    state = replace(renew_incarnations(state, context.now_ms, number, nodes=nodes), incarnation=number, fact_ids=ids)
    if context.required_fact.refused_by_node:
        state = avoid_nodes(state, dict.fromkeys(nodes, context.view.nodes_to_avoid))
    state = place_on_spares(context, state, nodes)
    told = f"only the pods of node ranks {list(nodes)} are replaced: {message_of_event(context)}"
    return state, (effects.Announce(EventReason.POD_MADE_ANEW, told),)


def await_places(context: Context) -> HandlerResult:
    """Stop the start-up clock while quota or nodes are missing."""
    state, event = context.state, context.event_of(events.PlacesMissing)
    if state.waiting is not None:
        return state, ()
    due = state.deadlines.get(Deadline.STARTUP)
    left = 0 if due is None else max(due - context.now_ms, 1)
    state = replace(clear_deadlines(state, Deadline.STARTUP), waiting=Waiting(context.now_ms, left))
    return state, (effects.Announce(event.reason, event.message),)


def places_found(context: Context) -> HandlerResult:
    """Resume the start-up clock: every pod has its node."""
    state, waiting = context.state, context.state.waiting
    if waiting is None or waiting.released:  # pods that were given up have no places
        return state, ()
    state = replace(state, waiting=None)
    if not waiting.start_left_ms:
        return state, ()
    return set_deadline(state, Deadline.STARTUP, context.now_ms + waiting.start_left_ms), ()


def start_goes_on(context: Context) -> HandlerResult:
    """Extend the start-up deadline when the start shows progress."""
    at_ms = start_due_ms(context)
    return (context.state if at_ms is None else set_deadline(context.state, Deadline.STARTUP, at_ms)), ()


def give_back_chips(context: Context) -> HandlerResult:
    """Release the chips of a start that does not get nodes for all of its pods, so that others may have them."""
    state, waiting = context.state, context.state.waiting
    assert waiting is not None
    state = release_nodes(
        replace(state, waiting=replace(waiting, released=True)), tuple(range(context.view.layout.num_nodes))
    )
    state = set_deadline(state, Deadline.RELEASE, context.now_ms + 1000 * RELEASE_SECONDS)
    return state, (
        effects.Announce(
            EventReason.CHIPS_RELEASED,
            "the job waits for nodes and released its chips (waitingPodPolicy: Release)",
        ),
    )


def take_up_start(context: Context) -> HandlerResult:
    """Recreate the rank pods: there are nodes for all of them."""
    state, waiting = context.state, context.state.waiting
    assert waiting is not None
    number = state.incarnation + 1
    state = renew_incarnations(state, context.now_ms, number, nodes=tuple(range(context.view.layout.num_nodes)))
    state = replace(state, incarnation=number, waiting=replace(waiting, released=False))
    return clear_deadlines(state, Deadline.RELEASE), (
        effects.Announce(EventReason.CHIPS_WANTED, "nodes for all rank pods are free"),
    )


def relaunch_on_request(context: Context) -> HandlerResult:
    """Restart the job on request, without spending a budget."""
    state, incident, out = open_planned_incident(context, Purpose.REQUEST, Action.RESTART)
    return launch_attempt(context, state, incident, out)


def open_planned_incident(
    context: Context, purpose: Purpose, action: Action
) -> tuple[JobState, Incident, list[Effect]]:
    """Close the open incident and open one of this purpose."""
    state, closing = settle_incident(context, f"{purpose} took over")
    incident = new_incident(context, state, action, purpose, revision=1)
    return replace(state, incarnation=incident.number), incident, [*closing]


def settle_incident(context: Context, why: str) -> tuple[JobState, tuple[Effect, ...]]:
    """Close the open incident because something else begins."""
    state, incident = context.state, context.incident
    if incident is None or state.phase is JobPhase.CONFIRMING:
        return close_incident(state, IncidentOutcome.RECOVERED, why)
    if incident.purpose in PLANNED:
        return abandon_planned(state, incident, why)
    return close_incident(state, IncidentOutcome.FAILED, why)


def _settle_suspended(context: Context) -> tuple[JobState, tuple[Effect, ...]]:
    """Close the open incident of a job that is suspended: one that was opened for that has done its work."""
    incident = context.incident
    if incident is None or incident.purpose not in {Purpose.SUSPEND, Purpose.EVICT}:
        return settle_incident(context, "suspended")
    return close_incident(context.state, IncidentOutcome.DONE)


def save_for_suspend(context: Context) -> HandlerResult:
    """Save the training before its pods end, because a person asks for it or the queue takes the quota back."""
    evicted = bool(context.event_of(events.SuspendRequested).message)
    return save_for_purpose(Purpose.EVICT if evicted else Purpose.SUSPEND, context)


def save_for_purpose(purpose: Purpose, context: Context) -> HandlerResult:
    """Save the training before a suspend, an eviction, a requested restart or a growth."""
    incident = context.incident
    if incident is not None and joined_by_faults(context.state) is not None:
        begun = context.state.phase is not JobPhase.HELD
        gone = (*incident.escalated_from, incident.action) if begun else incident.escalated_from
        incident = replace(
            incident,
            purpose=purpose,
            action=Action.CHECKPOINT,
            escalated_from=gone,
            revision=incident.revision + 1,
        )
        return order_checkpoint(context, context.state, incident, [])
    state, incident, out = open_planned_incident(context, purpose, Action.CHECKPOINT)
    return order_checkpoint(context, state, incident, out)


def change_save_purpose(purpose: Purpose, context: Context) -> HandlerResult:
    """Change what follows the checkpoint that is being saved."""
    return replace(context.state, incident=replace(context.open_incident, purpose=purpose)), ()


def suspend_job(context: Context) -> HandlerResult:
    """Delete every pod and keep the state needed to resume."""
    saved = _how_saved(context)
    state, closing = _settle_suspended(context)
    number = next_incarnation(context, state)
    revision = context.incident.revision if context.incident else 0
    stop = effects.SendOrder(OrderCommand.STOP, number - 1, revision + 1)
    state = replace(state, incarnation=number, shrunk=None, renewed={}, pods={}, released=(), base=number, ending=None)
    state = replace(state, problem=saved)
    stale = (Deadline.RECOVERY, Deadline.STARTUP, Deadline.EXPAND, *OF_COORDINATOR)
    return clear_deadlines(state, *stale), (stop, *closing, effects.Announce(EventReason.SUSPENDED, saved))


def _how_saved(context: Context) -> str:
    """Say whether the current step was saved before the suspend, and if not, why."""
    event = context.event
    if context.state.phase is not JobPhase.SAVING:
        why = "; ".join(refusal.message for refusal in _refusals_to_save(context)) or "no save was requested"
    elif isinstance(event, events.ResultReported):
        if event.code == 0 and event.unverified:
            return f"MindIO reports that the current step is saved, which nobody has verified ({event.unverified})"
        if event.code == 0:
            return "the current step is saved"
        why = f"the save failed with code {event.code} {event.text}".rstrip()
    elif isinstance(event, events.DeadlineReached):
        why = "the save timed out"
    elif isinstance(event, events.StrategiesOffered):
        why = "MindIO offered no save"
    else:
        why = "the MindIO controller was lost during the save"
    return f"the current step is not saved ({why}); the job resumes from the newest checkpoint before it"


def complete_job(context: Context) -> HandlerResult:
    """Complete the job: nothing is left to train, and nobody works any more."""
    state, event = clear_deadlines(context.state, *Deadline), context.event
    if isinstance(event, events.AllFinished):
        ending = state.ending or Ending(context.now_ms)
        state = replace(state, ending=replace(ending, over=tuple(sorted({*ending.over, *event.nodes}))))
    state, closing = close_incident(state, IncidentOutcome.RECOVERED, "the training ended")
    return replace(state, shrunk=None), (*closing, effects.CompleteJob())


def delete_job(context: Context) -> HandlerResult:
    """Clear the deadlines and close the incident; owner references and the finalizer do the rest."""
    state = clear_deadlines(context.state, *Deadline)
    return close_incident(state, IncidentOutcome.FAILED, "the job was deleted")


def fail_job(reason: str, sentence: str, context: Context) -> HandlerResult:
    """Fail the job; the last action evaluated, if any, gives the reason."""
    verdicts = context.choice.considered if context.choice else ()
    why, message = _why_failed(reason, sentence, verdicts)
    if context.state.phase in UNTRAINED:
        why = _why_not_started(why, context)
    cause = _cause_of_failure(context)
    state, closing = close_incident(clear_deadlines(context.state, *Deadline), IncidentOutcome.FAILED, message)
    if cause is not None and reason in _LIMITS_OF_THE_USER:
        message = f"{message}: {cause.message}" if cause.message else message
    elif cause is not None:
        message = report_of_cause(cause, message)
    return state, (*closing, effects.FailJob(why, message))


def _cause_of_failure(context: Context) -> Cause | None:
    """Return what the job fails of: the open incident's cause, or the event's fact where that one tells nothing."""
    known, fact = context.incident.cause if context.incident is not None else None, context.seen_fact
    if fact is not None and fact.message and (known is None or known.unexplained or not known.message):
        return Cause.from_fact(fact, context.fact_ranks(), context.view.step)
    if known is not None and known.message:
        return known
    told = message_of_event(context) if known is None else ""
    problem = told or context.state.problem
    return Cause(message=problem) if problem else known if known is not None and known.kind else None


def _why_not_started(why: str, context: Context) -> str:
    """Return the reason why a job that has never trained was given up."""
    if why == "ProgramFailures" and context.seen_fact is not None and context.seen_fact.kind in _SCRIPT_OVER:
        return "ScriptEnded"
    in_vain = why == "NoProgress" and isinstance(context.event, events.DeadlineReached)
    return "StartupDeadlineExceeded" if in_vain else why


def fail_unworkable(context: Context) -> HandlerResult:
    """Fail the job at once, with the reason that the event names."""
    event = context.event_of(events.Unworkable)
    state, closing = close_incident(clear_deadlines(context.state, *Deadline), IncidentOutcome.FAILED, event.message)
    return state, (*closing, effects.FailJob(event.reason, event.message))


_SCRIPT_OVER: Final = frozenset({FactKind.SCRIPT_ENDED, FactKind.POD_FAILED})
"""Program failures after which the start script does not go on."""
_LIMITS_OF_THE_USER: Final = frozenset({"ActiveDeadlineExceeded", "CapacityTimeoutExceeded"})
"""Reasons that are the cause themselves: the fault that was being recovered from only explains them."""
_FAILURES: Final = {
    "ProgramBudgetLeft": "ProgramFailures",
    "Progress": "NoProgress",
    "BudgetLeft": "RestartBudgetSpent",
    "ActionAllowed": "RestartNotAllowed",
}


def _why_failed(reason: str, sentence: str, verdicts: tuple[ActionVerdict, ...]) -> tuple[str, str]:
    """Return reason and message, from the refusals of the last action."""
    if not verdicts:
        return reason, sentence
    names = {refusal.name: refusal.message for refusal in verdicts[-1].refusals}
    for name, why in _FAILURES.items():
        if name in names:
            return why, names[name]
    return reason, verdicts[-1].verdict_message


# ---------------------------------------------------------------------- notes that change little


def ignore_event(reason: IgnoreReason, context: Context) -> HandlerResult:
    """Change nothing, and record why, so that it can be counted."""
    message = f"in {context.state.phase}, {str(context.event)[:_EVENT_LIMIT]}"
    context.ignored = context.ignored or Ignored(reason, message)
    return context.state, ()


def note_slow_start(context: Context) -> HandlerResult:
    """Remember a fact that explains a slow start."""
    fact = context.required_fact
    ids = (*context.state.fact_ids, fact.id)[-FACT_LIMIT:]
    text = f"{fact.code or fact.kind}: {fact.message}"[-MESSAGE_LIMIT:]
    return replace(context.state, problem=text, fact_ids=ids), (effects.Announce(EventReason(fact.kind.value), text),)


# ---------------------------------------------------------------------- faults that are held back

_BESIDE: Final = {
    JobPhase.EXPANDING: JobPhase.SHRUNK,
    JobPhase.MIGRATING: JobPhase.RUNNING,
    JobPhase.CONFIRMING: JobPhase.RUNNING,
    JobPhase.PAUSED: JobPhase.RUNNING,
}
"""What goes on when something that was done beside the training, or with it, is set aside."""


def hold_fault(context: Context) -> HandlerResult:
    """Keep a fault open and start nothing, because `recovery.mode` forbids the decision; say what it would have been.

    An action under way that the fault would change is given up by this operator: what it has begun is begun anew when
    the fault is decided.
    """
    trigger, said = context.held_back, _held_in_words(context)
    incident = incident_to_continue(context)
    joins = incident is not None and incident.purpose is Purpose.FAULT
    closing: tuple[Effect, ...] = ()
    if joins:
        state = _with_joined_incident(context)
    else:
        closing = _set_planned_aside(context, f"a fault came while recovery.mode is {context.policy.mode}")
        state = with_held_incident(context)
    held = state.incident
    assert held is not None
    named = trigger is DUMP_OR_EXIT and (joins or context.seen_fact is None)
    state = replace(state, incident=replace(held, named=held.named or named))
    state = with_failed_load(context, replace(state, blind=state.blind or trigger is EXIT_ONLY))
    return clear_deadlines(state, Deadline.RECOVERY, Deadline.STARTUP, Deadline.EXPAND), (*closing, said)


def _held_in_words(context: Context) -> Effect:
    """Announce the fault that is held back, and in mode Observe the action that would be taken."""
    fact = context.seen_fact
    what = (
        f"fact {fact.id} ({fact.kind})"
        if fact is not None
        else message_of_event(context) or type(context.event).__name__
    )
    if context.policy.mode is Mode.OBSERVE:
        action = context.choice.action if context.choice is not None else None
        return effects.Announce(EventReason.OBSERVED, f"would take {action or 'no action'} for {what}")
    return effects.Announce(EventReason.HELD, f"not acting on {what}: recovery.mode is {context.policy.mode}")


def _set_planned_aside(context: Context, why: str) -> tuple[Effect, ...]:
    """Give up what is done beside the training, and close any other incident; the training is left as it is."""
    phase, incident = context.state.phase, context.incident
    if phase in {JobPhase.EXPANDING, JobPhase.MIGRATING}:
        context.state, closing = give_up_planned(context, why)
        return closing
    context.state, closing = settle_incident(context, why)
    if phase is JobPhase.PAUSED and incident is not None and not incident.ready:
        return (effects.SendOrder(OrderCommand.CONTINUE, incident.incarnation, incident.revision + 1), *closing)
    return closing


def with_held_incident(context: Context) -> JobState:
    """Return the state with a new incident of this event for which no action is started yet."""
    fact, action, state = context.seen_fact, Action.RESTART, context.state
    if fact is not None:
        context.loss, action = context.loss_of_fact(), context.first_action()
    elif context.choice is not None and context.choice.action is not None:
        action = context.choice.action
    incident = new_incident(context, state, action, Purpose.FAULT)
    incident = replace(incident, lost_ranks=context.fact_ranks(), stopped=_ends_the_training(context))
    held_from = _BESIDE.get(state.phase, state.phase)
    return replace(state, incident=incident, incarnation=incident.number, held_from=held_from)


def _with_joined_incident(context: Context) -> JobState:
    """Return the state with the event in the open incident, whose action is given up.

    What it has made is of no use to the next decision, and a higher incarnation keeps the two apart.
    """
    number, incident = next_incarnation(context, context.state), context.open_incident
    found = tuple(sorted({*incident.lost_ranks, *context.fact_ranks(), *unknown_ranks(context)}))
    given_up: dict[str, Any] = {
        "lost_ranks": found,
        "restart_ranks": (),
        "replaced_nodes": (),
        "ready": False,
        "stopped": True,
    }
    action = _larger_action(context, incident) if context.seen_fact is not None else incident.action
    incident = replace(
        replace(incident, **fields_after_join(context, incident)), action=action, incarnation=number, **given_up
    )
    return replace(context.state, incident=incident, incarnation=number, held_from=context.state.phase)


def _larger_action(context: Context, incident: Incident) -> Action:
    return max(incident.action, context.first_action(), key=ACTION_ORDER.__getitem__)


def _ends_the_training(context: Context) -> bool:
    return context.seen_fact is None or context.seen_fact.kind not in HARMLESS_SO_FAR


def add_held_fact(context: Context) -> HandlerResult:
    """Add another fact to the held incident."""
    incident = context.open_incident
    if context.policy.mode is Mode.OBSERVE:
        context.decide_action(EXIT_ONLY if context.state.is_untrained else FAULT)
    said = () if context.policy.mode is Mode.ENFORCE else (_held_in_words(context),)
    context.loss = context.loss_of_fact()
    action = _larger_action(context, incident)
    stopped = incident.stopped or _ends_the_training(context)
    incident = replace(incident, action=action, stopped=stopped, **fields_after_join(context, incident))
    return replace(context.state, incident=incident), said


def note_training(context: Context) -> HandlerResult:
    """Note that the attempt trains, although a fault of its start is held back."""
    state, event = context.state, context.event_of(events.Resumed)
    return replace(state, held_from=JobPhase.RUNNING, step=max(state.step, event.step), resumed_ms=context.now_ms), ()


def withdraw_facts(context: Context) -> HandlerResult:
    """Remove withdrawn facts from the incident, which goes on with the others."""
    incident = context.incident
    if incident is None or not _withdrawn_ids(context) & set(incident.fact_ids):
        return context.state, ()
    left = tuple(one for one in incident.fact_ids if one not in _withdrawn_ids(context))
    return replace(context.state, incident=replace(incident, fact_ids=left)), ()


def close_withdrawn_hold(context: Context) -> HandlerResult:
    """Close a held incident whose facts are all withdrawn, without an action."""
    state, closing = close_incident(
        context.state, IncidentOutcome.RECOVERED, "its faults are gone; no action was taken"
    )
    known = tuple(one for one in state.fact_ids if one not in _withdrawn_ids(context))  # they may come again
    state = replace(clear_deadlines(state, Deadline.RECOVERY), fact_ids=known)
    if state.is_untrained:  # the hold had stopped its clock
        state = _start_again(context, state)
    if state.shrunk is not None:  # the hold had stopped the search for nodes
        state = set_next_look(context, replace(state, shrunk=replace(state.shrunk, capacity_ms=0)), 0)
    return state, closing


def _start_again(context: Context, state: JobState) -> JobState:
    """Return the state of a start that goes on; one that had given its chips back waits for nodes again."""
    start_ms = 1000 * context.policy.startup_deadline_seconds
    if not state.released:
        return set_deadline(state, Deadline.STARTUP, context.now_ms + start_ms)
    state = replace(state, waiting=Waiting(context.now_ms, start_ms, released=True))
    return set_deadline(state, Deadline.RELEASE, context.now_ms + 1000 * RELEASE_SECONDS)


def _withdrawn_ids(context: Context) -> set[str]:
    event = context.event_of(events.FactsWithdrawn)
    return set(event.ids)


def message_of_event(context: Context) -> str:
    """Return the message of the event or its fact; empty for events without one."""
    told: str = context.seen_fact.message if context.seen_fact else getattr(context.event, "message", "")
    return last_lines(told, MESSAGE_LIMIT)


def forget_deadline(context: Context) -> HandlerResult:
    """Clear a deadline that nothing waits for any more."""
    event = context.event_of(events.DeadlineReached)
    return clear_deadlines(context.state, Deadline(event.name)), ()


def checkpoint_seen(context: Context) -> HandlerResult:
    """Note the step of a complete periodic checkpoint."""
    event = context.event_of(events.CheckpointVerified)
    return replace(context.state, step=max(context.state.step, event.step)), ()


def refuse_unsaved_restart(context: Context) -> HandlerResult:
    """Announce why the present step cannot be saved: a restart that must not lose it is not carried out."""
    state = context.state
    if state.phase is JobPhase.FAILED:
        why = "the job has failed, and its ranks are gone"
    elif state.phase in UNTRAINED:
        why = "no step of this start has ended"
    elif refusals := _refusals_to_save(context):
        why = "; ".join(dict.fromkeys(one.message for one in refusals))
    else:
        why = "MindIO cannot save now"
    said = effects.Announce(EventReason.SAVE_REFUSED, f"the step is not saved, the job is not started anew: {why}")
    return state, (said,)


def may_save_training(context: Context) -> bool:
    """Return whether MindIO could save the running training now."""
    state = context.state
    held = state.phase is JobPhase.HELD and (state.is_untrained or state.blind)
    return not held and not _refusals_to_save(context)


def _refusals_to_save(context: Context) -> tuple[Refusal, ...]:
    lost = context.incident.lost_ranks if context.incident and context.incident.purpose is Purpose.FAULT else ()
    evaluator = Evaluator(
        Loss(ranks=lost, counted=False), SAVE_FIRST, context.state, context.view, context.policy, context.now_ms
    )
    return evaluator.refusals_of_action(Action.CHECKPOINT)
