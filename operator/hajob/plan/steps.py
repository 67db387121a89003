"""What the rows of the table do: new state and effects, one short function for each.

Order of effects matters: what is repeatable and urgent (orders) comes first, what is irreversible last, because the
shell writes the status in between.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from hajob.domain.actions import Action, Command
from hajob.domain.facts import Fact, Origin
from hajob.domain.incidents import Cause, Incident, Milestone, Outcome, Purpose, RestoredFrom
from hajob.domain.records import changed
from hajob.plan import effects, events
from hajob.plan.effects import Effect
from hajob.plan.guards import unknown_ranks
from hajob.plan.moment import Moment, StepResult
from hajob.plan.policy import CONFIRM_SECONDS
from hajob.plan.state import PROGRAM_BUDGET, Deadline, JobState, Phase, Shrunk, Spend, Stall

COMMAND: Final[dict[Action, Command]] = {action: Command(action) for action in Action if action is not Action.RESTART}
"""What the coordinator is told for an action; a restart is carried out by stopping and starting."""
FACT_LIMIT: Final = 128
STALL_LIMIT: Final = 64
RENEWED_LIMIT: Final = 512
MILESTONE_LIMIT: Final = 32
SHRINK_PARAMETERS: Final = '{"scale-in-strategy":"DP"}'
EXPAND_PARAMETERS: Final = '{"scale-out-strategy":"DP"}'


# ---------------------------------------------------------------------- deadlines, budgets, milestones


def set_deadline(state: JobState, name: Deadline, at_ms: int) -> tuple[JobState, Effect]:
    """Remember a deadline, and have it watched."""
    return changed(state, deadlines={**state.deadlines, name: at_ms}), effects.SetDeadline(name, at_ms)


def clear_deadlines(state: JobState, *names: Deadline) -> tuple[JobState, tuple[Effect, ...]]:
    """Forget deadlines."""
    gone = tuple(name.value for name in names if name.value in state.deadlines)
    if not gone:
        return state, ()
    left = {name: at for name, at in state.deadlines.items() if name not in gone}
    return changed(state, deadlines=left), tuple(effects.ClearDeadline(name) for name in gone)


def _mark(incident: Incident, name: str, now_ms: int, **changes: object) -> Incident:
    marks = (*incident.milestones, Milestone(name, now_ms))[-MILESTONE_LIMIT:]
    return changed(incident, milestones=marks, **changes)


def _spend(moment: Moment, state: JobState, action: Action) -> dict[str, Any]:
    """Book one use of the action's budget, and of the program's for a fresh failure of the program: what changes."""
    loss = moment.loss
    assert loss is not None
    if not loss.counted or action is loss.continues:
        return {}
    since = moment.now_ms - moment.policy.longest_window_ms
    kept = state.spent if not state.spent or state.spent[0].time_ms > since else _recent(state, since)
    booked = (*kept, Spend(action, moment.now_ms))
    if loss.program_failure:
        booked = (*booked, Spend(PROGRAM_BUDGET, moment.now_ms))
    return {"spent": booked, "stalls": _stalls(state, action, loss.rank, loss.step)}


def _recent(state: JobState, since: int) -> tuple[Spend, ...]:
    return tuple(spend for spend in state.spent if spend.time_ms > since)


def _stalls(state: JobState, action: Action, rank: int, step: int) -> tuple[Stall, ...]:
    count, kept = 1, []
    for stall in state.stalls:
        if stall.action is action and stall.rank == rank:
            count = stall.count + 1 if stall.step == step else 1
        else:
            kept.append(stall)
    return (*kept[-STALL_LIMIT:], Stall(action, rank, step, count))


def _remember(old: Mapping[int, int], keys: tuple[int, ...], incarnation: int) -> tuple[Mapping[int, int], bool]:
    """Note an incarnation for each key; True when something old had to be forgotten."""
    if not keys:
        return old, False
    new = dict(old)
    for key in keys:
        new.pop(key, None)
        new[key] = incarnation
    forgot = False
    while len(new) > RENEWED_LIMIT:
        del new[next(iter(new))]
        forgot = True
    return new, forgot


def renew(moment: Moment, state: JobState, ranks: tuple[int, ...], nodes: tuple[int, ...], number: int) -> JobState:
    """Remember that these processes and pods are of a new incarnation from now on."""
    if not ranks and not nodes:
        return state
    renewed, forgot_rank = _remember(state.renewed, ranks, number)
    pods, forgot_pod = _remember(state.pods, nodes, number)
    forgotten = moment.now_ms if forgot_rank or forgot_pod else state.forgotten_ms
    return changed(state, renewed=renewed, pods=pods, forgotten_ms=forgotten)


# ---------------------------------------------------------------------- opening, widening, closing


def _fact(moment: Moment) -> Fact | None:
    return moment.event.fact if isinstance(moment.event, events.FactSeen) else None


_BLANK: Final = Incident(0, 0, 0, Purpose.FAULT, Origin.INFRASTRUCTURE, Action.RETRY, Cause(), 0)
"""Where a new incident begins; a changed copy costs a fraction of the constructor."""


def _open(moment: Moment, state: JobState, action: Action, purpose: Purpose, revision: int = 0) -> Incident:
    """A new incident; its number is above every one ever used, and is the coordinator's where it minted one."""
    number = max(state.incarnation + 1, moment.event.incarnation)
    fact, loss = _fact(moment), moment.loss
    if fact is not None and loss is not None:
        cause = Cause.of(fact, moment.fact_ranks(), loss.step)
    else:
        cause = Cause(message=getattr(moment.event, "message", ""), time_ms=moment.now_ms, step=moment.view.step)
    return changed(
        _BLANK,
        number=number,
        incarnation=number,
        revision=revision,
        purpose=purpose,
        origin=fact.origin if fact else Origin.INFRASTRUCTURE,
        action=action,
        cause=cause,
        opened_ms=moment.now_ms,
        fact_ids=(fact.id,) if fact else (),
        corrupted=loss.corrupted if loss else False,
    )


