"""What the rows of the table do: new state and effects, one short function for each.

Order of effects matters: what is repeatable and urgent (orders) comes first, what is irreversible last, because the
shell writes the status in between.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from hajob.domain.actions import Action, Command
from hajob.domain.facts import Origin
from hajob.domain.incidents import Incident, Outcome, RestoredFrom
from hajob.domain.loss import copy_survives
from hajob.domain.records import changed, draft, redone
from hajob.plan import effects, events
from hajob.plan.books import clear_deadlines, close, enter, going_on, marked, renew, set_deadline
from hajob.plan.effects import Effect
from hajob.plan.guards import unknown_ranks
from hajob.plan.moment import Moment, StepResult
from hajob.plan.policy import CONFIRM_SECONDS
from hajob.plan.state import Deadline, JobState, Shrunk

COMMAND: Final[dict[Action, Command]] = {action: Command(action) for action in Action if action is not Action.RESTART}
"""What the coordinator is told for an action; a restart is carried out by stopping and starting."""
_RETRY, _REPLACE, _RECOVERY = Action.RETRY, Action.REPLACE, Deadline.RECOVERY  # a look into an enum costs a call
SHRINK_PARAMETERS: Final = '{"scale-in-strategy":"DP"}'
EXPAND_PARAMETERS: Final = '{"scale-out-strategy":"DP"}'


# ---------------------------------------------------------------------- the actions


def begin_process(action: Action) -> Callable[[Moment], StepResult]:
    """Retry, InPlace and Replace: hold the training, make what is lost anew, tell MindIO once all are there."""
    return partial(_begin_process, action)


def _begin_process(action: Action, moment: Moment) -> StepResult:
    before = going_on(moment)
    lost, restart, nodes, fresh = _extent(moment, before, action)
    more: dict[str, Any] = {"ready": False, "restored_from": _source(moment, lost)}
    if before is not None and not set(fresh).isdisjoint(before.replaced_nodes):
        more["incarnation"] = max(moment.state.incarnation, before.incarnation) + 1
    fields, incident, out = enter(moment, action, lost_ranks=lost, restart_ranks=restart, replaced_nodes=nodes, **more)
    wait = moment.policy.replacement_timeout_seconds if nodes else moment.policy.rungs[action].deadline_seconds
    at_ms = moment.now_ms + 1000 * wait
    renew(moment, fields, restart, fresh, incident.incarnation)
    fields["incident"] = incident
    fields["deadlines"] = {**fields["deadlines"], _RECOVERY: at_ms}
    out += (order(incident, COMMAND[action], wait), effects.SetDeadline(_RECOVERY, at_ms))
    if fresh:
        out.append(effects.ReplacePods(fresh, incident.incarnation, names_to_avoid(moment, fresh)))
    return moment.state_of(fields), tuple(out)


def _extent(moment: Moment, incident: Incident | None, action: Action) -> tuple[tuple[int, ...], ...]:
    """Lost ranks, processes to be restarted, nodes to be replaced, and of these the ones to be made now."""
    loss, layout = moment.loss, moment.view.layout
    assert loss is not None
    if action is _RETRY:
        return loss.ranks, (), (), ()
    nodes = loss.nodes
    begun, replaced = (incident.restart_ranks, incident.replaced_nodes) if incident else ((), ())
    if action is _REPLACE and not nodes and loss.continues is not _REPLACE:
        nodes = layout.nodes_of(loss.ranks)
    if not nodes and not begun:
        return loss.ranks, loss.ranks, (), ()
    fresh = tuple([node for node in nodes if node in loss.newly or node not in replaced])
    in_new_pods = {rank for node in nodes for rank in layout.ranks_of(node)}
    if not begun and not replaced and in_new_pods.issuperset(loss.ranks):
        return tuple(sorted(in_new_pods)), (), nodes, fresh
    in_fresh_pods = {rank for node in fresh for rank in layout.ranks_of(node)}
    restart = ({*loss.ranks} - in_new_pods) | ({*begun, *moment.fact_ranks()} - in_fresh_pods)
    return tuple(sorted({*loss.ranks, *in_new_pods})), tuple(sorted(restart)), nodes, fresh


def names_to_avoid(moment: Moment, nodes: tuple[int, ...]) -> tuple[str, ...]:
    """Names of the nodes that these pods are to keep away from."""
    names = moment.view.node_names
    return tuple(sorted({name for node in nodes if (name := names.get(node))}))


def _source(moment: Moment, lost: tuple[int, ...]) -> RestoredFrom:
    """Where the state of these lost ranks will come from: with no complete copy every rank loads a checkpoint."""
    corrupted = (
        moment.loss.corrupted if moment.loss is not None else bool(moment.incident and moment.incident.corrupted)
    )
    judge = moment.judge
    if judge is not None and judge.loss.ranks == lost:
        sound = judge.copy and not corrupted  # asked by the ladder already
    else:
        sound = copy_survives(moment.view.layout, lost) and not corrupted
    return RestoredFrom.OPTIMIZER_COPY if sound else RestoredFrom.PERIODIC_CHECKPOINT


def order(incident: Incident, command: Command, timeout_seconds: int, parameters: str = "") -> effects.SendOrder:
    """The order that says where the incident stands now."""
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


def begin_shrink(moment: Moment) -> StepResult:
    """Tell MindIO to drop the data-parallel ranks of the lost pods."""
    judge = moment.judge
    assert judge is not None
    isolation, layout = judge.isolation, moment.view.layout
    nodes = layout.nodes_of(judge.loss.ranks)
    fields, incident, out = enter(
        moment,
        Action.SHRINK,
        lost_ranks=tuple(rank for node in nodes for rank in layout.ranks_of(node)),
        restart_ranks=(),
        replaced_nodes=(),
        ready=False,
        restored_from=RestoredFrom.OPTIMIZER_COPY,
    )
    shrunk = Shrunk(isolation.dropped, isolation.ranks, isolation.nodes, nodes, moment.now_ms)
    wait = moment.policy.rungs[Action.SHRINK].deadline_seconds
    state = redone(moment.state, {**fields, "incident": incident, "shrunk": shrunk})
    state, deadline = set_deadline(state, Deadline.RECOVERY, moment.now_ms + 1000 * wait)
    return state, (*out, order(incident, Command.SHRINK, wait, SHRINK_PARAMETERS), deadline)


def begin_checkpoint(moment: Moment) -> StepResult:
    """Have MindIO save the step where the training stands."""
    loss = moment.loss
    assert loss is not None
    fields, incident, out = enter(moment, Action.CHECKPOINT, lost_ranks=loss.ranks, restart_ranks=(), replaced_nodes=())
    return save(moment, redone(moment.state, fields), incident, out)


def save(moment: Moment, state: JobState, incident: Incident, out: list[Effect]) -> StepResult:
    """Order the checkpoint and watch its deadline."""
    wait = moment.policy.rungs[Action.CHECKPOINT].deadline_seconds
    state = changed(state, incident=incident)
    state, cleared = clear_deadlines(state, Deadline.EXPAND)
    state, deadline = set_deadline(state, Deadline.RECOVERY, moment.now_ms + 1000 * wait)
    return state, (*out, order(incident, Command.CHECKPOINT, wait), *cleared, deadline)


def begin_restart(moment: Moment) -> StepResult:
    """End every process and start the job anew."""
    fields, incident, out = enter(moment, Action.RESTART)
    fields["restarts_program" if incident.origin is Origin.PROGRAM else "restarts_infrastructure"] += 1
    return launch(moment, redone(moment.state, fields), incident, out)


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
    if incident is not None:
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
        problem=state.problem if incident else "",
    )
    state, cleared = clear_deadlines(state, Deadline.RECOVERY, Deadline.EXPAND, Deadline.COORDINATOR)
    at = moment.now_ms + 1000 * moment.policy.startup_deadline_seconds
    state, deadline = set_deadline(state, Deadline.STARTUP, at)
    if attempt > 1:
        out += [effects.SendOrder(Command.STOP, number - 1, revision), *cleared, deadline]
        out += [effects.DeleteAllPods(below=number), effects.DeleteCoordinator(below=number)]
    else:
        out += [*cleared, deadline]
    out += [effects.CreateAllPods(attempt, number), effects.CreateCoordinator(number)]
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
    fields = draft(moment.state)
    fields["incident"] = marked(incident, name, moment.now_ms, **changes)
    return moment.state_of(fields), ()


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
    fields = draft(moment.state)
    renew(moment, fields, restart, (), incident.incarnation)
    gone = (incident.action,) if action is not incident.action else ()
    incident = changed(
        marked(incident, "Stopped", moment.now_ms, stopped=True, ready=False),
        action=action,
        escalated_from=(*incident.escalated_from, *gone),
        lost_ranks=lost,
        restart_ranks=restart,
        restored_from=_source(moment, lost),
        revision=incident.revision + 1,
    )
    reason = f"MindIO names ranks {list(more)} as well"
    wait = moment.policy.rungs[action].deadline_seconds
    widen = effects.WidenIncident(incident.number, reason)
    fields["incident"] = incident
    return redone(moment.state, fields), (order(incident, COMMAND[action], wait), widen)


def finished(moment: Moment) -> int:
    """The step that ended the outage; one that is not known leaves what was known."""
    assert isinstance(moment.event, events.Resumed)
    return moment.event.step if moment.event.step >= 0 else moment.state.step


def resumed(moment: Moment) -> StepResult:
    """The first step after the outage has ended; MindIO's result is still to come."""
    fields, at_ms = draft(moment.state), moment.now_ms + 1000 * CONFIRM_SECONDS
    if moment.incident is not None:
        fields["incident"] = marked(moment.incident, "Resumed", moment.now_ms)
    fields["step"], fields["resumed_ms"] = finished(moment), moment.now_ms
    fields["deadlines"] = {**fields["deadlines"], _RECOVERY: at_ms}
    return moment.state_of(fields), (effects.SetDeadline(_RECOVERY, at_ms),)


def recovered(moment: Moment) -> StepResult:
    """The incident is over."""
    state = moment.state
    if isinstance(moment.event, events.Resumed):
        state = changed(state, step=finished(moment), resumed_ms=moment.now_ms)
    if state.problem:
        state = changed(state, problem="")
    state, cleared = clear_deadlines(state, Deadline.RECOVERY, Deadline.STARTUP)
    state, closing = close(state, Outcome.RECOVERED)
    return state, (*cleared, *closing)


def nothing(_moment: Moment) -> StepResult:
    """Change nothing."""
    return _moment.state, ()
