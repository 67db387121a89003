"""Handlers of the table's recovery rows: each returns the new state and its effects.

The order of effects matters: urgent ones (orders) come first. Pods need no effects: they follow from the new state
(hajob.plan.placements).
"""

from dataclasses import replace
from typing import Any, Final, NamedTuple

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import Action, OrderCommand
from hajob.domain.facts import GONE_NODE, Origin
from hajob.domain.incidents import Incident, IncidentOutcome, Purpose, RestoredFrom
from hajob.domain.loss import copy_survives
from hajob.domain.patience import LONGEST_WAIT_SECONDS
from hajob.plan import effects, events
from hajob.plan.context import Context, HandlerResult
from hajob.plan.effects import Effect
from hajob.plan.guards import unknown_ranks
from hajob.plan.incident_state import (
    PLANNED,
    avoid_nodes,
    clear_deadlines,
    close_incident,
    enter_action,
    incident_to_continue,
    next_incarnation,
    place_on_spares,
    renew_incarnations,
    set_deadline,
    with_failed_load,
    with_milestone,
)
from hajob.plan.policy import CONFIRM_SECONDS
from hajob.plan.state import EVERY_NODE_RANK, OF_COORDINATOR, Deadline, JobState, Shrunk, Smaller

COMMAND: Final[dict[Action, OrderCommand]] = {
    action: OrderCommand(action) for action in Action if action is not Action.RESTART
}
"""Coordinator command of each action; a restart has none: the job is stopped and started."""
SHRINK_PARAMETERS: Final = '{"scale-in-strategy":"DP"}'
EXPAND_PARAMETERS: Final = '{"scale-out-strategy":"DP"}'


# ---------------------------------------------------------------------- the actions


def begin_process(action: Action, context: Context) -> HandlerResult:
    """Begin Retry, InPlace or Replace: hold the training, remake what is lost, name it to MindIO once all is there."""
    before = incident_to_continue(context)
    lost, restart, nodes, fresh = _extent_of_loss(context, before, action)
    more: dict[str, Any] = {"ready": False, "restored_from": _source_of_state(context, lost)}
    if before is not None and not set(fresh).isdisjoint(before.replaced_nodes):
        more["incarnation"] = next_incarnation(context, context.state)
    state, incident, out = enter_action(
        context, action, lost_ranks=lost, restart_ranks=restart, replaced_nodes=nodes, **more
    )
    wait = context.policy.replacement_timeout_seconds if nodes else context.policy.limits[action].deadline_seconds
    state = renew_incarnations(state, context.now_ms, incident.incarnation, restart, fresh)
    state = set_deadline(state, Deadline.RECOVERY, _due_time_ms(context, incident, wait))
    state = avoid_nodes(state, {node: names_to_avoid(context, (node,)) for node in fresh})
    if len(nodes) > 1 and context.seen_fact is not None and context.seen_fact.kind in GONE_NODE:
        gone = {name for node in nodes for name in state.avoided.get(node, ())}
        state = avoid_nodes(state, {EVERY_NODE_RANK: tuple(sorted(gone))})  # nor may a pod go where another was lost
    state = place_on_spares(context, state, fresh)
    return state, (*out, build_order(incident, COMMAND[action], wait))


def _due_time_ms(context: Context, incident: Incident, seconds: int) -> int:
    """Return when what MindIO waits for has taken too long: after so many seconds, but before MindIO leaves.

    MindIO's wait began when it had stopped the training, or with its newest result. Each further loss, and each larger
    action, begins anew to wait for pods and processes; MindIO does not. A planned action has it wait for nothing.
    """
    due_ms = context.now_ms + 1000 * seconds
    if incident.purpose in PLANNED:
        return due_ms
    if isinstance(context.event, events.ResultReported):
        asked_ms = context.now_ms
    else:
        stopped = (one.time_ms for one in incident.milestones if one.name == "Stopped")
        asked_ms = max(stopped, default=incident.opened_ms)
    return min(due_ms, asked_ms + 1000 * LONGEST_WAIT_SECONDS)


class Extent(NamedTuple):
    """Extent of a recovery: lost ranks, processes to restart, nodes to replace, and which of these nodes now."""

    lost: tuple[int, ...]
    restart: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    fresh: tuple[int, ...] = ()