def close(state: JobState, outcome: Outcome, message: str = "") -> tuple[JobState, tuple[Effect, ...]]:
    """Close the open incident, if there is one."""
    incident = state.incident
    if incident is None:
        return state, ()
    known = (*state.fact_ids, *incident.fact_ids)[-FACT_LIMIT:]
    state = changed(state, incident=None, fact_ids=known)
    return state, (effects.CloseIncident(incident.number, outcome, message),)


def abandon(state: JobState, incident: Incident, why: str) -> tuple[JobState, tuple[Effect, ...]]:
    """Close a planned action that was disturbed, say so, and take back the second pods of a move."""
    state, closing = close(state, Outcome.FAILED, why)
    said = effects.Announce("Degraded", f"{incident.action} of node ranks {list(incident.replaced_nodes)}: {why}")
    if incident.purpose is not Purpose.MIGRATE:
        return state, (*closing, said)
    low = incident.incarnation
    return state, (*closing, said, effects.ReleasePods(incident.replaced_nodes, below=low + 1, not_below=low))


def _joined(moment: Moment, incident: Incident) -> Incident:
    """The incident with the event's fact in it."""
    fact, loss = _fact(moment), moment.loss
    if fact is None:
        return incident
    origin = Origin.INFRASTRUCTURE if fact.origin is Origin.INFRASTRUCTURE else incident.origin
    ids = (*incident.fact_ids, fact.id)[-FACT_LIMIT:]
    lost = tuple(sorted({*incident.lost_ranks, *moment.fact_ranks()}))
    corrupted = incident.corrupted or (loss is not None and loss.corrupted)
    return changed(incident, origin=origin, fact_ids=ids, lost_ranks=lost, corrupted=corrupted)


