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
from trainer_sidecar.coordinator.watch import checkpoints, first_step, training_end

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
    incident = job.incidents.open_incident(incarnation, job.now, planned=planned, ordered=ordered, first=first)
    job.effects.note_change(changed=incident is not before or (incident.joined, incident.planned) != was)
    return incident


def _ordered_number(job: Job) -> int:
    """The operator may have decided about a fault before MindIO could be told of it."""
    order = job.order
    waits = order is not None and order.incarnation > job.incidents.concluded and order.action in FAULT_ACTIONS
    return order.incarnation if waits and order is not None else 0


def report_lost_ranks(job: Job, ranks: Iterable[int]) -> None:
    """Tell MindIO of ranks that are dead or given up.

    MindIO is told of registered ranks only, because it refuses a call that names a rank it does not know. A rank that
    was left out and dies on its way back is not told: the others train on without it.
    """
    missed = job.roster.registered - (job.roster.dropped if job.conversation.state is State.SHRUNK else set())
    lost = {rank: 1 for rank in ranks if rank in missed}
    if job.contacts.doubts:
        job.conversation.miss_ranks(lost)  # those who are not heard would not be stopped
    elif lost:
        carry_out_commands(job, job.conversation.lose_ranks(lost, job.now), job.now)


def feed_conversation(job: Job, event: MindIOEvent, at: float) -> None:
    """Take in an event of the conversation that happened at `at`: MindIO's waits count from then."""
    carry_out_commands(job, job.conversation.feed_event(event, at), at)


def note_finished_rank(job: Job, rank: int) -> None:
    """Note that a rank has ended in order: none will train another step."""
    job.attempt.note_finished_rank(rank, job.now)
    follow_training_end(job)


def follow_training_end(job: Job) -> None:
    """Note that the last step has ended on every rank; the conversation is over then, once it has come to rest."""
    attempt = job.attempt
    if not job.is_running:
        return
    if attempt.over_since is None and training_end.are_at_the_last_step(job):
        attempt.note_last_step_over(job.now)
        job.effects.note_change(urgent=True)
    if attempt.over_since is not None and job.conversation.state in MAY_END:
        feed_conversation(job, MindIOEvent(EventKind.FINISH), job.now)


def carry_out_commands(job: Job, commands: list[Command], at: float) -> None:
    """Execute the conversation's commands, in order."""
    for command in commands:
        _carry_out_command(command, job, at)
    job.effects.note_change(changed=bool(commands))


@singledispatch
def _carry_out_command(command: object, _job: Job, _at: float) -> None:
    raise TypeError(f"no way to carry out {command!r}")


@_carry_out_command.register
def _call_controller_host(command: HostCall, job: Job, _at: float) -> None:
    arguments = dict(command.arguments)
    if command.name in OPENING_CALLS:  # the number is for the host's log only
        arguments["incarnation"] = _opened_by(job, command).incarnation
    if job.setup.is_followed and command.name == "change_strategy":
        arguments["in_place"] = _ranks_for_taskd(job)
    incident = job.incidents.current
    job.effects.request_call(command.name, arguments, incident.highest_number if incident is not None else 0)


def _ranks_for_taskd(job: Job) -> list[int]:
    """Return the named ranks that TaskD's agents start again in their pods; those of new pods come with them."""
    order, named = job.order, job.conversation.memory.named
    return sorted(named.keys() & set(order.restart_ranks)) if order is not None else []


def _opened_by(job: Job, command: HostCall) -> OpenIncident:
    """The incident of a call that begins one. Who was left out is left out again under the number of the order."""
    if job.change.smaller and job.order is not None and job.order.action in resize.SIZES:
        return open_incident(job, job.order.incarnation, planned=True)
    return open_incident(job, planned=command.name in PLANNED_CALLS)


