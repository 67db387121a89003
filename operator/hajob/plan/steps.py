"""What the rows of the table do: new state and effects, one short function for each.

Order of effects matters: what is repeatable and urgent (orders) comes first, what is irreversible last, because the
shell writes the status in between.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from hajob.domain.actions import Action, Command
from hajob.domain.facts import Origin
from hajob.domain.incidents import Incident, Outcome, RestoredFrom
from hajob.domain.loss import copy_survives
from hajob.plan import effects, events
from hajob.plan.books import clear_deadlines, close, enter, going_on, marked, renew, set_deadline
from hajob.plan.effects import Effect
from hajob.plan.guards import unknown_ranks
from hajob.plan.moment import Moment, StepResult
from hajob.plan.policy import CONFIRM_SECONDS
from hajob.plan.state import Deadline, JobState, Shrunk

COMMAND: Final[dict[Action, Command]] = {action: Command(action) for action in Action if action is not Action.RESTART}
"""What the coordinator is told for an action; a restart is carried out by stopping and starting."""
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
    state, incident, out = enter(moment, action, lost_ranks=lost, restart_ranks=restart, replaced_nodes=nodes, **more)
    wait = moment.policy.replacement_timeout_seconds if nodes else moment.policy.rungs[action].deadline_seconds
    state = renew(state, moment.now_ms, incident.incarnation, restart, fresh)
    state = set_deadline(state, Deadline.RECOVERY, moment.now_ms + 1000 * wait)
    out.append(order(incident, COMMAND[action], wait))
    if fresh:
        out.append(effects.ReplacePods(fresh, incident.incarnation, names_to_avoid(moment, fresh)))
    return state, tuple(out)


def _extent(moment: Moment, incident: Incident | None, action: Action) -> tuple[tuple[int, ...], ...]:
    """Lost ranks, processes to be restarted, nodes to be replaced, and of these the ones to be made now."""
    loss, layout = moment.loss, moment.view.layout
    assert loss is not None
    if action is Action.RETRY:
        return loss.ranks, (), (), ()
    nodes = loss.nodes
    begun, replaced = (incident.restart_ranks, incident.replaced_nodes) if incident else ((), ())
    if action is Action.REPLACE and not nodes and loss.continues is not Action.REPLACE:
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
    state, incident, out = enter(
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
    state = set_deadline(replace(state, shrunk=shrunk), Deadline.RECOVERY, moment.now_ms + 1000 * wait)
    return state, (*out, order(incident, Command.SHRINK, wait, SHRINK_PARAMETERS))


def begin_checkpoint(moment: Moment) -> StepResult:
    """Have MindIO save the step where the training stands."""
    loss = moment.loss
    assert loss is not None
    state, incident, out = enter(moment, Action.CHECKPOINT, lost_ranks=loss.ranks, restart_ranks=(), replaced_nodes=())
    return save(moment, state, incident, out)


def save(moment: Moment, state: JobState, incident: Incident, out: list[Effect]) -> StepResult:
    """Order the checkpoint and watch its deadline."""
    wait = moment.policy.rungs[Action.CHECKPOINT].deadline_seconds
    state = clear_deadlines(replace(state, incident=incident), Deadline.EXPAND)
    state = set_deadline(state, Deadline.RECOVERY, moment.now_ms + 1000 * wait)
    return state, (*out, order(incident, Command.CHECKPOINT, wait))


def begin_restart(moment: Moment) -> StepResult:
    """End every process and start the job anew."""
    state, incident, out = enter(moment, Action.RESTART)
    if incident.origin is Origin.PROGRAM:
        state = replace(state, restarts_program=state.restarts_program + 1)
    else:
        state = replace(state, restarts_infrastructure=state.restarts_infrastructure + 1)
    return launch(moment, state, incident, out)


def restart_from_saved(moment: Moment) -> StepResult:
    """The checkpoint is complete: start anew from it."""
    assert moment.state.incident is not None
    saved = replace(moment.state.incident, restored_from=RestoredFrom.SAVED_CHECKPOINT)
    moment.state = replace(moment.state, incident=saved)
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
        incident = replace(incident, incarnation=number, restored_from=restored, ready=False, named=False)
        incident = replace(incident, lost_ranks=(), restart_ranks=(), replaced_nodes=())
    attempt = state.attempt + 1
    state = replace(
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
    state = clear_deadlines(state, Deadline.RECOVERY, Deadline.EXPAND, Deadline.COORDINATOR)
    at_ms = moment.now_ms + 1000 * moment.policy.startup_deadline_seconds
    state = set_deadline(state, Deadline.STARTUP, at_ms)
    if attempt > 1:
        out.append(effects.SendOrder(Command.STOP, number - 1, revision))
        out += [effects.DeleteAllPods(below=number), effects.DeleteCoordinator(below=number)]
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
    return replace(moment.state, incident=marked(incident, name, moment.now_ms, **changes)), ()


def gathered(moment: Moment) -> StepResult:
    """Every replacement stands at its gate: from here on the action's own deadline counts."""
    state, _ = milestone("ReplacementsReady", ready=True)(moment)
    assert state.incident is not None
    rung = moment.policy.rungs[state.incident.action]
    return set_deadline(state, Deadline.RECOVERY, moment.now_ms + 1000 * rung.deadline_seconds), ()


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
    state = renew(moment.state, moment.now_ms, incident.incarnation, restart)
    gone = (incident.action,) if action is not incident.action else ()
    incident = replace(
        marked(incident, "Stopped", moment.now_ms, stopped=True, ready=False),
        action=action,
        escalated_from=(*incident.escalated_from, *gone),
        lost_ranks=lost,
        restart_ranks=restart,
        restored_from=_source(moment, lost),
        revision=incident.revision + 1,
    )
    wait = moment.policy.rungs[action].deadline_seconds
    return replace(state, incident=incident), (order(incident, COMMAND[action], wait),)


def finished(moment: Moment) -> int:
    """The step that ended the outage; one that is not known leaves what was known."""
    assert isinstance(moment.event, events.Resumed)
    return moment.event.step if moment.event.step >= 0 else moment.state.step


def resumed(moment: Moment) -> StepResult:
    """The first step after the outage has ended; MindIO's result is still to come."""
    incident = marked(moment.incident, "Resumed", moment.now_ms) if moment.incident is not None else None
    state = replace(moment.state, incident=incident, step=finished(moment), resumed_ms=moment.now_ms)
    return set_deadline(state, Deadline.RECOVERY, moment.now_ms + 1000 * CONFIRM_SECONDS), ()


def recovered(moment: Moment) -> StepResult:
    """The incident is over."""
    state = moment.state
    if isinstance(moment.event, events.Resumed):
        state = replace(state, step=finished(moment), resumed_ms=moment.now_ms)
    state = clear_deadlines(replace(state, problem=""), Deadline.RECOVERY, Deadline.STARTUP)
    return close(state, Outcome.RECOVERED)


def nothing(_moment: Moment) -> StepResult:
    """Change nothing."""
    return _moment.state, ()
