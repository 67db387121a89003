"""Steps that are not the recovery of a fault: start and end of a job, shrunk life, planned moves, what people ask."""

from collections.abc import Callable
from functools import partial
from typing import Final

from hajob.domain.actions import Action, Command
from hajob.domain.incidents import Incident, Outcome, Purpose
from hajob.domain.records import changed
from hajob.plan import effects, events
from hajob.plan.choice import Judge, Loss, Occasion, Verdict
from hajob.plan.effects import Effect
from hajob.plan.moment import Moment, StepResult
from hajob.plan.policy import COORDINATOR_SECONDS
from hajob.plan.state import Deadline, JobState, Phase, Spend
from hajob.plan.steps import (
    EXPAND_PARAMETERS,
    FACT_LIMIT,
    SHRINK_PARAMETERS,
    _names,
    _open,
    _save,
    abandon,
    clear_deadlines,
    close,
    finished,
    launch,
    order,
    renew,
    set_deadline,
)

_EVENT_LIMIT: Final = 240
SAVE_FIRST: Final = Occasion("Asked", (Action.CHECKPOINT,), "only a checkpoint was asked for")


def accept(moment: Moment) -> StepResult:
    """Make pods and coordinator for the first time."""
    state, out = moment.state, list[Effect]()
    limit = moment.policy.active_deadline_seconds
    if limit is not None:
        state, deadline = set_deadline(state, Deadline.ACTIVE, moment.now_ms + 1000 * limit)
        out.append(deadline)
    return launch(moment, state, None, out)


def relaunch(moment: Moment) -> StepResult:
    """Make everything anew because somebody asked for it: no budget is spent."""
    state, incident, out = _planned(moment, Purpose.REQUEST, Action.RESTART)
    return launch(moment, state, incident, out)


def restart_unprotected(moment: Moment) -> StepResult:
    """Restart because the MindIO controller is gone."""
    state, incident, out = _planned(moment, Purpose.COORDINATOR, Action.RESTART)
    spends = (*state.spent, Spend(Action.RESTART.value, moment.now_ms))
    restarts = state.restarts_infrastructure + 1
    return launch(moment, changed(state, spent=spends, restarts_infrastructure=restarts), incident, out)


def _planned(moment: Moment, purpose: Purpose, action: Action) -> tuple[JobState, Incident, list[Effect]]:
    """Close what is open and open an incident of this purpose."""
    state, closing = settle(moment, f"{purpose} took over")
    incident = changed(_open(moment, state, action, purpose), revision=1)
    state = changed(state, incarnation=incident.number)
    return state, incident, [*closing, effects.OpenIncident(incident.number)]


def settle(moment: Moment, why: str) -> tuple[JobState, tuple[Effect, ...]]:
    """Close whatever is open because something else begins."""
    state, incident = moment.state, moment.incident
    if incident is None or state.phase is Phase.CONFIRMING:
        return close(state, Outcome.RECOVERED, why)
    if incident.purpose in {Purpose.EXPAND, Purpose.MIGRATE}:
        return abandon(state, incident, why)
    return close(state, Outcome.FAILED, why)


def save_for(purpose: Purpose) -> Callable[[Moment], StepResult]:
    """Save what can be saved, because somebody asked for a suspend or a restart."""
    return partial(_save_for, purpose)


def _save_for(purpose: Purpose, moment: Moment) -> StepResult:
    incident = moment.incident
    if incident is not None and moment.joins is not None:
        gone = (*incident.escalated_from, incident.action)
        incident = changed(
            incident,
            purpose=purpose,
            action=Action.CHECKPOINT,
            escalated_from=gone,
            revision=incident.revision + 1,
        )
        return _save(moment, moment.state, incident, [effects.WidenIncident(incident.number, f"{purpose}")])
    state, incident, out = _planned(moment, purpose, Action.CHECKPOINT)
    return _save(moment, state, incident, out)


def repurpose(purpose: Purpose) -> Callable[[Moment], StepResult]:
    """While a checkpoint is being saved: what follows it changes."""
    return partial(_repurpose, purpose)


