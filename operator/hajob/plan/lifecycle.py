"""Steps that are not the recovery of a fault: start and end of a job, what people ask, what is only noted."""

import math
from dataclasses import replace
from typing import Final

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import ACTION_ORDER, Action, OrderCommand
from hajob.domain.facts import NO_SUCCESSOR
from hajob.domain.incidents import Incident, IncidentOutcome, Purpose
from hajob.domain.text import last_lines
from hajob.plan import effects, events
from hajob.plan.context import Context, HandlerResult
from hajob.plan.effects import Effect
from hajob.plan.elastic import set_next_look, unsettle
from hajob.plan.evaluator import FAULT, ActionVerdict, Evaluator, Loss, Trigger
from hajob.plan.guards import start_due_ms, why_coordinator_stays
from hajob.plan.ignored import Ignored, IgnoreReason
from hajob.plan.incident_state import (
    FACT_LIMIT,
    MESSAGE_LIMIT,
    PLANNED,
    abandon,
    avoid,
    clear_deadlines,
    close,
    joined,
    new_incident,
    release,
    renew,
    set_deadline,
    take_spares,
)
from hajob.plan.policy import (
    ANOTHER_COORDINATOR_SECONDS,
    COORDINATOR_SECONDS,
    HELD_SECONDS,
    RELEASE_SECONDS,
    SUCCESSOR_DOUBLINGS,
    SUCCESSOR_SECONDS,
    UNPLACED_SECONDS,
    UNREACHABLE_SECONDS,
    Refusal,
)
from hajob.plan.recovery import launch, save
from hajob.plan.relevance import joined_by_faults
from hajob.plan.state import MAINTENANCE_BUDGET, OF_COORDINATOR, UNTRAINED, Deadline, JobPhase, JobState, Spend, Waiting

_EVENT_LIMIT: Final = 240
SAVE_FIRST: Final = Trigger("Asked", (Action.CHECKPOINT,), "only a checkpoint was asked for")


def accept(context: Context) -> HandlerResult:
    """Make pods and coordinator: for the first time, or anew after a suspend."""
    return launch(context, context.state, None, [])


def revive(context: Context) -> HandlerResult:
    """Make everything anew for a job that was given up: what was spent and counted before is forgotten."""
    return launch(context, replace(context.state, spent=(), stalls=(), problem="", active_ms=0), None, [])


def remake(context: Context) -> HandlerResult:
    """A pod that the cluster took before its ranks were started is made anew alone."""
    state, nodes = context.state, context.view.layout.nodes_of(context.fact_ranks())
    number = max(state.incarnation, context.event.incarnation) + 1
    ids = (*state.fact_ids, context.fact.id)[-FACT_LIMIT:]
    state = replace(renew(state, context.now_ms, number, nodes=nodes), incarnation=number, fact_ids=ids)
    if context.fact.refused_by_node:
        state = avoid(state, dict.fromkeys(nodes, context.view.nodes_to_avoid))
    state = take_spares(context, state, nodes)
    told = f"only the pods of node ranks {list(nodes)} are replaced: {_told(context)}"
    return state, (effects.Announce(EventReason.POD_MADE_ANEW, told),)


def await_places(context: Context) -> HandlerResult:
    """No quota or no node: the start-up clock stands still."""
    state, event = context.state, context.event_of(events.PlacesMissing)
    if state.waiting is not None:
        return state, ()
    due = state.deadlines.get(Deadline.STARTUP)
    left = 0 if due is None else max(due - context.now_ms, 1)
    state = replace(clear_deadlines(state, Deadline.STARTUP), waiting=Waiting(context.now_ms, left))
    return state, (effects.Announce(event.reason, event.message),)


def places_found(context: Context) -> HandlerResult:
    """Every pod has its node: the start-up clock goes on."""
    state, waiting = context.state, context.state.waiting
    if waiting is None:
        return state, ()
    state = replace(state, waiting=None)
    if not waiting.start_left_ms:
        return state, ()
    return set_deadline(state, Deadline.STARTUP, context.now_ms + waiting.start_left_ms), ()


def start_goes_on(context: Context) -> HandlerResult:
    """Extend the start-up deadline when the start shows progress."""
    at_ms = start_due_ms(context)
    return (context.state if at_ms is None else set_deadline(context.state, Deadline.STARTUP, at_ms)), ()


