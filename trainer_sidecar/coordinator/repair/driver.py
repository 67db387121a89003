"""Executes the conversation's commands, and opens and closes incidents.

Whatever acts first opens an incident: the reflex, MindIO itself, or the operator's order. The reflex takes the next
number; the operator adopts it with its order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import singledispatch

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.conversation import (
    COMMUNICATION_FAULT,
    MEMORY_FAULT,
    PROCESS_FAULT,
    Admit,
    Command,
    EndRanks,
    EventKind,
    Found,
    HostCall,
    Left,
    MindIOEvent,
    TellMilestone,
    Unexpected,
)
from trainer_sidecar.coordinator.conversation.states import State
from trainer_sidecar.coordinator.repair import migration, resize
from trainer_sidecar.coordinator.state.incidents import OpenIncident
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.watch import first_step, saving, training_end

log = logging.getLogger(__name__)

FOUND_KINDS = {
    MEMORY_FAULT: pb.MEMORY_FAULT,
    PROCESS_FAULT: pb.PROCESS_FAULT,
    COMMUNICATION_FAULT: pb.COMMUNICATION_FAULT,
}
FAULT_ACTIONS = frozenset({pb.RETRY, pb.IN_PLACE, pb.REPLACE, pb.SHRINK, pb.CHECKPOINT})
PLANNED_CALLS = frozenset({"pause", "prepare_action"})
REPAIRS = frozenset({"retry", "recover"})
LETTING_IN = frozenset({State.EXPANDING, State.MIGRATING})
"""The others train while ranks are let in."""
MAY_END = frozenset({State.SERVING, State.SHRUNK})
FAILED = frozenset({EventKind.OPEN_FAILURE, EventKind.FAILURE})
OPENING_CALLS = frozenset({"stop_train", "dump", "pause", "prepare_action"})


def open_incident(job: Job, incarnation: int = 0, *, planned: bool = False) -> OpenIncident:
    """Return the open incident, or open one; `incarnation`: that of its order, 0 when there is none yet.

    An order is applied again with every event of its incident, so only a change is news for the operator.
    """
    order, ordered = job.order, _ordered_number(job)
    first = order.incident if order is not None and order.incarnation == (incarnation or ordered) else 0
    before = job.incidents.current
    was = (before.joined, before.planned) if before is not None else None
    incident = job.incidents.open(incarnation, job.now, planned=planned, ordered=ordered, first=first)
    job.effects.note(changed=incident is not before or (incident.joined, incident.planned) != was)
    return incident


def _ordered_number(job: Job) -> int:
    """The operator may have decided about a fault before MindIO could be told of it."""
    order = job.order
    waits = order is not None and order.incarnation > job.incidents.concluded and order.action in FAULT_ACTIONS
    return order.incarnation if waits and order is not None else 0


def lose(job: Job, ranks: Iterable[int]) -> None:
    """Tell MindIO of ranks that are dead or given up.

    MindIO is told of registered ranks only, because it refuses a call that names a rank it does not know. A rank that
    was left out and dies on its way back is not told: the others train on without it.
    """
    missed = job.roster.registered - (job.roster.dropped if job.conversation.state is State.SHRUNK else set())
    lost = {rank: 1 for rank in ranks if rank in missed}
    if job.contacts.doubts:
        job.conversation.miss(lost)  # those who are not heard would not be stopped
    elif lost:
        carry_out(job, job.conversation.lose(lost, job.now), job.now)


def feed(job: Job, event: MindIOEvent, at: float) -> None:
    """Take in an event of the conversation that happened at `at`: MindIO's waits count from then."""
    carry_out(job, job.conversation.feed(event, at), at)


def rank_finished(job: Job, rank: int) -> None:
    """Note that a rank has ended in order: none will train another step."""
    job.attempt.finish(rank, job.now)
    follow_the_end(job)


def follow_the_end(job: Job) -> None:
    """Note that the last step has ended on every rank; the conversation is over then, once it has come to rest."""
    attempt = job.attempt
    if not job.runs:
        return
    if attempt.over_since is None and training_end.are_at_the_last_step(job):
        attempt.steps_are_over(job.now)
        job.effects.note(urgent=True)
    if attempt.over_since is not None and job.conversation.state in MAY_END:
        feed(job, MindIOEvent(EventKind.FINISH), job.now)


