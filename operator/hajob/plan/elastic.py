"""Life with fewer data-parallel ranks and the way back, and planned moves off nodes that still work."""

from dataclasses import replace
from typing import Any

from hajob.domain.actions import Action, Command
from hajob.domain.incidents import Outcome, Purpose, RestoredFrom
from hajob.plan import effects, events
from hajob.plan.books import FACT_LIMIT, abandon, clear_deadlines, close, new_incident, renew, set_deadline
from hajob.plan.moment import Moment, StepResult
from hajob.plan.state import Deadline, JobState, Spend
from hajob.plan.steps import EXPAND_PARAMETERS, SHRINK_PARAMETERS, finished, names_to_avoid, order

# ---------------------------------------------------------------------- shrunk life


def isolated(moment: Moment) -> StepResult:
    """MindIO has named every rank it drops (201); they are taken over as they are."""
    event, state, layout = moment.event, moment.state, moment.view.layout
    assert isinstance(event, events.ResultReported)
    ranks = tuple(sorted(rank for rank in set(event.ranks) if 0 <= rank < layout.world_size))
    if state.shrunk is None or not ranks or ranks == state.shrunk.ranks:
        return state, ()
    dropped = tuple(sorted({layout.data_rank(rank) for rank in ranks}))
    shrunk = replace(state.shrunk, dropped=dropped, ranks=ranks, nodes=layout.nodes_of(ranks))
    text = f"MindIO drops {len(ranks)} ranks where {len(state.shrunk.ranks)} were expected"
    return replace(state, shrunk=shrunk), (effects.Announce("DropSetDiffers", text),)


def shrunk(moment: Moment) -> StepResult:
    """The training goes on with what is left; pods that left are released as the policy says."""
    event, state, gone = moment.event, moment.state, moment.state.shrunk
    assert gone is not None
    if isinstance(event, events.Resumed):
        state = replace(state, step=finished(moment))
    state = replace(state, resumed_ms=moment.now_ms)
    nodes = gone.absent(released=moment.policy.release_shrunk_pods)
    state, closing = close(clear_deadlines(state, Deadline.RECOVERY), Outcome.RECOVERED, "shrunk")
    release = effects.ReleasePods(nodes, below=state.incarnation + 1)
    enough = moment.view.free_nodes is not None and moment.view.free_nodes >= len(nodes)
    return _look_again(moment, state, moment.now_ms if enough else 0), (*closing, release)


def _look_again(moment: Moment, state: JobState, capacity_ms: int) -> JobState:
    """Note since when there is capacity, and look again after the delay."""
    assert state.shrunk is not None
    state = replace(state, shrunk=replace(state.shrunk, capacity_ms=capacity_ms))
    return set_deadline(state, Deadline.EXPAND, moment.now_ms + 1000 * moment.policy.expand_delay_seconds)


def await_expand(moment: Moment) -> StepResult:
    """There is capacity: grow back after the delay, so that a flapping node costs nothing."""
    gone = moment.state.shrunk
    if gone is None or gone.capacity_ms:
        return moment.state, ()
    return _look_again(moment, moment.state, moment.now_ms), ()


def await_capacity(moment: Moment) -> StepResult:
    """There is no capacity, or growing back has failed too often for now: look again after the delay."""
    return _look_again(moment, moment.state, 0), ()


def expand(moment: Moment) -> StepResult:
    """Make the pods that left anew; the others train on until all are back."""
    state = moment.state
    gone = state.shrunk
    assert gone is not None
    nodes = gone.absent(released=moment.policy.release_shrunk_pods)
    in_new_pods = {rank for node in nodes for rank in moment.view.layout.ranks_of(node)}
    restart = tuple(rank for rank in gone.ranks if rank not in in_new_pods)
    extent: dict[str, Any] = {"lost_ranks": gone.ranks, "restart_ranks": restart, "replaced_nodes": nodes}
    extent["restored_from"] = RestoredFrom.OPTIMIZER_COPY  # partners give the returned ranks their state
    incident = new_incident(moment, state, Action.EXPAND, Purpose.EXPAND, revision=1, **extent)
    spends = (*state.spent, Spend(Action.EXPAND.value, moment.now_ms))
    state = renew(state, moment.now_ms, incident.number, restart, nodes)
    state = replace(state, incident=incident, incarnation=incident.number, spent=spends)
    wait = moment.policy.replacement_timeout_seconds
    state = clear_deadlines(state, Deadline.EXPAND)
    state = set_deadline(state, Deadline.RECOVERY, moment.now_ms + 1000 * wait)
    send = order(incident, Command.EXPAND, wait, EXPAND_PARAMETERS)
    return state, (send, effects.ReplacePods(nodes, incident.number))