def _repurpose(purpose: Purpose, moment: Moment) -> StepResult:
    assert moment.incident is not None
    incident = changed(moment.incident, purpose=purpose)
    return changed(moment.state, incident=incident), (effects.WidenIncident(incident.number, f"{purpose}"),)


def suspend(moment: Moment) -> StepResult:
    """Delete every pod and keep what is needed to go on later."""
    state, closing = settle(moment, "suspended")
    number = state.incarnation + 1
    stop = effects.SendOrder(Command.STOP, state.incarnation, 1 + (moment.incident.revision if moment.incident else 0))
    state = changed(state, incarnation=number, shrunk=None, renewed={}, pods={}, base=number)
    stale = (Deadline.RECOVERY, Deadline.STARTUP, Deadline.EXPAND, Deadline.COORDINATOR)
    state, cleared = clear_deadlines(state, *stale)
    deletes = (effects.DeleteAllPods(below=number), effects.DeleteCoordinator(below=number))
    return state, (stop, *closing, *cleared, *deletes)


def unsuspend(moment: Moment) -> StepResult:
    """Make everything anew."""
    return launch(moment, moment.state, None, [])


def complete(moment: Moment) -> StepResult:
    """Every rank ended with 0."""
    state, cleared = clear_deadlines(moment.state, *Deadline)
    state, closing = close(state, Outcome.RECOVERED, "the training ended")
    return changed(state, shrunk=None), (*cleared, *closing, effects.CompleteJob())


def delete(moment: Moment) -> StepResult:
    """Stop everything; owner references and the finalizer do the rest."""
    state, cleared = clear_deadlines(moment.state, *Deadline)
    state, closing = close(state, Outcome.FAILED, "the job was deleted")
    number = state.incarnation + 1
    deletes = (effects.DeleteAllPods(below=number), effects.DeleteCoordinator(below=number))
    return state, (*cleared, *closing, *deletes)


def fail(reason: str, sentence: str = "") -> Callable[[Moment], StepResult]:
    """Give up; without a sentence the last rung of the ladder says why."""
    return partial(_fail, reason, sentence)


def _fail(reason: str, sentence: str, moment: Moment) -> StepResult:
    verdicts = moment.choice.considered if moment.choice else ()
    why, message = _why_failed(reason, sentence or moment.state.problem, verdicts)
    incident = moment.incident
    cause = incident.cause.message if incident else getattr(getattr(moment.event, "fact", None), "message", "")
    state, cleared = clear_deadlines(moment.state, *Deadline)
    state, closing = close(state, Outcome.FAILED, message)
    full = f"{message}: {cause}" if cause else message
    return state, (*cleared, *closing, effects.FailJob(why, full))


_FAILURES: Final = {
    "ProgramBudgetLeft": "ProgramFailures",
    "Progress": "NoProgress",
    "BudgetLeft": "RestartBudgetSpent",
    "ActionAllowed": "RestartNotAllowed",
}


def _why_failed(reason: str, sentence: str, verdicts: tuple[Verdict, ...]) -> tuple[str, str]:
    """Reason and message; the refusal of the last rung is the one that counts."""
    if not verdicts:
        return reason, sentence
    names = {refusal.name: refusal.message for refusal in verdicts[-1].refusals}
    for name, why in _FAILURES.items():
        if name in names:
            return why, names[name]
    return reason, verdicts[-1].message or sentence


# ---------------------------------------------------------------------- notes that change little


def ignore(reason: str) -> Callable[[Moment], StepResult]:
    """Change nothing, and say why so that it can be counted."""
    return partial(_ignore, reason)


def _ignore(reason: str, moment: Moment) -> StepResult:
    moment.ignored = moment.ignored or f"{reason}: in {moment.state.phase}, {str(moment.event)[:_EVENT_LIMIT]}"
    return moment.state, ()


def note(moment: Moment) -> StepResult:
    """Remember what explains a slow start."""
    fact = moment.fact
    ids = (*moment.state.fact_ids, fact.id)[-FACT_LIMIT:]
    text = f"{fact.code or fact.kind}: {fact.message}"[-1024:]
    return changed(moment.state, problem=text, fact_ids=ids), (effects.Announce(fact.kind.value, text),)