def enter(moment: Moment, action: Action) -> tuple[JobState, Incident, list[Effect]]:
    """Open an incident for the action, or let the open one go over to it; budgets are spent here."""
    state, out = moment.state, list[Effect]()
    incident = state.incident
    if incident is not None and state.phase is Phase.CONFIRMING and _fact(moment) is not None:
        state, closing = close(state, Outcome.RECOVERED, "the next fault came before MindIO's result")
        out += closing
        incident = None
    elif incident is not None and incident.purpose in {Purpose.EXPAND, Purpose.MIGRATE}:
        state, closing = abandon(state, incident, f"disturbed, {action} follows")
        out += closing
        incident = None
    if incident is None:
        incident = _open(moment, state, action, Purpose.FAULT, revision=1)
        out.append(effects.OpenIncident(incident.number))
    else:
        gone = (incident.action,) if incident.action is not action else ()
        incident = changed(
            _joined(moment, incident),
            action=action,
            escalated_from=(*incident.escalated_from, *gone),
            revision=incident.revision + 1,
        )
        out.append(effects.WidenIncident(incident.number, f"{action}"))
    number = max(state.incarnation, incident.incarnation)
    return changed(state, incarnation=number, **_spend(moment, state, action)), incident, out


# ---------------------------------------------------------------------- the actions


def begin_process(action: Action) -> Callable[[Moment], StepResult]:
    """Retry, InPlace and Replace: hold the training, make what is lost anew, tell MindIO once all are there."""
    return partial(_begin_process, action)


def _begin_process(action: Action, moment: Moment) -> StepResult:
    state, incident, out = enter(moment, action)
    lost, restart, nodes, fresh = _extent(moment, incident, action)
    if set(fresh) & set(incident.replaced_nodes):
        incident = changed(incident, incarnation=state.incarnation + 1)
    state = renew(moment, state, restart, fresh, incident.incarnation)
    incident = changed(
        incident,
        lost_ranks=lost,
        restart_ranks=restart,
        replaced_nodes=nodes,
        ready=False,
        restored_from=_source(moment),
    )
    wait = moment.policy.replacement_timeout_seconds if nodes else moment.policy.rungs[action].deadline_seconds
    at_ms = moment.now_ms + 1000 * wait
    state = changed(
        state,
        incident=incident,
        incarnation=max(state.incarnation, incident.incarnation),
        deadlines={**state.deadlines, Deadline.RECOVERY: at_ms},
    )
    out += [order(incident, COMMAND[action], wait), effects.SetDeadline(Deadline.RECOVERY, at_ms)]
    if fresh:
        out.append(effects.ReplacePods(fresh, incident.incarnation, _names(moment, fresh)))
    return state, tuple(out)


def _extent(moment: Moment, incident: Incident, action: Action) -> tuple[tuple[int, ...], ...]:
    """Lost ranks, processes to be restarted, nodes to be replaced, and of these the ones to be made now."""
    loss, layout = moment.loss, moment.view.layout
    assert loss is not None
    nodes = loss.nodes
    if action is Action.REPLACE and not nodes and loss.continues is not Action.REPLACE:
        nodes = layout.nodes_of(loss.ranks)
    fresh = tuple(node for node in nodes if node in loss.newly or node not in incident.replaced_nodes)
    if action is Action.RETRY:
        return loss.ranks, (), (), ()
    in_fresh_pods = {rank for node in fresh for rank in layout.ranks_of(node)}
    in_new_pods = {rank for node in nodes for rank in layout.ranks_of(node)}
    died = set() if loss.newly or not isinstance(moment.event, events.FactSeen) else set(moment.fact_ranks())
    restart = ({*loss.ranks} - in_new_pods) | ({*incident.restart_ranks, *died} - in_fresh_pods)
    return tuple(sorted({*loss.ranks, *in_new_pods})), tuple(sorted(restart)), nodes, fresh


def _names(moment: Moment, nodes: tuple[int, ...]) -> tuple[str, ...]:
    """Names of the nodes that these pods are to keep away from."""
    names = (moment.view.node_names.get(node, "") for node in nodes)
    return tuple(sorted({name for name in names if name}))


def _source(moment: Moment) -> RestoredFrom:
    """Where the lost ranks' state will come from."""
    judge = moment.judge
    assert judge is not None
    sound = judge.copy and not judge.loss.corrupted
    return RestoredFrom.OPTIMIZER_COPY if sound else RestoredFrom.PERIODIC_CHECKPOINT