def give_back(context: Context) -> HandlerResult:
    """Nodes for all do not come: others may have the chips that this start holds."""
    state, waiting = context.state, context.state.waiting
    assert waiting is not None
    state = release(
        replace(state, waiting=replace(waiting, released=True)), tuple(range(context.view.layout.num_nodes))
    )
    state = set_deadline(state, Deadline.RELEASE, context.now_ms + 1000 * RELEASE_SECONDS)
    return state, (
        effects.Announce(
            EventReason.CHIPS_RELEASED,
            "the job waits for nodes and released its chips (waitingPodPolicy: Release)",
        ),
    )


def take_up(context: Context) -> HandlerResult:
    """There are nodes for all: make the rank pods anew."""
    state, waiting = context.state, context.state.waiting
    assert waiting is not None
    number = state.incarnation + 1
    state = renew(state, context.now_ms, number, nodes=tuple(range(context.view.layout.num_nodes)))
    state = replace(state, incarnation=number, waiting=replace(waiting, released=False))
    return clear_deadlines(state, Deadline.RELEASE), (
        effects.Announce(EventReason.CHIPS_WANTED, "nodes for all rank pods are free"),
    )


def relaunch(context: Context) -> HandlerResult:
    """Make everything anew because somebody asked for it: no budget is spent."""
    state, incident, out = planned(context, Purpose.REQUEST, Action.RESTART)
    return launch(context, state, incident, out)


def restart_unprotected(context: Context) -> HandlerResult:
    """Restart because the MindIO controller is gone."""
    state, incident, out = planned(context, Purpose.COORDINATOR, Action.RESTART)
    spends = (*state.spent, Spend(MAINTENANCE_BUDGET, context.now_ms))
    restarts = state.restarts_infrastructure + 1
    return launch(context, replace(state, spent=spends, restarts_infrastructure=restarts), incident, out)


def planned(context: Context, purpose: Purpose, action: Action) -> tuple[JobState, Incident, list[Effect]]:
    """Close what is open and open an incident of this purpose."""
    state, closing = settle(context, f"{purpose} took over")
    incident = new_incident(context, state, action, purpose, revision=1)
    return replace(state, incarnation=incident.number), incident, [*closing]


def settle(context: Context, why: str) -> tuple[JobState, tuple[Effect, ...]]:
    """Close whatever is open because something else begins."""
    state, incident = context.state, context.incident
    if incident is None or state.phase is JobPhase.CONFIRMING:
        return close(state, IncidentOutcome.RECOVERED, why)
    if incident.purpose in PLANNED:
        return abandon(state, incident, why)
    return close(state, IncidentOutcome.FAILED, why)


def save_for(purpose: Purpose, context: Context) -> HandlerResult:
    """Save what can be saved, because somebody asked for a suspend or a restart."""
    incident = context.incident
    if incident is not None and joined_by_faults(context.state) is not None:
        gone = (*incident.escalated_from, incident.action)
        incident = replace(
            incident,
            purpose=purpose,
            action=Action.CHECKPOINT,
            escalated_from=gone,
            revision=incident.revision + 1,
        )
        return save(context, context.state, incident, [])
    state, incident, out = planned(context, purpose, Action.CHECKPOINT)
    return save(context, state, incident, out)


def refuse_coordinator_move(context: Context) -> HandlerResult:
    """Say why the coordinator stays where it is, though its node is to be emptied."""
    why = why_coordinator_stays(context)
    return context.state, (effects.Announce(EventReason.MOVE_REFUSED, f"the coordinator cannot be moved now: {why}"),)


def repurpose(purpose: Purpose, context: Context) -> HandlerResult:
    """While a checkpoint is being saved: what follows it changes."""
    return replace(context.state, incident=replace(context.open_incident, purpose=purpose)), ()


def suspend(context: Context) -> HandlerResult:
    """Delete every pod and keep what is needed to go on later."""
    saved = _how_saved(context)
    state, closing = settle(context, "suspended")
    number = state.incarnation + 1
    revision = context.incident.revision if context.incident else 0
    stop = effects.SendOrder(OrderCommand.STOP, state.incarnation, revision + 1)
    state = replace(state, incarnation=number, shrunk=None, renewed={}, pods={}, released=(), base=number)
    state = replace(state, problem=saved)
    stale = (Deadline.RECOVERY, Deadline.STARTUP, Deadline.EXPAND, *OF_COORDINATOR)
    return clear_deadlines(state, *stale), (stop, *closing, effects.Announce(EventReason.SUSPENDED, saved))


def _how_saved(context: Context) -> str:
    """Whether the step where the training stands was saved before it is suspended, and why not."""
    event = context.event
    if context.state.phase is not JobPhase.SAVING:
        why = "; ".join(refusal.message for refusal in _refusals_to_save(context)) or "no save was requested"
    elif isinstance(event, events.ResultReported):
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


