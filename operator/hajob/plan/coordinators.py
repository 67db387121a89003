"""Handlers for a job's coordinator: unreachable, lost, succeeded, moved, or without a node of its own."""

import math
from collections.abc import Callable
from dataclasses import replace

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import Action
from hajob.domain.facts import NO_SUCCESSOR
from hajob.domain.incidents import Purpose
from hajob.plan import effects, events
from hajob.plan.context import Context, HandlerResult
from hajob.plan.elastic import give_up_planned
from hajob.plan.guards import why_coordinator_stays
from hajob.plan.incident_state import book_use, clear_deadlines, next_incarnation, set_deadline
from hajob.plan.lifecycle import message_of_event, open_planned_incident, settle_incident, with_held_incident
from hajob.plan.policy import (
    ANOTHER_COORDINATOR_SECONDS,
    CONTINUE_SECONDS,
    COORDINATOR_SECONDS,
    HELD_SECONDS,
    SUCCESSOR_DOUBLINGS,
    SUCCESSOR_SECONDS,
    UNPLACED_SECONDS,
    UNREACHABLE_SECONDS,
)
from hajob.plan.recovery import launch_attempt
from hajob.plan.state import MAINTENANCE_BUDGET, OF_COORDINATOR, Deadline, JobPhase, JobState


def miss_coordinator(context: Context) -> HandlerResult:
    """Wait `UNREACHABLE_SECONDS` before reporting an unreachable coordinator."""
    if {Deadline.UNREACHABLE, Deadline.COORDINATOR} & context.state.deadlines.keys():
        return context.state, ()
    return set_deadline(context.state, Deadline.UNREACHABLE, context.now_ms + 1000 * UNREACHABLE_SECONDS), ()


def hear_coordinator(context: Context) -> HandlerResult:
    """Stop the wait: the coordinator answers again before its silence was reported."""
    return clear_deadlines(context.state, Deadline.UNREACHABLE), ()


def coordinator_back(context: Context) -> HandlerResult:
    """Note that the coordinator answers; one that relieves another has an empty store, unless it reports otherwise."""
    state = clear_deadlines(context.state, Deadline.UNREACHABLE, Deadline.COORDINATOR)
    left = bool(state.relieved) and not context.view.relieved_heard
    return replace(state, successors=0, store_lost=state.store_lost or left), ()


def await_coordinator(context: Context) -> HandlerResult:
    """Announce the unreachable coordinator and keep waiting: it may come back."""
    state = clear_deadlines(context.state, Deadline.UNREACHABLE)
    state = set_deadline(state, Deadline.COORDINATOR, context.now_ms + 1000 * _patience_seconds(state))
    return state, (effects.Announce(EventReason.COORDINATOR_UNREACHABLE, "the operator cannot reach the coordinator"),)


def _patience_seconds(state: JobState) -> int:
    """Return how long to wait for the coordinator: a successor has to start first, and each further one gets longer."""
    succeeds = state.phase in {JobPhase.UNPROTECTED, JobPhase.HELD, JobPhase.ENDING} or _is_successor(state)
    return SUCCESSOR_SECONDS * 2 ** min(state.successors, SUCCESSOR_DOUBLINGS) if succeeds else COORDINATOR_SECONDS


def lose_coordinator(context: Context) -> HandlerResult:
    """Train on unprotected, and make a new coordinator that takes over the agents."""
    state, closing = _close_beside_training(context, "the coordinator was lost")
    in_vain = state.successors + 1 if state.phase is JobPhase.UNPROTECTED else 0
    state = replace(_with_another_coordinator(context, state), blind=_is_blind(context), successors=in_vain)
    announce = effects.Announce(
        EventReason.COORDINATOR_LOST, message_of_event(context) or "the MindIO controller is lost"
    )
    return clear_deadlines(state, Deadline.RECOVERY, Deadline.EXPAND), (announce, *closing)


def _with_another_coordinator(context: Context, state: JobState) -> JobState:
    """Return the state with a new coordinator pod; the store is lost with the previous pod, unless it is elsewhere."""
    number, lost = next_incarnation(context, state), not context.policy.taskd_starts_ranks
    state = replace(state, incarnation=number, coordinator=number, store_lost=lost)
    return clear_deadlines(state, *OF_COORDINATOR)