def observed(moment: Moment) -> StepResult:
    """Say what would be done, and do nothing."""
    fact = moment.fact
    action = moment.choice.action if moment.choice else None
    state = changed(moment.state, fact_ids=(*moment.state.fact_ids, fact.id)[-FACT_LIMIT:])
    return state, (effects.Announce("Observed", f"fact {fact.id} ({fact.kind}): {action or 'nothing'} would follow"),)


def hold(moment: Moment) -> StepResult:
    """Open an incident and start nothing."""
    moment.loss = Loss(ranks=moment.fact_ranks(), step=moment.view.step)
    incident = changed(
        _open(moment, moment.state, moment.first_action(), Purpose.FAULT), lost_ranks=moment.fact_ranks()
    )
    state = changed(moment.state, incident=incident, incarnation=incident.number)
    held = effects.Announce("Held", f"fact {moment.fact.id} waits, mode is Hold")
    return state, (effects.OpenIncident(incident.number), held)


def hold_more(moment: Moment) -> StepResult:
    """Another fact joins what is held."""
    incident = moment.incident
    assert incident is not None
    ids = (*incident.fact_ids, moment.fact.id)[-FACT_LIMIT:]
    lost = tuple(sorted({*incident.lost_ranks, *moment.fact_ranks()}))
    action = max(incident.action, moment.first_action(), key=lambda item: list(Action).index(item))
    incident = changed(incident, fact_ids=ids, lost_ranks=lost, action=action)
    return changed(moment.state, incident=incident), (effects.WidenIncident(incident.number, "held"),)


def lose_coordinator(moment: Moment) -> StepResult:
    """Go on unprotected, with a new coordinator that takes over the agents."""
    state, closing = settle(moment, "the coordinator was lost")
    number = state.incarnation + 1
    stale = (Deadline.RECOVERY, Deadline.EXPAND, Deadline.COORDINATOR)
    state, cleared = clear_deadlines(changed(state, incarnation=number), *stale)
    announce = effects.Announce("CoordinatorLost", getattr(moment.event, "message", "") or "the controller is gone")
    anew = (effects.DeleteCoordinator(below=number), effects.CreateCoordinator(number))
    return state, (announce, *closing, *cleared, *anew)


def await_coordinator(moment: Moment) -> StepResult:
    """It cannot be reached, but may come back: say so and wait."""
    if Deadline.COORDINATOR in moment.state.deadlines:
        return moment.state, ()
    state, deadline = set_deadline(moment.state, Deadline.COORDINATOR, moment.now_ms + 1000 * COORDINATOR_SECONDS)
    return state, (effects.Announce("CoordinatorUnreachable", getattr(moment.event, "message", "")), deadline)


def coordinator_back(moment: Moment) -> StepResult:
    """It serves: nothing was lost."""
    return clear_deadlines(moment.state, Deadline.COORDINATOR)


def forget_deadline(moment: Moment) -> StepResult:
    """A deadline that nothing waits for any more."""
    event = moment.event
    assert isinstance(event, events.DeadlineReached)
    return clear_deadlines(moment.state, Deadline(event.name))


def checkpoint_seen(moment: Moment) -> StepResult:
    """A periodic checkpoint is complete."""
    event = moment.event
    assert isinstance(event, events.CheckpointVerified)
    return changed(moment.state, step=max(moment.state.step, event.step)), ()


# ---------------------------------------------------------------------- shrunk life


def isolated(moment: Moment) -> StepResult:
    """MindIO has named every rank it drops (201); they are taken over as they are."""
    event, state, layout = moment.event, moment.state, moment.view.layout
    assert isinstance(event, events.ResultReported)
    ranks = tuple(sorted(rank for rank in set(event.ranks) if 0 <= rank < layout.world_size))
    if state.shrunk is None or not ranks or ranks == state.shrunk.ranks:
        return state, ()
    dropped = tuple(sorted({layout.data_rank(rank) for rank in ranks}))
    shrunk = changed(state.shrunk, dropped=dropped, ranks=ranks, nodes=layout.nodes_of(ranks))
    text = f"MindIO drops {len(ranks)} ranks where {len(state.shrunk.ranks)} were expected"
    return changed(state, shrunk=shrunk), (effects.Announce("DropSetDiffers", text),)