@_carry_out_command.register
def _admit_ranks(command: Admit, job: Job, _at: float) -> None:
    roster = job.roster
    for rank in command.ranks:
        if resize.is_awaited_by_growth(job, rank):
            continue  # its predecessor was named; it is let in when growing is asked for
        for target in (roster.targets.get(rank), roster.spares.get(rank)):
            if target is not None and target.admit_process():
                job.effects.touch_pods(target.pod_uid)


@_carry_out_command.register
def _report_found_ranks(command: Found, job: Job, at: float) -> None:
    incident = open_incident(job)
    for rank, kind in command.ranks.items():
        line = job.roster.error_line_of(rank)
        text = f"{command.text}: {line}" if line else command.text
        fact = job.new_fact(FOUND_KINDS.get(kind, pb.PROCESS_FAULT), f"{rank}", text)
        fact.node_rank = job.roster.node_rank_of(rank)
        fact.ranks.append(rank)
        fact.incarnation = incident.incarnation
        fact.code = command.codes.get(rank, "")
        fact.unexplained = fact.kind == pb.PROCESS_FAULT and not line
        job.effects.queue_fact(fact, at)


@_carry_out_command.register
def _end_ranks(command: EndRanks, job: Job, _at: float) -> None:
    ranks = job.roster.targets.keys() if command.ranks is None else command.ranks
    for rank in ranks:
        target = job.roster.targets.get(rank)
        if target is not None and not resize.is_awaited_by_growth(job, rank) and target.end_process():
            job.touch_pod_of(rank)


@_carry_out_command.register
def _report_lost_protection(command: Left, job: Job, at: float) -> None:
    """The ranks are without protection from here on; a planned action that it ends is over."""
    log.error("%s", command.text)
    job.tell_controller_lost(command.text, at)
    if job.incidents.current is not None and job.incidents.current.planned:
        conclude_incident(job)


@_carry_out_command.register
def _log_unexpected_event(command: Unexpected, _job: Job, _at: float) -> None:
    log.warning("nobody expects this of MindIO in %s (number %d): %s", command.state, command.number, command.event)


@_carry_out_command.register
def _mark_milestone(command: TellMilestone, job: Job, at: float) -> None:
    event = command.event
    if command.kind == pb.RESULT and event.kind in FAILED:
        _open_next_incident(job)
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
            _apply_result(job, event)
        return
    if command.kind == pb.STRATEGY_SENT:
        milestone.strategy = job.conversation.memory.strategy
        _note_sent_strategy(job, at)
    if command.kind == pb.RESULT and event.kind is EventKind.SUCCESS and event.strategy == "dump":
        checkpoints.look_for_reported_save(job, milestone, at)
    else:
        job.mark_milestone(command.kind, at, milestone)
    if command.kind == pb.RESULT:
        _apply_result(job, event)


def _open_next_incident(job: Job) -> None:
    """A success that does not come ends the incident: the operator has ordered something under the next number."""
    incident, order = job.incidents.current, job.order
    if incident is None or order is None or order.action not in FAULT_ACTIONS:
        return
    if order.incarnation > incident.highest_number:
        conclude_incident(job)
        open_incident(job, order.incarnation)


def _note_sent_strategy(job: Job, at: float) -> None:
    """Every step finished before the outage has been told of by now, unless a save follows the fault at once."""
    incident, saves = job.incidents.current, job.conversation.memory.strategy == "dump"
    if saves:  # be it after a repair that has failed
        job.checkpoints.note_step_before_save()
    if incident is None or incident.strategy_sent is not None:
        return
    incident.note_sent_strategy(at)
    if saves:
        job.ending.gather_before_save(job.steps, job.now, job.roster.number_in_training, incident)
        return
    if (common := job.steps.roll_back_to_common()) is not None:
        job.mark_milestone(pb.STEP_BEFORE, common[1], pb.Milestone(step=common[0]))