def hear_of_the_end(context: Context) -> HandlerResult:
    """Make another coordinator that tells who ends: nothing is left to protect."""
    state = _with_another_coordinator(context, replace(context.state, successors=context.state.successors + 1))
    said = effects.Announce(EventReason.COORDINATOR_LOST, "another coordinator reports how the ranks end")
    return state, (said,)


def _is_blind(context: Context) -> bool:
    return context.seen_fact is not None and context.seen_fact.code == NO_SUCCESSOR


def another_goes_on(context: Context) -> HandlerResult:
    """Make a successor that continues the current action from the gates at which the ranks wait.

    The first successor extends the deadline to `HELD_SECONDS`; later ones share that time, so that the wait ends.
    """
    why = f"{message_of_event(context) or 'the controller is gone'}; another coordinator continues what is under way"
    state = _with_another_coordinator(context, context.state)
    if state.phase is not JobPhase.HELD and not _is_successor(context.state) and _own_time_limit(context) is not None:
        at_ms = max(state.deadlines.get(Deadline.RECOVERY, 0), context.now_ms + 1000 * HELD_SECONDS)
        state = set_deadline(state, Deadline.RECOVERY, at_ms)
    return state, (effects.Announce(EventReason.COORDINATOR_LOST, why),)


def limit_to_own_deadline(context: Context) -> HandlerResult:
    """Limit the current action to its own deadline from now on: the coordinator serves."""
    state, _ = coordinator_back(context)
    seconds, due_ms = _own_time_limit(context), state.deadlines.get(Deadline.RECOVERY)
    if seconds is not None and due_ms is not None:
        state = set_deadline(state, Deadline.RECOVERY, min(due_ms, context.now_ms + 1000 * seconds))
    return state, ()


def extend_deadline(context: Context) -> HandlerResult:
    """Extend the expired deadline of the current action: the coordinator may return or get a successor."""
    return set_deadline(context.state, Deadline.RECOVERY, context.now_ms + 1000 * UNREACHABLE_SECONDS), ()


def _own_time_limit(context: Context) -> int | None:
    """Return the time limit of the current action; None for a pause, whose request sets its length."""
    incident, policy = context.open_incident, context.policy
    if incident.purpose is Purpose.PAUSE:
        return CONTINUE_SECONDS if incident.ready else None
    if incident.action is Action.REPLACE and not incident.ready:
        return policy.replacement_timeout_seconds
    return policy.limits[incident.action].deadline_seconds


def _is_successor(state: JobState) -> bool:
    """Whether the coordinator succeeds one that was lost while this incident was open."""
    return state.incident is not None and state.coordinator > state.incident.number


def await_another(context: Context) -> HandlerResult:
    """Make another coordinator after a delay: the successor of a lost one has ended, too."""
    at_ms = context.now_ms + 1000 * ANOTHER_COORDINATOR_SECONDS
    if context.state.deadlines.get(Deadline.COORDINATOR, math.inf) <= at_ms:
        return context.state, ()
    state = set_deadline(clear_deadlines(context.state, Deadline.UNREACHABLE), Deadline.COORDINATOR, at_ms)
    return state, (
        effects.Announce(EventReason.COORDINATOR_LOST, message_of_event(context) or "the coordinator pod has ended"),
    )


def stay_unprotected(context: Context) -> HandlerResult:
    """Stay unprotected: a new controller could not take over the lost one's knowledge of the ranks."""
    state = replace(context.state, blind=context.state.blind or _is_blind(context))
    return state, () if state == context.state else (
        effects.Announce(EventReason.CONTROLLER_LOST, message_of_event(context)),
    )


def protected_again(context: Context) -> HandlerResult:
    """Note that a new controller knows every rank and protects the job again."""
    state, _ = coordinator_back(context)
    return replace(state, blind=False), ()


def count_takeover(context: Context) -> HandlerResult:
    """Count a controller takeover and announce how long it took."""
    event = context.event_of(events.ControllerTakenOver)
    after = f"{event.duration_ms} ms after the loss was noticed"
    words = f"another MindIO controller protects the job {after}; the training went on"
    state = context.state
    state = replace(
        state,
        takeovers=state.takeovers + 1,
        takeover_ms=event.duration_ms,
        relieved=state.relieved if context.view.relieved_heard else 0,
        store_lost=state.store_lost and not event.store_kept,
    )
    return state, (effects.Announce(EventReason.CONTROLLER_TAKEN_OVER, words),)


