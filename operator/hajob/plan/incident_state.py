"""State changes shared by all handlers: deadlines, budgets, renewed pods and processes, the open incident.

Each function takes a state and returns a changed one, or the changes; none decides anything.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from hajob.api.event_reasons import EventReason
from hajob.domain.actions import FAULT_ACTIONS, Action
from hajob.domain.facts import Fact, Origin
from hajob.domain.incidents import Cause, Incident, IncidentOutcome, Milestone, Purpose, RefusedAction
from hajob.plan import effects, events
from hajob.plan.context import Context
from hajob.plan.effects import Effect
from hajob.plan.evaluator import count_stalls, is_loss_free
from hajob.plan.ignored import IgnoreReason
from hajob.plan.repeats import may_be_the_programs
from hajob.plan.state import (
    EVERY_NODE_RANK,
    MAINTENANCE_BUDGET,
    PROGRAM_BUDGET,
    Deadline,
    JobPhase,
    JobState,
    Spend,
    Stall,
)

# Each is kept in the journal, which must fit into the status however long the job lives.
FACT_LIMIT: Final = 128
STALL_LIMIT: Final = 64
RENEWED_LIMIT: Final = 512
MILESTONE_LIMIT: Final = 32
FAILED_LOADS_LIMIT: Final = 16
"""Failed loads remembered of starts in a row; budgets end them long before."""
MESSAGE_LIMIT: Final = 1024
"""Characters kept of a cause's message."""
UNMET_LIMIT: Final = 8
"""Unmet preconditions kept of a refused action."""
FAILED_CODE: Final = 400
"""From here on MindIO's codes are failures (docs/protocols/mindio.md)."""
PLANNED: Final = frozenset({Purpose.EXPAND, Purpose.MIGRATE, Purpose.PAUSE})
"""Purposes for which nothing is wrong with the job: interrupting such an incident costs nothing."""
_CODES: Final = {
    **{purpose: purpose.value for purpose in (Purpose.COORDINATOR, Purpose.REQUEST, Purpose.SUSPEND, Purpose.EVICT)},
    Purpose.EXPAND: "ExpandDue",
    Purpose.GROW: "ExpandDue",
    Purpose.MIGRATE: "MigrateRequested",
    Purpose.PAUSE: "PauseRequested",
}
"""Cause of an incident that no fact opened; a fault without a fact takes the event's name."""


# ---------------------------------------------------------------------- deadlines, budgets, milestones


def set_deadline(state: JobState, name: Deadline, at_ms: int) -> JobState:
    """Set a deadline; the shell watches those of the state."""
    return replace(state, deadlines={**state.deadlines, name: at_ms})


def clear_deadlines(state: JobState, *names: Deadline) -> JobState:
    """Forget deadlines."""
    left = {name: at for name, at in state.deadlines.items() if name not in names}
    return state if len(left) == len(state.deadlines) else replace(state, deadlines=left)


def with_milestone(incident: Incident, name: str, now_ms: int, **changes: Any) -> Incident:  # noqa: ANN401  # its fields
    """Return the incident with one more milestone; the oldest are forgotten."""
    marks = (*incident.milestones, Milestone(name, now_ms))[-MILESTONE_LIMIT:]
    return replace(incident, milestones=marks, **changes)


def _spend_budget(context: Context, state: JobState, action: Action) -> JobState:
    """Book one use of the action's budget, and of the program's for a fresh failure of the program."""
    loss = context.loss
    assert loss is not None
    if not loss.counted or action is loss.continues:
        return state
    if is_loss_free(loss, state, context.now_ms):
        return book_use(context, state, MAINTENANCE_BUDGET)
    state = book_use(context, state, action, *((PROGRAM_BUDGET,) if loss.program_failure else ()))
    return (
        replace(state, stalls=_stalls_with_one_more(state, action, loss.rank, loss.step))
        if loss.checks_progress
        else state
    )


def book_use(context: Context, state: JobState, *budgets: str) -> JobState:
    """Book one use of each of these budgets now, and forget the uses that are in no window any more."""
    now, forgotten_after = context.now_ms, context.policy.forgotten_after_ms
    kept = (spend for spend in state.spent if now - spend.time_ms < forgotten_after(spend.budget))
    return replace(state, spent=(*kept, *(Spend(budget, now) for budget in budgets)))


def _stalls_with_one_more(state: JobState, action: Action, rank: int, step: int) -> tuple[Stall, ...]:
    kept = [stall for stall in state.stalls if stall.rank != rank or stall.action is not action]
    count = 1 + count_stalls(state, action, rank, step)
    return (*kept[-STALL_LIMIT:], Stall(action, rank, step, count))


