"""Handlers for training with fewer data-parallel ranks, growing back, and planned moves off working nodes."""

from dataclasses import replace
from typing import Any, Final

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import Action, OrderCommand
from hajob.domain.facts import TAKES_THE_NODE
from hajob.domain.incidents import IncidentOutcome, Purpose, RestoredFrom
from hajob.domain.text import counted_noun
from hajob.plan import effects, events
from hajob.plan.context import Context, HandlerResult
from hajob.plan.evaluator import count_budget_uses
from hajob.plan.guards import why_no_move
from hajob.plan.incident_state import (
    FACT_LIMIT,
    abandon_planned,
    avoid_nodes,
    book_use,
    clear_deadlines,
    close_incident,
    new_incident,
    place_on_spares,
    release_nodes,
    renew_incarnations,
    set_deadline,
)
from hajob.plan.policy import LOOK_AGAIN_SECONDS, Mode
from hajob.plan.recovery import EXPAND_PARAMETERS, SHRINK_PARAMETERS, build_order, names_to_avoid, step_after_outage
from hajob.plan.state import Deadline, JobPhase, JobState

LONGEST_DELAY_SECONDS: Final = 1800
"""The delay before growing back is not doubled beyond this."""

# ---------------------------------------------------------------------- shrunk life


def adopt_isolated(context: Context) -> HandlerResult:
    """Take over the list of ranks that MindIO drops (code 201) as it is."""
    event, state, layout = context.event_of(events.ResultReported), context.state, context.view.layout
    ranks = tuple(sorted(rank for rank in set(event.ranks) if 0 <= rank < layout.world_size))
    if state.shrunk is None or not ranks or ranks == state.shrunk.ranks:
        return state, ()
    dropped = tuple(sorted({layout.data_rank(rank) for rank in ranks}))
    whole = (node for node in layout.nodes_of_ranks(ranks) if set(ranks).issuperset(layout.ranks_of_node(node)))
    nodes = tuple(sorted({*whole, *state.shrunk.lost_nodes}))  # a pod with ranks that train stays
    shrunk = replace(state.shrunk, dropped=dropped, ranks=ranks, nodes=nodes)
    text = f"MindIO drops {counted_noun(len(ranks), 'rank')}, Hajob expected {len(state.shrunk.ranks)}"
    return replace(state, shrunk=shrunk), (effects.Announce(EventReason.DROP_SET_DIFFERS, text),)


def go_on_shrunk(context: Context) -> HandlerResult:
    """Continue the training with the remaining ranks; release the dropped pods as the policy says."""
    state, gone = context.state, context.state.shrunk
    assert gone is not None
    state = replace(state, step=step_after_outage(context), resumed_ms=context.now_ms)
    nodes = gone.absent_nodes(released=context.policy.release_shrunk_pods)
    state, closing = close_incident(clear_deadlines(state, Deadline.RECOVERY), IncidentOutcome.RECOVERED, "shrunk")
    enough = context.view.free_nodes is not None and context.view.free_nodes >= len(nodes)
    return _look_for_nodes_again(context, release_nodes(state, nodes), context.now_ms if enough else 0), closing


def _look_for_nodes_again(context: Context, state: JobState, capacity_ms: int) -> JobState:
    """Note since when there is capacity, and set the next look for nodes."""
    assert state.shrunk is not None
    state = replace(state, shrunk=replace(state.shrunk, capacity_ms=capacity_ms))
    return set_next_look(context, state, capacity_ms)


def set_next_look(context: Context, state: JobState, capacity_ms: int) -> JobState:
    """Set the next look for nodes; `capacity_ms`: since when there are enough, 0 while there are not."""
    delay = delay_seconds(context)
    wait = delay if capacity_ms else max(delay, LOOK_AGAIN_SECONDS)
    return set_deadline(state, Deadline.EXPAND, context.now_ms + 1000 * wait)


def delay_seconds(context: Context) -> int:
    """Return how long capacity must last: doubled for each use of the `Expand` budget in its window."""
    limits, delay = context.policy.limits[Action.EXPAND], context.policy.expand_delay_seconds
    times = count_budget_uses(context.state, Action.EXPAND.value, limits.window_seconds, context.now_ms)
    return max(delay, min(max(delay, LOOK_AGAIN_SECONDS) << times, LONGEST_DELAY_SECONDS)) if times else delay