def carry_out(job: Job, commands: list[Command], at: float) -> None:
    """Execute the conversation's commands, in order."""
    for command in commands:
        _do(command, job, at)
    job.effects.note(changed=bool(commands))


@singledispatch
def _do(command: object, _job: Job, _at: float) -> None:
    raise TypeError(f"no way to carry out {command!r}")


@_do.register
def _call(command: HostCall, job: Job, _at: float) -> None:
    arguments = dict(command.arguments)
    if command.name in OPENING_CALLS:  # the number is for the host's log only
        arguments["incarnation"] = _opened_by(job, command).incarnation
    incident = job.incidents.current
    job.effects.request(command.name, arguments, incident.highest if incident is not None else 0)


def _opened_by(job: Job, command: HostCall) -> OpenIncident:
    """The incident of a call that begins one. Who was left out is left out again under the number of the order."""
    if job.change.smaller and job.order is not None and job.order.action in resize.SIZES:
        return open_incident(job, job.order.incarnation, planned=True)
    return open_incident(job, planned=command.name in PLANNED_CALLS)


@_do.register
def _admit(command: Admit, job: Job, _at: float) -> None:
    roster = job.roster
    for rank in command.ranks:
        if resize.comes_back(job, rank):
            continue  # its predecessor was named; it is let in when growing is asked for
        for target in (roster.targets.get(rank), roster.spares.get(rank)):
            if target is not None and target.admit():
                job.effects.touch(target.pod_uid)


@_do.register
def _found(command: Found, job: Job, at: float) -> None:
    incident = open_incident(job)
    for rank, kind in command.ranks.items():
        line = job.roster.error_line(rank)
        text = f"{command.text}: {line}" if line else command.text
        fact = job.new_fact(FOUND_KINDS.get(kind, pb.PROCESS_FAULT), f"{rank}", text)
        fact.node_rank = job.roster.node_of(rank)
        fact.ranks.append(rank)
        fact.incarnation = incident.incarnation
        fact.code = command.codes.get(rank, "")
        fact.unexplained = fact.kind == pb.PROCESS_FAULT and not line
        job.effects.tell(fact, at)


@_do.register
def _end(command: EndRanks, job: Job, _at: float) -> None:
    ranks = job.roster.targets.keys() if command.ranks is None else command.ranks
    for rank in ranks:
        target = job.roster.targets.get(rank)
        if target is not None and not resize.comes_back(job, rank) and target.end():
            job.touch(rank)


@_do.register
def _left(command: Left, job: Job, at: float) -> None:
    """The ranks are without protection from here on; a planned action that it ends is over."""
    log.error("%s", command.text)
    job.tell_controller_lost(command.text, at)
    if job.incidents.current is not None and job.incidents.current.planned:
        conclude(job)


@_do.register
def _unexpected(command: Unexpected, _job: Job, _at: float) -> None:
    log.warning("nobody expects this of MindIO in %s (number %d): %s", command.state, command.number, command.event)


@_do.register
def _mark(command: TellMilestone, job: Job, at: float) -> None:
    event = command.event
    if command.kind == pb.RESULT and event.kind in FAILED:
        _go_over_to_the_next(job)
    milestone = pb.Milestone(
        step=job.steps.newest,
        strategies=event.strategies,
        result_code=event.code,
        text=event.text,
        strategy=event.strategy,
        ranks=sorted(event.ranks),
    )
    if resize.is_own_affair(job) and event.kind not in FAILED:
        if command.kind == pb.RESULT:
            _result(job, event)
        return
    if command.kind == pb.STRATEGY_SENT:
        milestone.strategy = job.conversation.memory.strategy
        _strategy_sent(job, at)
    if command.kind == pb.RESULT and event.kind is EventKind.SUCCESS and event.strategy == "dump":
        saving.reported(job, milestone, at)
    else:
        job.mark(command.kind, at, milestone)
    if command.kind == pb.RESULT:
        _result(job, event)


def _go_over_to_the_next(job: Job) -> None:
    """A success that does not come ends the incident: the operator has ordered something under the next number."""
    incident, order = job.incidents.current, job.order
    if incident is None or order is None or order.action not in FAULT_ACTIONS:
        return
    if order.incarnation > incident.highest:
        conclude(job)
        open_incident(job, order.incarnation)