def order(incident: Incident, command: Command, timeout_seconds: int, parameters: str = "") -> effects.SendOrder:
    """The order that says where the incident stands now."""
    return effects.SendOrder(
        command=command,
        incarnation=incident.incarnation,
        revision=incident.revision,
        lost_ranks=incident.lost_ranks,
        restart_ranks=incident.restart_ranks,
        replaced_nodes=incident.replaced_nodes,
        parameters=parameters,
        timeout_seconds=timeout_seconds,
    )


def begin_shrink(moment: Moment) -> StepResult:
    """Tell MindIO to drop the data-parallel ranks of the lost pods."""
    state, incident, out = enter(moment, Action.SHRINK)
    judge = moment.judge
    assert judge is not None
    isolation, layout = judge.isolation, moment.view.layout
    nodes = layout.nodes_of(judge.loss.ranks)
    lost = tuple(rank for node in nodes for rank in layout.ranks_of(node))
    restored = RestoredFrom.OPTIMIZER_COPY
    incident = changed(
        incident, lost_ranks=lost, restart_ranks=(), replaced_nodes=(), ready=False, restored_from=restored
    )
    shrunk = Shrunk(isolation.dropped, isolation.ranks, isolation.nodes, nodes, moment.now_ms)
    wait = moment.policy.rungs[Action.SHRINK].deadline_seconds
    state = changed(state, incident=incident, shrunk=shrunk)
    state, deadline = set_deadline(state, Deadline.RECOVERY, moment.now_ms + 1000 * wait)
    return state, (*out, order(incident, Command.SHRINK, wait, SHRINK_PARAMETERS), deadline)


def begin_checkpoint(moment: Moment) -> StepResult:
    """Have MindIO save the step where the training stands."""
    state, incident, out = enter(moment, Action.CHECKPOINT)
    if moment.loss is not None:
        incident = changed(incident, lost_ranks=moment.loss.ranks, restart_ranks=(), replaced_nodes=())
    return _save(moment, state, incident, out)


def _save(moment: Moment, state: JobState, incident: Incident, out: list[Effect]) -> StepResult:
    wait = moment.policy.rungs[Action.CHECKPOINT].deadline_seconds
    state = changed(state, incident=incident)
    state, cleared = clear_deadlines(state, Deadline.EXPAND)
    state, deadline = set_deadline(state, Deadline.RECOVERY, moment.now_ms + 1000 * wait)
    return state, (*out, order(incident, Command.CHECKPOINT, wait), *cleared, deadline)


def begin_restart(moment: Moment) -> StepResult:
    """End every process and start the job anew."""
    state, incident, out = enter(moment, Action.RESTART)
    if incident.origin is Origin.PROGRAM:
        state = changed(state, restarts_program=state.restarts_program + 1)
    else:
        state = changed(state, restarts_infrastructure=state.restarts_infrastructure + 1)
    return launch(moment, state, incident, out)


def restart_from_saved(moment: Moment) -> StepResult:
    """The checkpoint is complete: start anew from it."""
    assert moment.state.incident is not None
    saved = changed(moment.state.incident, restored_from=RestoredFrom.SAVED_CHECKPOINT)
    moment.state = changed(moment.state, incident=saved)
    return begin_restart(moment)


def launch(moment: Moment, state: JobState, incident: Incident | None, out: list[Effect]) -> StepResult:
    """Make every pod and the coordinator of a new attempt; what is older goes."""
    number = state.incarnation + 1
    revision = 1
    avoid: tuple[str, ...] = ()
    if incident is not None:
        avoid = _names(moment, incident.replaced_nodes)
        restored = incident.restored_from
        if restored is not RestoredFrom.SAVED_CHECKPOINT:
            restored = RestoredFrom.PERIODIC_CHECKPOINT
        revision = incident.revision
        incident = changed(incident, incarnation=number, restored_from=restored, ready=False, named=False)
        incident = changed(incident, lost_ranks=(), restart_ranks=(), replaced_nodes=())
    attempt = state.attempt + 1
    state = changed(
        state,
        incident=incident,
        incarnation=number,
        attempt=attempt,
        base=number,
        renewed={},
        pods={},
        shrunk=None,
        problem="",
    )
    state, cleared = clear_deadlines(state, Deadline.RECOVERY, Deadline.EXPAND, Deadline.COORDINATOR)
    at = moment.now_ms + 1000 * moment.policy.startup_deadline_seconds
    state, deadline = set_deadline(state, Deadline.STARTUP, at)
    if attempt > 1:
        out += [effects.SendOrder(Command.STOP, number - 1, revision), *cleared, deadline]
        out += [effects.DeleteAllPods(below=number), effects.DeleteCoordinator(below=number)]
    else:
        out += [*cleared, deadline]
    out += [effects.CreateAllPods(attempt, number, avoid), effects.CreateCoordinator(number)]
    out.append(effects.SendOrder(Command.START, number, revision))
    return state, tuple(out)