def complete(context: Context) -> HandlerResult:
    """Every rank ended with 0."""
    state = clear_deadlines(context.state, *Deadline)
    state, closing = close(state, IncidentOutcome.RECOVERED, "the training ended")
    return replace(state, shrunk=None), (*closing, effects.CompleteJob())


def delete(context: Context) -> HandlerResult:
    """Stop everything; owner references and the finalizer do the rest."""
    state = clear_deadlines(context.state, *Deadline)
    return close(state, IncidentOutcome.FAILED, "the job was deleted")


def fail(reason: str, sentence: str, context: Context) -> HandlerResult:
    """Give up; the last action evaluated, if any, says why."""
    verdicts = context.choice.considered if context.choice else ()
    why, message = _why_failed(reason, sentence, verdicts)
    if why == "NoProgress" and context.state.phase in UNTRAINED:
        why = "StartupDeadlineExceeded"
    incident = context.incident
    cause = (incident.cause.message if incident else _told(context)) or context.state.problem
    state, closing = close(clear_deadlines(context.state, *Deadline), IncidentOutcome.FAILED, message)
    full = f"{message}: {cause}" if cause else message
    return state, (*closing, effects.FailJob(why, full))


def fail_unworkable(context: Context) -> HandlerResult:
    """Give up at once, with the reason that the event names."""
    event = context.event_of(events.Unworkable)
    state, closing = close(clear_deadlines(context.state, *Deadline), IncidentOutcome.FAILED, event.message)
    return state, (*closing, effects.FailJob(event.reason, event.message))


_FAILURES: Final = {
    "ProgramBudgetLeft": "ProgramFailures",
    "Progress": "NoProgress",
    "BudgetLeft": "RestartBudgetSpent",
    "ActionAllowed": "RestartNotAllowed",
}


def _why_failed(reason: str, sentence: str, verdicts: tuple[ActionVerdict, ...]) -> tuple[str, str]:
    """Reason and message; the refusals of the last action count."""
    if not verdicts:
        return reason, sentence
    names = {refusal.name: refusal.message for refusal in verdicts[-1].refusals}
    for name, why in _FAILURES.items():
        if name in names:
            return why, names[name]
    return reason, verdicts[-1].message


# ---------------------------------------------------------------------- notes that change little


def ignore(reason: IgnoreReason, context: Context) -> HandlerResult:
    """Change nothing, and say why so that it can be counted."""
    message = f"in {context.state.phase}, {str(context.event)[:_EVENT_LIMIT]}"
    context.ignored = context.ignored or Ignored(reason, message)
    return context.state, ()


def note(context: Context) -> HandlerResult:
    """Remember what explains a slow start."""
    fact = context.fact
    ids = (*context.state.fact_ids, fact.id)[-FACT_LIMIT:]
    text = f"{fact.code or fact.kind}: {fact.message}"[-MESSAGE_LIMIT:]
    return replace(context.state, problem=text, fact_ids=ids), (effects.Announce(EventReason(fact.kind.value), text),)


def observed(context: Context) -> HandlerResult:
    """Say what would be done, and do nothing."""
    fact = context.fact
    action = context.decide(FAULT).action
    state = replace(context.state, fact_ids=(*context.state.fact_ids, fact.id)[-FACT_LIMIT:])
    return state, (
        effects.Announce(EventReason.OBSERVED, f"would take {action or 'no action'} for fact {fact.id} ({fact.kind})"),
    )


def hold(context: Context) -> HandlerResult:
    """Open an incident and start nothing."""
    said = effects.Announce(EventReason.HELD, f"not acting on fact {context.fact.id}: recovery.mode is Hold")
    return _with_held_incident(context), (said,)


def _with_held_incident(context: Context) -> JobState:
    context.loss = context.loss_of_fact()
    incident = replace(
        new_incident(context, context.state, context.first_action(), Purpose.FAULT), lost_ranks=context.fact_ranks()
    )
    return replace(context.state, incident=incident, incarnation=incident.number)


def hold_until_protected(context: Context) -> HandlerResult:
    """A fault while no controller serves and one will: nothing is decided before."""
    state = set_deadline(_with_held_incident(context), Deadline.RECOVERY, context.now_ms + 1000 * HELD_SECONDS)
    if Deadline.UNREACHABLE in state.deadlines:  # the training stands: nothing is gained by speaking of it first
        state = clear_deadlines(state, Deadline.UNREACHABLE)
        state = set_deadline(state, Deadline.COORDINATOR, context.now_ms + 1000 * _patience_seconds(state))
    return state, (effects.Announce(EventReason.HELD, f"fact {context.fact.id} waits for a MindIO controller"),)