def _strategy_sent(job: Job, at: float) -> None:
    """Every step finished before the outage has been told of by now, unless a save follows the fault at once."""
    incident = job.incidents.current
    if incident is None or incident.strategy_sent is not None:
        return
    incident.strategy_was_sent(at)
    if job.conversation.memory.strategy == "dump":
        job.checkpoints.begin_save()
        job.ending.save(job.steps, job.now, job.roster.num_training, incident)
        return
    if (common := job.steps.roll_back()) is not None:
        job.mark(pb.STEP_BEFORE, common[1], pb.Milestone(step=common[0]))


def _result(job: Job, event: MindIOEvent) -> None:
    if event.kind is EventKind.ISOLATED or (event.strategy == "downgrade" and event.ranks):
        job.roster.leave_out(event.ranks)
        job.steps.leave_out(event.ranks)
    if event.kind is EventKind.SUCCESS:
        if event.strategy == "upgrade":
            job.roster.leave_out(())
        migration.take_over(job)
        grows_on = resize.is_own_affair(job)
        job.change.has_left_out()
        if grows_on:
            return
        conclude(job, unresumed=event.strategy in REPAIRS)
    elif event.kind is not EventKind.ISOLATED and job.conversation.state is State.SERVING:  # a pause that failed
        conclude(job)


def conclude(job: Job, *, unresumed: bool = False) -> None:
    """Close the incident; orders that belong to it count as carried out."""
    job.incidents.conclude(unresumed=unresumed)
    job.effects.note()


def step_finished(job: Job, rank: int, step: int, at: float, *, relieved: bool = False) -> None:
    """Count a step that a rank has printed; the first one after the strategy ends the outage.

    Args:
        job: changed.
        rank: that has printed it.
        step: its number.
        at: when, in seconds of the coordinator's clock.
        relieved: a second process is to take the place of the one that has printed it: a line of its last step, read
            late, is no step of the second one.
    """
    if job.ending.finished(rank, step, at):
        return
    if _is_being_repaired(job, at) and step <= job.steps.newest:
        if job.steps.is_repeated(step):
            return
        job.steps.go_back(step - 1)  # every rank has loaded a checkpoint
    job.steps.finished(rank, step, at, job.num_telling)
    first_step.follow(job)
    if not relieved:
        _end_outage(job, rank, step, at)


def heartbeat_told(job: Job, rank: int, step: int, at: float, *, relieved: bool = False) -> None:
    """Count a step that a rank's heartbeat tells; only one that nobody has reached before ends an outage.

    Args:
        job: changed.
        rank: whose heartbeat it is.
        step: that it tells.
        at: when, in seconds of the coordinator's clock.
        relieved: as of `step_finished`.
    """
    if job.ending.heartbeat(rank, step, at):
        return
    before = job.steps.told_by_heartbeat(rank)
    if _is_being_repaired(job, at) and before is not None and step < before:
        job.steps.go_back(step)  # every rank has loaded a checkpoint
    is_new = step > job.steps.reached or (_is_awaited(job, rank) and before is not None and step > before)
    job.steps.heartbeat(rank, step, at, job.num_telling)
    first_step.follow(job)
    if is_new and not relieved:
        _end_outage(job, rank, step, at)


def _is_awaited(job: Job, rank: int) -> bool:
    """Whether the others train already and the outage is this rank's."""
    conversation = job.conversation
    return conversation.state in LETTING_IN and rank in conversation.memory.named


def _is_being_repaired(job: Job, at: float) -> bool:
    repaired = job.incidents.current or job.incidents.unresumed
    return repaired is not None and not repaired.resumed and repaired.is_after(at)


def _end_outage(job: Job, rank: int, step: int, at: float) -> None:
    incident, unresumed, state = job.incidents.current, job.incidents.unresumed, job.conversation.state
    if incident is None and unresumed is not None and unresumed.is_after(at):
        job.incidents.late_resumed()
        job.mark_in(unresumed, pb.RESUMED, at, pb.Milestone(step=step))
    if incident is None or incident.resumed or not incident.is_after(at) or state is State.SAVING:
        return
    if state in LETTING_IN and not _is_awaited(job, rank):
        return
    incident.has_resumed()
    if state is State.MIGRATING:
        migration.take_over(job)
    job.mark(pb.RESUMED, at, pb.Milestone(step=step))
    feed(job, MindIOEvent(EventKind.STEP), at)