# ---------------------------------------------------------------------- milestones of a recovery


def milestone(name: str, **changes: object) -> Callable[[Moment], StepResult]:
    """Note a milestone in the incident."""
    return partial(_milestone, name, changes)


def _milestone(name: str, changes: dict[str, object], moment: Moment) -> StepResult:
    incident = moment.incident
    if incident is None:
        return moment.state, ()
    return changed(moment.state, incident=_mark(incident, name, moment.now_ms, **changes)), ()


def gathered(moment: Moment) -> StepResult:
    """Every replacement stands at its gate: from here on the action's own deadline counts."""
    state, _ = milestone("ReplacementsReady", ready=True)(moment)
    assert state.incident is not None
    rung = moment.policy.rungs[state.incident.action]
    state, deadline = set_deadline(state, Deadline.RECOVERY, moment.now_ms + 1000 * rung.deadline_seconds)
    return state, (deadline,)


def widen_by_mindio(moment: Moment) -> StepResult:
    """MindIO found more ranks dead: their processes are made anew, too."""
    incident = moment.incident
    assert incident is not None
    more = unknown_ranks(moment)
    lost = tuple(sorted({*incident.lost_ranks, *more}))
    action = Action.IN_PLACE if incident.action is Action.RETRY else incident.action
    restart = tuple(
        sorted({*incident.restart_ranks, *(incident.lost_ranks if action is not incident.action else ()), *more})
    )
    state = renew(moment, moment.state, restart, (), incident.incarnation)
    gone = (incident.action,) if action is not incident.action else ()
    incident = changed(
        _mark(incident, "Stopped", moment.now_ms, stopped=True, ready=False),
        action=action,
        escalated_from=(*incident.escalated_from, *gone),
        lost_ranks=lost,
        restart_ranks=restart,
        revision=incident.revision + 1,
    )
    reason = f"MindIO names ranks {list(more)} as well"
    wait = moment.policy.rungs[action].deadline_seconds
    widen = effects.WidenIncident(incident.number, reason)
    return changed(state, incident=incident), (order(incident, COMMAND[action], wait), widen)


def finished(moment: Moment) -> int:
    """The step that ended the outage; one that is not known leaves what was known."""
    told = moment.event.step if isinstance(moment.event, events.Resumed) else -1
    return told if told >= 0 else moment.state.step


def resumed(moment: Moment) -> StepResult:
    """The first step after the outage has ended; MindIO's result is still to come."""
    state, _ = milestone("Resumed")(moment)
    state = changed(state, step=finished(moment), resumed_ms=moment.now_ms)
    state, deadline = set_deadline(state, Deadline.RECOVERY, moment.now_ms + 1000 * CONFIRM_SECONDS)
    return state, (deadline,)


def recovered(moment: Moment) -> StepResult:
    """The incident is over."""
    state = moment.state
    if isinstance(moment.event, events.Resumed):
        state = changed(state, step=finished(moment), resumed_ms=moment.now_ms)
    state, cleared = clear_deadlines(state, Deadline.RECOVERY, Deadline.STARTUP)
    state, closing = close(state, Outcome.RECOVERED)
    return state, (*cleared, *closing)


def nothing(_moment: Moment) -> StepResult:
    """Change nothing."""
    return _moment.state, ()