def _extent_of_loss(context: Context, incident: Incident | None, action: Action) -> Extent:
    """Return the extent of this loss, merged with what the incident has begun already."""
    loss, layout = context.loss, context.view.layout
    assert loss is not None
    if action is Action.RETRY:
        return Extent(loss.ranks)
    begun, replaced = (incident.restart_ranks, incident.replaced_nodes) if incident else ((), ())
    nodes = loss.nodes
    if action is Action.REPLACE and not nodes and loss.continues is not Action.REPLACE:
        nodes = layout.nodes_of_ranks(loss.ranks)  # no pod was lost, but smaller actions do not work: replace the pods
    # A pod that is being made already is made once more only if the event takes it again.
    fresh = tuple(node for node in nodes if node in loss.newly or node not in replaced)
    # No order restarts a rank that comes with a new pod: its agent starts it. A rank whose restart was begun, or that
    # died again, is restarted, unless its pod is made now.
    in_new_pods = {rank for node in nodes for rank in layout.ranks_of_node(node)}
    in_fresh_pods = {rank for node in fresh for rank in layout.ranks_of_node(node)}
    restart = ({*loss.ranks} - in_new_pods) | ({*begun, *context.fact_ranks()} - in_fresh_pods)
    return Extent(tuple(sorted({*loss.ranks, *in_new_pods})), tuple(sorted(restart)), nodes, fresh)


def names_to_avoid(context: Context, nodes: tuple[int, ...]) -> tuple[str, ...]:
    """Return the names of the nodes of these node ranks, which their new pods must avoid."""
    names = context.view.node_names
    return tuple(sorted({name for node in nodes if (name := names.get(node))}))


def _source_of_state(context: Context, lost: tuple[int, ...]) -> RestoredFrom:
    """Return where these lost ranks get their state from: without a complete copy every rank loads a checkpoint."""
    corrupted = (
        context.loss.corrupted if context.loss is not None else bool(context.incident and context.incident.corrupted)
    )
    evaluator = context.evaluator
    if evaluator is not None and evaluator.loss.ranks == lost:
        sound = evaluator.has_complete_copy and not corrupted  # computed for the decision
    else:
        sound = copy_survives(context.view.layout, lost) and not corrupted
    return RestoredFrom.OPTIMIZER_COPY if sound else RestoredFrom.PERIODIC_CHECKPOINT


def build_order(
    incident: Incident, command: OrderCommand, timeout_seconds: int, parameters: str = ""
) -> effects.SendOrder:
    """Build the order for the current state of the incident."""
    return effects.SendOrder(
        command,
        incident.incarnation,
        incident.revision,
        incident.lost_ranks,
        incident.restart_ranks,
        incident.replaced_nodes,
        parameters,
        timeout_seconds,
    )


def begin_shrink(context: Context) -> HandlerResult:
    """Tell MindIO to drop the data-parallel ranks of the lost pods."""
    evaluator = context.evaluator
    assert evaluator is not None
    isolation, layout = evaluator.isolation, context.view.layout
    nodes = layout.nodes_of_ranks(evaluator.loss.ranks)
    state, incident, out = enter_action(
        context,
        Action.SHRINK,
        lost_ranks=tuple(rank for node in nodes for rank in layout.ranks_of_node(node)),
        restart_ranks=(),
        replaced_nodes=(),
        ready=False,
        restored_from=RestoredFrom.OPTIMIZER_COPY,
    )
    shrunk = Shrunk(
        isolation.dropped,
        isolation.ranks,
        isolation.nodes,
        nodes,
        context.now_ms,
        full_step_ms=context.view.step_ms or 0,
    )
    wait = context.policy.limits[Action.SHRINK].deadline_seconds
    state = set_deadline(replace(state, shrunk=shrunk), Deadline.RECOVERY, context.now_ms + 1000 * wait)
    return state, (*out, build_order(incident, OrderCommand.SHRINK, wait, SHRINK_PARAMETERS))