def _apply_result(job: Job, event: MindIOEvent) -> None:
    if event.kind is EventKind.ISOLATED or (event.strategy == "downgrade" and event.ranks):
        job.roster.leave_out_ranks(event.ranks)
        job.steps.leave_out_ranks(event.ranks)
    if event.kind is EventKind.SUCCESS:
        if event.strategy == "upgrade":
            job.roster.leave_out_ranks(())
        migration.promote_second_processes(job)
        grows_on = resize.is_own_affair(job)
        job.change.note_left_out()
        if grows_on:
            return
        conclude_incident(job, unresumed=event.strategy in REPAIRS)
    elif event.kind is not EventKind.ISOLATED and job.conversation.state is State.SERVING:  # a pause that failed
        conclude_incident(job)


def conclude_incident(job: Job, *, unresumed: bool = False) -> None:
    """Close the incident; orders that belong to it count as carried out."""
    job.incidents.conclude_incident(unresumed=unresumed)
    job.effects.note_change()


def count_printed_step(job: Job, rank: int, step: int, at: float, *, relieved: bool = False) -> None:
    """Count a step that a rank has printed; the first one after the strategy ends the outage.

    Args:
        job: changed.
        rank: that has printed it.
        step: its number.
        at: when, in seconds of the coordinator's clock.
        relieved: a second process is to take the place of the one that has printed it: a line of its last step, read
            late, is no step of the second one.
    """
    if job.ending.note_printed_step(rank, step, at):
        return
    if _is_being_repaired(job, at) and step <= job.steps.newest:
        if job.steps.is_repeated_step(step):
            return
        job.steps.reset_to_checkpoint(step - 1)  # every rank has loaded a checkpoint
    job.steps.note_printed_step(rank, step, at, job.num_telling)
    first_step.follow_first_step(job)
    if not relieved:
        _end_outage(job, rank, step, at)


def count_heartbeat_step(job: Job, rank: int, step: int, at: float, *, relieved: bool = False) -> None:
    """Count a step that a rank's heartbeat tells; only one that nobody has reached before ends an outage.

    Args:
        job: changed.
        rank: whose heartbeat it is.
        step: that it tells.
        at: when, in seconds of the coordinator's clock.
        relieved: as of `count_printed_step`.
    """
    if job.ending.note_heartbeat_step(rank, step, at):
        return
    before = job.steps.told_by_heartbeat(rank)
    if _is_being_repaired(job, at) and before is not None and step < before:
        job.steps.reset_to_checkpoint(step)  # every rank has loaded a checkpoint
    is_new = step > job.steps.reached or (_is_rank_awaited(job, rank) and before is not None and step > before)
    job.steps.note_heartbeat_step(rank, step, at, job.num_telling)
    first_step.follow_first_step(job)
    if is_new and not relieved:
        _end_outage(job, rank, step, at)


def _is_rank_awaited(job: Job, rank: int) -> bool:
    """Whether the others train already and the outage is this rank's."""
    conversation = job.conversation
    return conversation.state in LETTING_IN and rank in conversation.memory.named


def _is_being_repaired(job: Job, at: float) -> bool:
    repaired = job.incidents.current or job.incidents.unresumed
    return repaired is not None and not repaired.resumed and repaired.is_after_strategy(at)


def _end_outage(job: Job, rank: int, step: int, at: float) -> None:
    incident, unresumed, state = job.incidents.current, job.incidents.unresumed, job.conversation.state
    if incident is None and unresumed is not None and unresumed.is_after_strategy(at):
        job.incidents.note_late_resumption()
        job.mark_milestone_of(unresumed, pb.RESUMED, at, pb.Milestone(step=step))
    if incident is None or incident.resumed or not incident.is_after_strategy(at) or state is State.SAVING:
        return
    if state in LETTING_IN and not _is_rank_awaited(job, rank):
        return
    incident.note_resumed()
    if state is State.MIGRATING:
        migration.promote_second_processes(job)
    job.mark_milestone(pb.RESUMED, at, pb.Milestone(step=step))
    feed_conversation(job, MindIOEvent(EventKind.STEP), at)