def shrunk(moment: Moment) -> StepResult:
    """The training goes on with what is left; pods that left are released as the policy says."""
    event, state, gone = moment.event, moment.state, moment.state.shrunk
    assert gone is not None
    if isinstance(event, events.Resumed):
        state = changed(state, step=finished(moment))
    state = changed(state, resumed_ms=moment.now_ms)
    nodes = gone.nodes if moment.policy.release_shrunk_pods else gone.lost_nodes
    state, cleared = clear_deadlines(state, Deadline.RECOVERY)
    state, closing = close(state, Outcome.RECOVERED, "shrunk")
    release = effects.ReleasePods(nodes, below=state.incarnation + 1)
    enough = moment.view.free_nodes is not None and moment.view.free_nodes >= len(nodes)
    state, delay = _look_again(moment, state, moment.now_ms if enough else 0)
    return state, (*cleared, *closing, delay, release)


def _look_again(moment: Moment, state: JobState, capacity_ms: int) -> tuple[JobState, Effect]:
    """Note since when there is capacity, and look again after the delay."""
    assert state.shrunk is not None
    state = changed(state, shrunk=changed(state.shrunk, capacity_ms=capacity_ms))
    return set_deadline(state, Deadline.EXPAND, moment.now_ms + 1000 * moment.policy.expand_delay_seconds)


def await_expand(moment: Moment) -> StepResult:
    """There is capacity: grow back after the delay, so that a flapping node costs nothing."""
    gone = moment.state.shrunk
    if gone is None or gone.capacity_ms:
        return moment.state, ()
    state, deadline = _look_again(moment, moment.state, moment.now_ms)
    return state, (deadline,)


def await_capacity(moment: Moment) -> StepResult:
    """There is no capacity, or growing back has failed too often for now: look again after the delay."""
    state, deadline = _look_again(moment, moment.state, 0)
    return state, (deadline,)


def expand(moment: Moment) -> StepResult:
    """Make the pods that left anew; the others train on until all are back."""
    state = moment.state
    gone = state.shrunk
    assert gone is not None
    incident = changed(_open(moment, state, Action.EXPAND, Purpose.EXPAND), revision=1)
    nodes = gone.nodes if moment.policy.release_shrunk_pods else gone.lost_nodes
    in_new_pods = {rank for node in nodes for rank in moment.view.layout.ranks_of(node)}
    restart = tuple(rank for rank in gone.ranks if rank not in in_new_pods)
    incident = changed(incident, lost_ranks=gone.ranks, restart_ranks=restart, replaced_nodes=nodes)
    spends = (*state.spent, Spend(Action.EXPAND.value, moment.now_ms))
    state = renew(moment, changed(state, spent=spends), restart, nodes, incident.number)
    state = changed(state, incident=incident, incarnation=incident.number)
    state, cleared = clear_deadlines(state, Deadline.EXPAND)
    wait = moment.policy.replacement_timeout_seconds
    state, deadline = set_deadline(state, Deadline.RECOVERY, moment.now_ms + 1000 * wait)
    send = order(incident, Command.EXPAND, wait, EXPAND_PARAMETERS)
    opened = effects.OpenIncident(incident.number)
    return state, (opened, send, *cleared, deadline, effects.ReplacePods(nodes, incident.number))


def give_up_expand(moment: Moment) -> StepResult:
    """The dropped ranks did not come back in time: train on without them, nothing was stopped."""
    state, incident = moment.state, moment.incident
    assert incident is not None
    assert state.shrunk is not None
    back = changed(incident, lost_ranks=state.shrunk.ranks, restart_ranks=(), replaced_nodes=(), revision=2)
    state, cleared = clear_deadlines(state, Deadline.RECOVERY)
    state, closing = close(state, Outcome.FAILED, "the dropped ranks did not come back in time")
    release = effects.ReleasePods(incident.replaced_nodes, below=incident.incarnation + 1)
    state, delay = _look_again(moment, state, 0)
    return state, (order(back, Command.SHRINK, 0, SHRINK_PARAMETERS), *cleared, *closing, delay, release)