def await_expand(context: Context) -> HandlerResult:
    """Grow back once capacity has lasted for the delay, so that a flapping node costs nothing."""
    gone = context.state.shrunk
    if gone is None or gone.capacity_ms:
        return context.state, ()
    return _look_for_nodes_again(context, context.state, context.now_ms), ()


def await_capacity(context: Context) -> HandlerResult:
    """Look for nodes again after the delay: there is no capacity, or growing back has failed too often."""
    return _look_for_nodes_again(context, context.state, 0), ()


def release_kept_pod(context: Context) -> HandlerResult:
    """Release a lost pod that was kept for growing back, which then needs one more node.

    Where `recovery.mode` lets Hajob delete no pod, it is only noted, and goes when the job grows.
    """
    nodes, ids = _nodes_lost_by_event(context), (*context.state.fact_ids, context.required_fact.id)[-FACT_LIMIT:]
    state = _look_for_nodes_again(context, _mark_dropped_lost(context.state, nodes), 0)
    if context.policy.mode is Mode.ENFORCE:
        state = release_nodes(state, nodes)
    said = effects.Announce(
        EventReason.KEPT_POD_LOST,
        f"lost pods kept to grow back, node ranks {list(nodes)}: {context.required_fact.message}",
    )
    return replace(state, fact_ids=ids), (said,)


def _nodes_lost_by_event(context: Context) -> tuple[int, ...]:
    """Return the node ranks whose pods the event takes."""
    takes = context.seen_fact is not None and context.seen_fact.kind in TAKES_THE_NODE
    return context.view.layout.nodes_of_ranks(context.fact_ranks()) if takes else ()


def _mark_dropped_lost(state: JobState, nodes: tuple[int, ...]) -> JobState:
    """Mark the dropped pods of these node ranks as lost for growing back."""
    assert state.shrunk is not None
    lost = tuple(sorted({*state.shrunk.lost_nodes, *set(nodes).intersection(state.shrunk.nodes)}))
    return replace(state, shrunk=replace(state.shrunk, lost_nodes=lost))


def begin_expand(context: Context) -> HandlerResult:
    """Recreate the dropped pods; the other ranks train on until all are back."""
    state = context.state
    gone = state.shrunk
    assert gone is not None
    absent = gone.absent_nodes(released=context.policy.release_shrunk_pods)
    released = set(state.released).intersection(gone.nodes)  # possibly under an earlier policy
    nodes = tuple(sorted({*absent, *released}))
    in_new_pods = {rank for node in nodes for rank in context.view.layout.ranks_of_node(node)}
    restart = tuple(rank for rank in gone.ranks if rank not in in_new_pods)
    extent: dict[str, Any] = {"lost_ranks": gone.ranks, "restart_ranks": restart, "replaced_nodes": nodes}
    extent["restored_from"] = RestoredFrom.OPTIMIZER_COPY  # partners give the returned ranks their state
    incident = new_incident(context, state, Action.EXPAND, Purpose.EXPAND, revision=1, **extent)
    state = book_use(context, renew_incarnations(state, context.now_ms, incident.number, restart, nodes), Action.EXPAND)
    state = replace(state, incident=incident, incarnation=incident.number)
    # the training continues meanwhile: allow the start at least the time of a replacement
    wait = max(context.policy.replacement_timeout_seconds, context.policy.limits[Action.EXPAND].deadline_seconds)
    state = clear_deadlines(state, Deadline.EXPAND)
    state = set_deadline(state, Deadline.RECOVERY, context.now_ms + 1000 * wait)
    send = build_order(incident, OrderCommand.EXPAND, wait, EXPAND_PARAMETERS)
    return state, (send,)


def give_up_expand(context: Context, why: str = "the dropped ranks did not return in time") -> HandlerResult:
    """Train on without the dropped ranks; the training was never stopped."""
    state, incident = context.state, context.open_incident
    back = replace(incident, restart_ranks=(), replaced_nodes=(), revision=2)
    state = clear_deadlines(state, Deadline.RECOVERY)
    state, closing = close_incident(state, IncidentOutcome.FAILED, why)
    send = build_order(back, OrderCommand.SHRINK, 0, SHRINK_PARAMETERS)
    lost = _nodes_lost_by_event(context)
    state = _mark_dropped_lost(state, lost)
    assert state.shrunk is not None
    # a pod that trains is no part of what is given up, whatever happens to it: its loss is decided by itself
    state = release_nodes(state, (*incident.replaced_nodes, *set(lost).intersection(state.shrunk.nodes)))
    return _look_for_nodes_again(context, state, 0), (send, *closing)