def restart_unprotected(context: Context) -> HandlerResult:
    """Restart because the MindIO controller is gone."""
    state, incident, out = open_planned_incident(context, Purpose.COORDINATOR, Action.RESTART)
    state = replace(state, restarts_infrastructure=state.restarts_infrastructure + 1)
    return launch_attempt(context, book_use(context, state, MAINTENANCE_BUDGET), incident, out)


def hold_until_protected(context: Context) -> HandlerResult:
    """Hold a fault undecided until the next controller serves."""
    closed, closing = _close_beside_training(context, "a fault came that waits for a controller")
    state = set_deadline(
        with_held_incident(context.with_state(closed)), Deadline.RECOVERY, context.now_ms + 1000 * HELD_SECONDS
    )
    if Deadline.UNREACHABLE in state.deadlines:  # the training stands: delaying the report gains nothing
        state = clear_deadlines(state, Deadline.UNREACHABLE)
        state = set_deadline(state, Deadline.COORDINATOR, context.now_ms + 1000 * _patience_seconds(state))
    said = effects.Announce(EventReason.HELD, f"fact {context.required_fact.id} waits for a MindIO controller")
    return state, (*closing, said)


def _close_beside_training(context: Context, why: str) -> HandlerResult:
    """Give up an action beside the training and close any other incident; the training continues unchanged."""
    beside = context.state.phase in (JobPhase.EXPANDING, JobPhase.MIGRATING)
    return give_up_planned(context, why) if beside else settle_incident(context, why)


def await_protection(context: Context) -> HandlerResult:
    """Set a deadline for a held fault while no controller serves: a new leader has not heard the coordinator yet."""
    if Deadline.RECOVERY in context.state.deadlines:
        return context.state, ()
    return set_deadline(context.state, Deadline.RECOVERY, context.now_ms + 1000 * HELD_SECONDS), ()


def hand_over_to_second(context: Context) -> HandlerResult:
    """Make a second coordinator elsewhere that takes over during training; the serving one is deleted last."""
    why = f"{message_of_event(context)}: another coordinator takes over, and the training goes on"
    said = effects.Announce(EventReason.COORDINATOR_MOVING, why)
    before = context.state
    state = replace(
        _with_another_coordinator(context, before), relieved=before.coordinator, store_lost=before.store_lost
    )
    return state, (said,)


def keep_old_coordinator(begin: Callable[[Context], HandlerResult], context: Context) -> HandlerResult:
    """Keep the coordinator that was to be relieved and let it act; the move is requested again later."""
    state = replace(context.state, coordinator=context.state.relieved, relieved=0)
    return begin(context.with_state(clear_deadlines(state, *OF_COORDINATOR)))


def refuse_coordinator_move(context: Context) -> HandlerResult:
    """Announce why the coordinator stays on a node that is to be emptied."""
    why = why_coordinator_stays(context)
    return context.state, (effects.Announce(EventReason.MOVE_REFUSED, f"the coordinator cannot be moved now: {why}"),)


def await_free_node(context: Context) -> HandlerResult:
    """Wait a moment for a node free of ranks before the coordinator may share one."""
    if Deadline.UNPLACED in context.state.deadlines or not context.state.apart:
        return context.state, ()
    return set_deadline(context.state, Deadline.UNPLACED, context.now_ms + 1000 * UNPLACED_SECONDS), ()


def stop_place_wait(context: Context) -> HandlerResult:
    """Stop the wait: the coordinator pod has a node."""
    return clear_deadlines(context.state, Deadline.UNPLACED), ()


def share_node_with_rank(context: Context) -> HandlerResult:
    """Let the coordinator share a node with a rank: that is better than no coordinator."""
    state = replace(clear_deadlines(context.state, Deadline.UNPLACED), apart=False)
    return state, (
        effects.Announce(
            EventReason.COORDINATOR_SHARES_NODE, "no node is free of ranks; the coordinator may share one with them"
        ),
    )