def begin_checkpoint(context: Context) -> HandlerResult:
    """Have MindIO save the step where the training stands."""
    loss = context.loss
    assert loss is not None
    state, incident, out = enter_action(
        context, Action.CHECKPOINT, lost_ranks=loss.ranks, restart_ranks=(), replaced_nodes=()
    )
    return order_checkpoint(context, state, incident, out)


def order_checkpoint(context: Context, state: JobState, incident: Incident, out: list[Effect]) -> HandlerResult:
    """Order the checkpoint and watch its deadline; a queue that takes quota back waits for as long as is allowed."""
    policy, evicted = context.policy, incident.purpose is Purpose.EVICT
    wait = policy.preemption_timeout_seconds if evicted else policy.limits[Action.CHECKPOINT].deadline_seconds
    state = clear_deadlines(replace(state, incident=incident), Deadline.EXPAND)
    state = set_deadline(state, Deadline.RECOVERY, context.now_ms + 1000 * wait)
    return state, (*out, build_order(incident, OrderCommand.CHECKPOINT, wait))


def begin_restart(context: Context) -> HandlerResult:
    """End every process and start the job anew."""
    return _restart(context, None)


def _restart(context: Context, restored_from: RestoredFrom | None) -> HandlerResult:
    state, incident, out = enter_action(context, Action.RESTART)
    incident = replace(incident, restarts=incident.restarts + 1, restored_from=restored_from or incident.restored_from)
    state = with_failed_load(context, state)
    if incident.origin is Origin.PROGRAM:
        state = replace(state, restarts_program=state.restarts_program + 1)
    else:
        state = replace(state, restarts_infrastructure=state.restarts_infrastructure + 1)
    return launch_attempt(context, state, incident, out)


def restart_from_saved(context: Context) -> HandlerResult:
    """Restart from the checkpoint that was just saved."""
    return _restart(context, RestoredFrom.SAVED_CHECKPOINT)


def launch_attempt(context: Context, state: JobState, incident: Incident | None, out: list[Effect]) -> HandlerResult:
    """Make every pod and the coordinator of a new attempt; older pods are deleted."""
    number = next_incarnation(context, state)
    revision = 1
    if incident is not None:
        restored = incident.restored_from
        if restored is not RestoredFrom.SAVED_CHECKPOINT:
            restored = RestoredFrom.PERIODIC_CHECKPOINT if _has_something_to_load(context) else None
        revision = incident.revision
        incident = replace(incident, incarnation=number, restored_from=restored, ready=False, named=False)
        incident = replace(incident, lost_ranks=(), restart_ranks=(), replaced_nodes=())
    attempt = state.attempt + 1
    smaller = _smaller_start(context, state) if attempt > 1 else None
    if incident is not None:
        incident = replace(incident, nodes=smaller.nodes if smaller is not None else 0)
    state = replace(
        state,
        incident=incident,
        incarnation=number,
        attempt=attempt,
        base=number,
        renewed={},
        pods={},
        released=(),
        avoided={EVERY_NODE_RANK: context.view.nodes_to_avoid} if context.view.nodes_to_avoid else {},
        places={},
        coordinator=number,
        relieved=0,
        blind=False,
        store_lost=False,
        shrunk=None,
        smaller=smaller,
        waiting=None,
        ending=None,
        problem=state.problem if incident else "",
    )
    if attempt > 1:
        state = place_on_spares(context, state, _without_a_place(context, state))
    state = clear_deadlines(state, Deadline.RECOVERY, Deadline.EXPAND, *OF_COORDINATOR)
    at_ms = context.now_ms + 1000 * context.policy.startup_deadline_seconds
    state = set_deadline(state, Deadline.STARTUP, at_ms)
    if smaller is not None:
        words = f"starts with {smaller.nodes} of {smaller.nodes + smaller.missing} rank pods"
        out.append(effects.Announce(EventReason.SMALLER_START, f"{words} (elastic.restartSize: Available)"))
    if attempt > 1:
        out.append(effects.SendOrder(OrderCommand.STOP, number - 1, revision))
    out.append(effects.SendOrder(OrderCommand.START, number, revision))
    return state, tuple(out)


def _has_something_to_load(context: Context) -> bool:
    """Whether the job has ever trained, or has a checkpoint: otherwise a start restores nothing."""
    view = context.view
    return max(context.state.step, view.step, view.loaded_step) > 0 or (view.checkpoint_step or -1) >= 0