def give_up_expand(moment: Moment) -> StepResult:
    """The dropped ranks did not come back in time: train on without them, nothing was stopped."""
    state, incident = moment.state, moment.incident
    assert incident is not None
    back = replace(incident, restart_ranks=(), replaced_nodes=(), revision=2)
    state = clear_deadlines(state, Deadline.RECOVERY)
    state, closing = close(state, Outcome.FAILED, "the dropped ranks did not come back in time")
    release = effects.ReleasePods(incident.replaced_nodes, below=incident.incarnation + 1)
    send = order(back, Command.SHRINK, 0, SHRINK_PARAMETERS)
    return _look_again(moment, state, 0), (send, *closing, release)


def expanded(moment: Moment) -> StepResult:
    """Back at full size."""
    state = replace(moment.state, shrunk=None, resumed_ms=moment.now_ms)
    if isinstance(moment.event, events.Resumed):
        state = replace(state, step=finished(moment))
    return close(clear_deadlines(state, Deadline.RECOVERY), Outcome.RECOVERED)


# ---------------------------------------------------------------------- planned moves


def migrate(moment: Moment) -> StepResult:
    """Make second pods beside the ones that shall go."""
    event, state, layout = moment.event, moment.state, moment.view.layout
    if isinstance(event, events.MigrateRequested):
        nodes = tuple(sorted(set(event.nodes)))
        avoid = event.avoid
    else:
        nodes, avoid = layout.nodes_of(moment.fact_ranks()), ()
    incident = replace(new_incident(moment, state, Action.MIGRATE, Purpose.MIGRATE), revision=1, replaced_nodes=nodes)
    incident = replace(incident, lost_ranks=tuple(rank for node in nodes for rank in layout.ranks_of(node)))
    spends = (*state.spent, Spend(Action.MIGRATE.value, moment.now_ms))
    state = replace(state, incident=incident, incarnation=incident.number, spent=spends)
    wait = moment.policy.replacement_timeout_seconds
    state = set_deadline(state, Deadline.RECOVERY, moment.now_ms + 1000 * wait)
    away = tuple(sorted({*avoid, *names_to_avoid(moment, nodes)}))
    spare = effects.CreateSparePods(nodes, incident.number, away)
    return state, (order(incident, Command.MIGRATE, wait), spare)


def refuse_migrate(moment: Moment) -> StepResult:
    """A move that cannot be made is said, never silently ignored."""
    ids = moment.state.fact_ids
    if isinstance(moment.event, events.FactSeen):
        ids = (*ids, moment.fact.id)[-FACT_LIMIT:]
    what = moment.event.nodes if isinstance(moment.event, events.MigrateRequested) else moment.fact.id
    text = f"the move {what} cannot be made now: another action runs, no step has ended, or the budget is spent"
    return replace(moment.state, fact_ids=ids), (effects.Announce("Degraded", text),)


def migrated(moment: Moment) -> StepResult:
    """The second pods have taken over; the old ones go."""
    state, incident = moment.state, moment.incident
    assert incident is not None
    state = renew(state, moment.now_ms, incident.incarnation, nodes=incident.replaced_nodes)
    state = clear_deadlines(replace(state, resumed_ms=moment.now_ms), Deadline.RECOVERY)
    state, closing = close(state, Outcome.RECOVERED)
    return state, (*closing, effects.ReleasePods(incident.replaced_nodes, below=incident.incarnation))


def give_up_migrate(moment: Moment) -> StepResult:
    """The second pods did not come in time: they go again, the training was not touched."""
    state, incident = moment.state, moment.incident
    assert incident is not None
    state = clear_deadlines(state, Deadline.RECOVERY)
    state, closing = abandon(state, incident, "no second pod stood ready in time")
    on = effects.SendOrder(Command.CONTINUE, incident.incarnation, incident.revision + 1)
    return state, (on, *closing)