def give_up_planned(context: Context, why: str) -> HandlerResult:
    """Give up an expand or a move, which starts again under the next coordinator; the training continues."""
    if context.state.phase is JobPhase.EXPANDING:
        return give_up_expand(context, why)
    return give_up_migrate(context, why)


def protected_again(context: Context) -> HandlerResult:
    """Look for nodes again: a new controller knows which ranks take part."""
    state = clear_deadlines(context.state, Deadline.UNREACHABLE, Deadline.COORDINATOR)
    return _look_for_nodes_again(context, replace(state, blind=False), 0), ()


def close_expand(context: Context) -> HandlerResult:
    """Close the incident: the job is back at full size."""
    state = replace(context.state, shrunk=None, step=step_after_outage(context), resumed_ms=context.now_ms)
    return close_incident(clear_deadlines(state, Deadline.RECOVERY), IncidentOutcome.RECOVERED)


# ---------------------------------------------------------------------- planned moves


def begin_migration(context: Context) -> HandlerResult:
    """Make second pods beside the pods to be moved."""
    event, state, layout = context.event, context.state, context.view.layout
    if isinstance(event, events.MigrateRequested):
        nodes = tuple(sorted(set(event.nodes)))
        refused = event.avoid
    else:
        nodes, refused = layout.nodes_of_ranks(context.fact_ranks()), ()
    lost = tuple(rank for node in nodes for rank in layout.ranks_of_node(node))
    extent: dict[str, Any] = {"replaced_nodes": nodes, "lost_ranks": lost}
    incident = new_incident(context, state, Action.MIGRATE, Purpose.MIGRATE, revision=1, **extent)
    state = replace(book_use(context, state, Action.MIGRATE), incident=incident, incarnation=incident.number)
    wait = context.policy.replacement_timeout_seconds
    state = set_deadline(state, Deadline.RECOVERY, context.now_ms + 1000 * wait)
    away = tuple(sorted({*refused, *names_to_avoid(context, nodes)}))
    return place_on_spares(context, avoid_nodes(state, dict.fromkeys(nodes, away)), nodes), (
        build_order(incident, OrderCommand.MIGRATE, wait),
    )


def refuse_migrate(context: Context) -> HandlerResult:
    """Announce a move that cannot be made, and why."""
    event, fact_ids = context.event, context.state.fact_ids
    if isinstance(event, events.MigrateRequested):
        nodes = event.nodes
    else:
        nodes, fact_ids = (
            context.view.layout.nodes_of_ranks(context.fact_ranks()),
            (*fact_ids, context.required_fact.id)[-FACT_LIMIT:],
        )
    why = why_no_move(context)
    said = effects.Announce(EventReason.MOVE_REFUSED, f"node ranks {list(nodes)} cannot be moved now: {why}")
    return replace(context.state, fact_ids=fact_ids, unmoved=f"node ranks {list(nodes)}: {why}"), (said,)


def finish_migration(context: Context) -> HandlerResult:
    """Delete the old pods: the second pods have taken over."""
    state, incident = context.state, context.open_incident
    state = renew_incarnations(state, context.now_ms, incident.incarnation, nodes=incident.replaced_nodes)
    state = clear_deadlines(replace(state, resumed_ms=context.now_ms, unmoved=""), Deadline.RECOVERY)
    return close_incident(state, IncidentOutcome.RECOVERED)


def give_up_second_pods(context: Context) -> HandlerResult:
    """Delete the second pods: the node to be left is healthy again. The training was not affected."""
    state, effects_ = give_up_migrate(context, "the node they were moving off is healthy again")
    event = context.event_of(events.FactsWithdrawn)
    known = tuple(one for one in state.fact_ids if one not in event.ids)
    return replace(state, fact_ids=known, unmoved=""), effects_


def give_up_migrate(context: Context, why: str = "the second pods were not ready in time") -> HandlerResult:
    """Delete the second pods and keep the old ones; the training was not affected."""
    state, incident = context.state, context.open_incident
    state = clear_deadlines(state, Deadline.RECOVERY)
    state, closing = abandon_planned(state, incident, why)
    on = effects.SendOrder(OrderCommand.CONTINUE, incident.incarnation, incident.revision + 1)
    return state, (on, *closing)