def _smaller_start(context: Context, state: JobState) -> Smaller | None:
    """Return the reduced size of this start; None where it has all nodes, or waits for all."""
    sizes = context.policy.sizes
    nodes = sizes.largest_fitting(context.view.start_nodes) if sizes is not None else 0
    if sizes is None or not nodes:
        return None
    missing, before = sizes.setting.layout.num_nodes - nodes, state.smaller or state.shrunk
    return Smaller(nodes, missing, before.since_ms if before is not None else context.now_ms)


def _without_a_place(context: Context, state: JobState) -> tuple[int, ...]:
    """Return the node ranks of this start whose pods had no node, or one that a start should avoid."""
    names, avoided, sizes = context.view.node_names, set(context.view.nodes_to_avoid), context.policy.sizes
    nodes = state.nodes or (sizes.setting.layout.num_nodes if sizes is not None else context.view.layout.num_nodes)
    return tuple(node for node in range(nodes) if names.get(node, "") in {"", *avoided})


# ---------------------------------------------------------------------- milestones of a recovery


def note_milestone(name: str, context: Context, /, **changes: object) -> HandlerResult:
    """Note a milestone in the incident."""
    incident = context.incident
    if incident is None:
        return context.state, ()
    return replace(context.state, incident=with_milestone(incident, name, context.now_ms, **changes)), ()


def start_own_deadline(context: Context) -> HandlerResult:
    """Start the action's own deadline: every replacement stands at its gate."""
    state, _ = note_milestone("ReplacementsReady", context, ready=True)
    assert state.incident is not None
    limits = context.policy.limits[state.incident.action]
    return set_deadline(state, Deadline.RECOVERY, _due_time_ms(context, state.incident, limits.deadline_seconds)), ()


def widen_by_mindio(context: Context) -> HandlerResult:
    """Restart the processes of further ranks that MindIO found dead."""
    incident = context.open_incident
    more = unknown_ranks(context)
    lost = tuple(sorted({*incident.lost_ranks, *more}))
    action = Action.IN_PLACE if incident.action is Action.RETRY else incident.action
    restart = tuple(
        sorted({*incident.restart_ranks, *(incident.lost_ranks if action is not incident.action else ()), *more})
    )
    state = renew_incarnations(context.state, context.now_ms, incident.incarnation, restart)
    gone = (incident.action,) if action is not incident.action else ()
    incident = replace(
        with_milestone(incident, "Stopped", context.now_ms, stopped=True, ready=False),
        action=action,
        escalated_from=(*incident.escalated_from, *gone),
        lost_ranks=lost,
        restart_ranks=restart,
        restored_from=_source_of_state(context, lost),
        revision=incident.revision + 1,
    )
    wait = context.policy.limits[action].deadline_seconds
    return replace(state, incident=incident), (build_order(incident, COMMAND[action], wait),)


def step_after_outage(context: Context) -> int:
    """Return the step that ended the outage, or the last known one where the event names none."""
    step = context.event.step if isinstance(context.event, events.Resumed) else -1
    return step if step >= 0 else context.state.step


def note_first_step(context: Context) -> HandlerResult:
    """Note the first step after the outage, and wait for MindIO's result."""
    incident = with_milestone(context.incident, "Resumed", context.now_ms) if context.incident is not None else None
    state = replace(context.state, incident=incident, step=step_after_outage(context), resumed_ms=context.now_ms)
    return set_deadline(state, Deadline.RECOVERY, context.now_ms + 1000 * CONFIRM_SECONDS), ()


def close_as_recovered(context: Context) -> HandlerResult:
    """Close the incident as recovered."""
    state = context.state
    if isinstance(context.event, events.Resumed):
        state = replace(state, step=step_after_outage(context), resumed_ms=context.now_ms)
    state = replace(state, problem="", failed_loads=())
    state = clear_deadlines(state, Deadline.RECOVERY, Deadline.STARTUP)
    return close_incident(state, IncidentOutcome.RECOVERED)


def change_nothing(_context: Context) -> HandlerResult:
    """Change nothing."""
    return _context.state, ()