def expanded(moment: Moment) -> StepResult:
    """Back at full size."""
    state = changed(moment.state, shrunk=None, resumed_ms=moment.now_ms)
    if isinstance(moment.event, events.Resumed):
        state = changed(state, step=finished(moment))
    state, cleared = clear_deadlines(state, Deadline.RECOVERY)
    state, closing = close(state, Outcome.RECOVERED)
    return state, (*cleared, *closing)


# ---------------------------------------------------------------------- planned moves


def migrate(moment: Moment) -> StepResult:
    """Make second pods beside the ones that shall go."""
    event, state, layout = moment.event, moment.state, moment.view.layout
    if isinstance(event, events.MigrateRequested):
        nodes = tuple(sorted(set(event.nodes)))
        avoid = event.avoid
    else:
        nodes, avoid = layout.nodes_of(moment.fact_ranks()), ()
    incident = changed(_open(moment, state, Action.MIGRATE, Purpose.MIGRATE), revision=1, replaced_nodes=nodes)
    incident = changed(incident, lost_ranks=tuple(rank for node in nodes for rank in layout.ranks_of(node)))
    spends = (*state.spent, Spend(Action.MIGRATE.value, moment.now_ms))
    state = changed(state, incident=incident, incarnation=incident.number, spent=spends)
    wait = moment.policy.replacement_timeout_seconds
    state, deadline = set_deadline(state, Deadline.RECOVERY, moment.now_ms + 1000 * wait)
    away = tuple(sorted({*avoid, *_names(moment, nodes)}))
    spare = effects.CreateSparePods(nodes, incident.number, away)
    return state, (effects.OpenIncident(incident.number), order(incident, Command.MIGRATE, wait), deadline, spare)


def refuse_migrate(moment: Moment) -> StepResult:
    """A move that cannot be made is said, never silently ignored."""
    ids = moment.state.fact_ids
    if isinstance(moment.event, events.FactSeen):
        ids = (*ids, moment.fact.id)[-FACT_LIMIT:]
    what = moment.event.nodes if isinstance(moment.event, events.MigrateRequested) else moment.fact.id
    text = f"the move {what} cannot be made now: another action runs, no step has ended, or the budget is spent"
    return changed(moment.state, fact_ids=ids), (effects.Announce("Degraded", text),)


def migrated(moment: Moment) -> StepResult:
    """The second pods have taken over; the old ones go."""
    state, incident = moment.state, moment.incident
    assert incident is not None
    state = renew(moment, state, (), incident.replaced_nodes, incident.incarnation)
    state = changed(state, resumed_ms=moment.now_ms)
    state, cleared = clear_deadlines(state, Deadline.RECOVERY)
    state, closing = close(state, Outcome.RECOVERED)
    return state, (*cleared, *closing, effects.ReleasePods(incident.replaced_nodes, below=incident.incarnation))


def give_up_migrate(moment: Moment) -> StepResult:
    """The second pods did not come in time: they go again, the training was not touched."""
    state, incident = moment.state, moment.incident
    assert incident is not None
    state, cleared = clear_deadlines(state, Deadline.RECOVERY)
    state, closing = abandon(state, incident, "no second pod stood ready in time")
    on = effects.SendOrder(Command.CONTINUE, incident.incarnation, incident.revision + 1)
    return state, (on, *cleared, *closing)


def may_save(moment: Moment) -> bool:
    """Whether MindIO could save the running training now."""
    lost = moment.incident.lost_ranks if moment.incident and moment.incident.purpose is Purpose.FAULT else ()
    judge = Judge(Loss(ranks=lost, counted=False), SAVE_FIRST, moment.state, moment.view, moment.policy, moment.now_ms)
    return not judge.refusals(Action.CHECKPOINT)