def renew_incarnations(
    state: JobState, now_ms: int, incarnation: int, ranks: tuple[int, ...] = (), nodes: tuple[int, ...] = ()
) -> JobState:
    """Give these processes and pods a new incarnation; forget the oldest processes."""
    renewed = {rank: number for rank, number in state.renewed.items() if rank not in ranks}
    renewed |= dict.fromkeys(ranks, incarnation)
    return replace(
        state,
        renewed=dict(list(renewed.items())[-RENEWED_LIMIT:]),
        pods={**state.pods, **dict.fromkeys(nodes, incarnation)},
        released=tuple(node for node in state.released if node not in nodes),
        forgotten_ms=now_ms if len(renewed) > RENEWED_LIMIT else state.forgotten_ms,
    )


def release_nodes(state: JobState, nodes: tuple[int, ...]) -> JobState:
    """Mark these node ranks as having no pod."""
    return replace(state, released=tuple(sorted({*state.released, *nodes})))


def avoid_nodes(state: JobState, names: Mapping[int, tuple[str, ...]]) -> JobState:
    """Keep the pods of these node ranks off these nodes until the incident is closed."""
    more = {rank: tuple(dict.fromkeys((*state.avoided.get(rank, ()), *some))) for rank, some in names.items() if some}
    return replace(state, avoided={**state.avoided, **more})


def next_incarnation(context: Context, state: JobState) -> int:
    """Return a number above every one used by the planner, or by the coordinator, which mints one for a fault."""
    return max(state.incarnation, context.event.incarnation) + 1


def place_on_spares(context: Context, state: JobState, nodes: Collection[int]) -> JobState:
    """Place the pods of these node ranks onto spare nodes, as far as there are any."""
    places = {rank: name for rank, name in state.places.items() if rank not in nodes}
    ready = [name for name in context.view.spares if name not in places.values()]
    for rank in sorted(nodes):
        refused = {*state.avoided.get(rank, ()), *state.avoided.get(EVERY_NODE_RANK, ())}
        near = (name for name in ready if name not in refused and _is_near(context, name, rank))
        if (place := next(near, None)) is not None:
            places[rank] = place
            ready.remove(place)
    return replace(state, places=places) if places != state.places else state


def _is_near(context: Context, spare: str, rank: int) -> bool:
    """Whether a spare node can serve a node rank: one of another super pod is of no use to its block."""
    wanted = context.view.super_pods.get(rank, "")
    return not wanted or context.view.spare_super_pods.get(spare, "") == wanted


# ---------------------------------------------------------------------- opening, widening, closing


def new_incident(
    context: Context,
    state: JobState,
    action: Action,
    purpose: Purpose,
    revision: int = 0,
    **more: Any,  # noqa: ANN401  # further fields
) -> Incident:
    """Return a new incident, numbered above every one ever used; by the coordinator's number if it minted one."""
    number = max(state.incarnation + 1, context.event.incarnation)
    fact, loss = context.seen_fact, context.loss
    if fact is not None:
        cause = Cause.from_fact(fact, context.fact_ranks(), loss.step if loss is not None else context.view.step)
    else:
        code = _CODES.get(purpose) or type(context.event).__name__
        cause = Cause(code=code, message=_words_of_event(context.event), time_ms=context.now_ms, step=context.view.step)
    if cause.unexplained:
        cause = replace(cause, base=state.base)
    origin = Origin.PROGRAM if context.is_programs_doing else Origin.INFRASTRUCTURE
    ids, corrupted = (fact.id,) if fact else (), loss.corrupted if loss else False
    opened = context.now_ms
    of_all: dict[str, Any] = {"fact_ids": ids, "corrupted": corrupted, "nodes": state.nodes}
    return Incident(number, number, revision, purpose, origin, action, cause, opened, **of_all, **more)


def _words_of_event(event: events.JobEvent) -> str:
    """Return the words of an event that is not a fact."""
    if isinstance(event, events.ResultReported):
        return f"{event.code} {event.text}".rstrip()[:MESSAGE_LIMIT]
    return getattr(event, "message", "") or getattr(event, "reason", "")


def with_failed_load(context: Context, state: JobState) -> JobState:
    """Return the state with the checkpoint that the fact says could not be loaded; once for each start."""
    if context.seen_fact is None or not context.seen_fact.load_failed or context.view.loaded_step < 0:
        return state
    return replace(state, failed_loads=(*state.failed_loads, context.view.loaded_step)[-FAILED_LOADS_LIMIT:])


def explain_cause(context: Context) -> tuple[JobState, tuple[Effect, ...]]:
    """Replace the open incident's cause by the event's fact when only that fact explains it.

    Ranks that end together end for one reason, which one of them prints, and their facts arrive in any order: the
    explaining fact may be the last one, and about a process that the incident has ended since.
    """
    state, fact, incident, ignored = context.state, context.seen_fact, context.incident, context.relevance.ignored
    if fact is None or incident is None or (ignored is not None and ignored.reason is IgnoreReason.INVALID):
        return state, ()
    cause = incident.cause.explained_by(fact)
    if cause is incident.cause:
        return state, ()
    return replace(state, incident=replace(incident, cause=cause)), (effects.ExplainIncident(incident.number, cause),)