def await_protection(context: Context) -> HandlerResult:
    """What is held may be decided, but no controller serves: an operator that has just begun has heard nobody yet."""
    if Deadline.RECOVERY in context.state.deadlines:
        return context.state, ()
    return set_deadline(context.state, Deadline.RECOVERY, context.now_ms + 1000 * HELD_SECONDS), ()


def hold_more(context: Context) -> HandlerResult:
    """Another fact joins what is held."""
    incident = context.open_incident
    context.loss = context.loss_of_fact()
    action = max(incident.action, context.first_action(), key=ACTION_ORDER.__getitem__)
    incident = replace(incident, action=action, **joined(context, incident))
    return replace(context.state, incident=incident), ()


def withdraw(context: Context) -> HandlerResult:
    """Some of the facts are over: the incident goes on with the others."""
    incident = context.incident
    if incident is None or not _withdrawn(context) & set(incident.fact_ids):
        return context.state, ()
    left = tuple(one for one in incident.fact_ids if one not in _withdrawn(context))
    return replace(context.state, incident=replace(incident, fact_ids=left)), ()


def let_go(context: Context) -> HandlerResult:
    """All facts of what was held are over: nothing is to be done."""
    state, closing = close(context.state, IncidentOutcome.RECOVERED, "its faults are gone; no action was taken")
    known = tuple(one for one in state.fact_ids if one not in _withdrawn(context))  # it may come again
    state = replace(clear_deadlines(state, Deadline.RECOVERY), fact_ids=known)
    if state.shrunk is not None:  # nobody has looked for nodes meanwhile
        state = set_next_look(context, replace(state, shrunk=replace(state.shrunk, capacity_ms=0)), 0)
    return state, closing


def _withdrawn(context: Context) -> set[str]:
    event = context.event_of(events.FactsWithdrawn)
    return set(event.ids)


def lose_coordinator(context: Context) -> HandlerResult:
    """Go on unprotected, with a new coordinator that takes over the agents."""
    why, planned_change = "the coordinator was lost", context.state.phase in (JobPhase.EXPANDING, JobPhase.MIGRATING)
    state, closing = unsettle(context, why) if planned_change else settle(context, why)
    in_vain = state.successors + 1 if state.phase is JobPhase.UNPROTECTED else 0
    state = replace(_with_another_coordinator(state), blind=_is_blind(context), successors=in_vain)
    announce = effects.Announce(EventReason.COORDINATOR_LOST, _told(context) or "the MindIO controller is lost")
    return clear_deadlines(state, Deadline.RECOVERY, Deadline.EXPAND), (announce, *closing)


def _with_another_coordinator(state: JobState) -> JobState:
    """Its pod is made, and the store of the one before goes with that one."""
    number = state.incarnation + 1
    state = replace(state, incarnation=number, coordinator=number, store_lost=True)
    return clear_deadlines(state, *OF_COORDINATOR)


def hand_over(context: Context) -> HandlerResult:
    """Another coordinator elsewhere takes over while the training goes on; the one that serves goes last."""
    said = effects.Announce(
        EventReason.COORDINATOR_MOVING, f"{_told(context)}: another coordinator takes over, and the training goes on"
    )
    return replace(_with_another_coordinator(context.state), relieved=context.state.coordinator), (said,)


def _is_blind(context: Context) -> bool:
    return context.seen is not None and context.seen.code == NO_SUCCESSOR


def stay_unprotected(context: Context) -> HandlerResult:
    """Another controller could not be taught what the lost one knew."""
    state = replace(context.state, blind=context.state.blind or _is_blind(context))
    return state, () if state == context.state else (effects.Announce(EventReason.CONTROLLER_LOST, _told(context)),)


def protected_again(context: Context) -> HandlerResult:
    """Another controller knows every rank: nothing was lost but a moment."""
    state, _ = coordinator_back(context)
    return replace(state, blind=False), ()


def taken_over(context: Context) -> HandlerResult:
    """Count it."""
    event = context.event_of(events.ControllerTakenOver)
    after = f"{event.duration_ms} ms after the loss was noticed"
    words = f"another MindIO controller protects the job {after}; the training went on"
    state = context.state
    state = replace(
        state,
        takeovers=state.takeovers + 1,
        takeover_ms=event.duration_ms,
        store_lost=state.store_lost and not event.store_kept,
    )
    return state, (effects.Announce(EventReason.CONTROLLER_TAKEN_OVER, words),)


def _told(context: Context) -> str:
    """What the event, or its fact, says for people; not every kind of event says anything."""
    told: str = context.seen.message if context.seen else getattr(context.event, "message", "")
    return last_lines(told, MESSAGE_LIMIT)


def await_coordinator(context: Context) -> HandlerResult:
    """It has not been reached for a moment, but may come back: say so and wait."""
    state = clear_deadlines(context.state, Deadline.UNREACHABLE)
    state = set_deadline(state, Deadline.COORDINATOR, context.now_ms + 1000 * _patience_seconds(state))
    return state, (effects.Announce(EventReason.COORDINATOR_UNREACHABLE, "the operator cannot reach the coordinator"),)


def _patience_seconds(state: JobState) -> int:
    """How long the coordinator is waited for: a successor has to start first, and the next one may need longer."""
    succeeds = state.phase in {JobPhase.UNPROTECTED, JobPhase.HELD}
    return SUCCESSOR_SECONDS * 2 ** min(state.successors, SUCCESSOR_DOUBLINGS) if succeeds else COORDINATOR_SECONDS


def await_place(context: Context) -> HandlerResult:
    """The coordinator's pod finds no node: give the cluster a moment, then let it share one."""
    if Deadline.UNPLACED in context.state.deadlines or not context.state.apart:
        return context.state, ()
    return set_deadline(context.state, Deadline.UNPLACED, context.now_ms + 1000 * UNPLACED_SECONDS), ()


def placed(context: Context) -> HandlerResult:
    """It has a node."""
    return clear_deadlines(context.state, Deadline.UNPLACED), ()


def share_node(context: Context) -> HandlerResult:
    """Where no node is free of ranks, a coordinator beside a rank is better than none."""
    state = replace(clear_deadlines(context.state, Deadline.UNPLACED), apart=False)
    return state, (
        effects.Announce(
            EventReason.COORDINATOR_SHARES_NODE, "no node is free of ranks; the coordinator may share one with them"
        ),
    )


def miss_coordinator(context: Context) -> HandlerResult:
    """It cannot be reached now: give it a moment."""
    if {Deadline.UNREACHABLE, Deadline.COORDINATOR} & context.state.deadlines.keys():
        return context.state, ()
    return set_deadline(context.state, Deadline.UNREACHABLE, context.now_ms + 1000 * UNREACHABLE_SECONDS), ()


def hear_coordinator(context: Context) -> HandlerResult:
    """It is heard again before anybody was told."""
    return clear_deadlines(context.state, Deadline.UNREACHABLE), ()


def another_goes_on(context: Context) -> HandlerResult:
    """Its successor goes on with what is under way, from where the gates say that the ranks are."""
    why = f"{_told(context) or 'the controller is gone'}; another coordinator continues what is under way"
    return _with_another_coordinator(context.state), (effects.Announce(EventReason.COORDINATOR_LOST, why),)


def await_another(context: Context) -> HandlerResult:
    """The successor of a lost coordinator has ended, too: make another one, but not in a hurry."""
    at_ms = context.now_ms + 1000 * ANOTHER_COORDINATOR_SECONDS
    if context.state.deadlines.get(Deadline.COORDINATOR, math.inf) <= at_ms:
        return context.state, ()
    state = set_deadline(clear_deadlines(context.state, Deadline.UNREACHABLE), Deadline.COORDINATOR, at_ms)
    return state, (effects.Announce(EventReason.COORDINATOR_LOST, _told(context) or "the coordinator pod has ended"),)


def coordinator_back(context: Context) -> HandlerResult:
    """It is heard: nothing was lost."""
    state = clear_deadlines(context.state, Deadline.UNREACHABLE, Deadline.COORDINATOR)
    return replace(state, successors=0), ()


def forget_deadline(context: Context) -> HandlerResult:
    """A deadline that nothing waits for any more."""
    event = context.event_of(events.DeadlineReached)
    return clear_deadlines(context.state, Deadline(event.name)), ()


def checkpoint_seen(context: Context) -> HandlerResult:
    """A periodic checkpoint is complete."""
    event = context.event_of(events.CheckpointVerified)
    return replace(context.state, step=max(context.state.step, event.step)), ()


def may_save(context: Context) -> bool:
    """Whether MindIO could save the running training now."""
    return not _refusals_to_save(context)


def _refusals_to_save(context: Context) -> tuple[Refusal, ...]:
    lost = context.incident.lost_ranks if context.incident and context.incident.purpose is Purpose.FAULT else ()
    evaluator = Evaluator(
        Loss(ranks=lost, counted=False), SAVE_FIRST, context.state, context.view, context.policy, context.now_ms
    )
    return evaluator.refusals(Action.CHECKPOINT)