def close_incident(state: JobState, outcome: IncidentOutcome, message: str = "") -> tuple[JobState, tuple[Effect, ...]]:
    """Close the open incident, if any; forget avoided and spare nodes, also those of a first start."""
    incident = state.incident
    if state.avoided or state.places:
        state = replace(state, avoided={}, places={})
    if incident is None:
        return state, ()
    known = (*state.fact_ids, *incident.fact_ids)[-FACT_LIMIT:]
    state = replace(state, incident=None, fact_ids=known)
    return state, (effects.CloseIncident(incident.number, outcome, message),)


def abandon_planned(state: JobState, incident: Incident, why: str) -> tuple[JobState, tuple[Effect, ...]]:
    """Close an interrupted planned action and announce it; the second pods of a move go with the incident."""
    state, closing = close_incident(state, IncidentOutcome.FAILED, why)
    if incident.purpose is Purpose.MIGRATE:
        state = replace(state, unmoved=f"node ranks {list(incident.replaced_nodes)}: {why}")
    said = effects.Announce(
        EventReason(f"{incident.action}GivenUp"), f"node ranks {list(incident.replaced_nodes)}: {why}"
    )
    return state, (*closing, said)


def incident_to_continue(context: Context) -> Incident | None:
    """Return the open incident that the next action continues; None if it opens a new one."""
    incident = context.state.incident
    if incident is None or incident.purpose in PLANNED:
        return None
    over = context.state.phase is JobPhase.CONFIRMING and context.seen_fact is not None
    return None if over else incident


def fields_after_join(context: Context, incident: Incident) -> dict[str, Any]:
    """Return the fields of the incident that change when the event's fact joins it."""
    fact, loss = context.seen_fact, context.loss
    if fact is None:
        return {}
    return {
        "origin": _origin_with(context, fact, incident),
        "fact_ids": (*incident.fact_ids, fact.id)[-FACT_LIMIT:],
        "lost_ranks": tuple(sorted({*incident.lost_ranks, *context.fact_ranks()})),
        "corrupted": incident.corrupted or (loss is not None and loss.corrupted),
    }


def _origin_with(context: Context, fact: Fact, incident: Incident) -> Origin:
    """Return the origin of an incident with one more fact; ranks that end with a failing program tell nothing new."""
    if context.repeats:
        return Origin.PROGRAM
    is_machines = fact.origin is Origin.INFRASTRUCTURE and not may_be_the_programs(fact)
    return Origin.INFRASTRUCTURE if is_machines else incident.origin


def enter_action(
    context: Context,
    action: Action,
    **more: Any,  # noqa: ANN401  # fields of an incident
) -> tuple[JobState, Incident, list[Effect]]:
    """Open an incident for the action, or switch the open one to it.

    Args:
        context: of the event.
        action: the action that begins.
        more: further fields of the incident.

    Returns:
        The state with the incident in it and budgets spent; the incident; effects so far.
    """
    before = incident_to_continue(context)
    if before is None:
        state, out = _leave_incident(context, action)
        incident = new_incident(context, state, action, Purpose.FAULT, revision=1, **more)
    else:
        state, out = context.state, []
        incident = _switch_incident(context, before, action, more)
    state, event = _spend_budget(context, state, action), context.event
    if isinstance(event, events.ResultReported) and event.code >= FAILED_CODE:
        problem = f"{event.strategy or 'MindIO'} failed: {event.code} {event.text}".rstrip()
        state = replace(state, problem=problem)
    incident = replace(incident, refused=_refused_actions(context, incident))
    incarnation = max(incident.incarnation, state.incarnation)
    return replace(state, incident=incident, incarnation=incarnation), incident, out


def _refused_actions(context: Context, incident: Incident) -> tuple[RefusedAction, ...]:
    """Return the actions that this and earlier decisions refused and that were never tried, smallest first."""
    verdicts = context.choice.considered if context.choice is not None else ()
    found = {one.action: RefusedAction(one.action, one.unmet[:UNMET_LIMIT]) for one in verdicts if not one.taken}
    found |= {one.action: one for one in incident.refused}
    tried = {*incident.escalated_from, incident.action}
    return tuple(found[action] for action in FAULT_ACTIONS if action in found and action not in tried)


def _leave_incident(context: Context, action: Action) -> tuple[JobState, list[Effect]]:
    """Close an open incident that does not continue."""
    state, incident = context.state, context.state.incident
    if incident is None:
        return state, []
    if state.phase is JobPhase.CONFIRMING:
        state, closing = close_incident(
            state, IncidentOutcome.RECOVERED, "another fault came before MindIO reported the result"
        )
    else:
        state, closing = abandon_planned(state, incident, f"interrupted by a fault, {action} follows")
    return state, [*closing]


def _switch_incident(context: Context, incident: Incident, action: Action, more: dict[str, object]) -> Incident:
    """Return the incident with the event's fact in it, switched to another action or widened."""
    gone = (incident.action,) if incident.action is not action else ()
    escalated, revision = (*incident.escalated_from, *gone), incident.revision + 1
    fields = {**fields_after_join(context, incident), **more}
    return replace(incident, action=action, escalated_from=escalated, revision=revision, **fields)
