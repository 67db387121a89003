"""Standing orders: what is done when a fault stays undecided because the operator stays away.

Only what needs nobody else: retry a memory fault, start dead processes again in their own pods. A lost pod is waited
for, because its replacement is made by the operator; when that has taken longer than the operator itself would wait,
the training is saved. What was decided and cannot be done any more (a retry that was refused, a repair that failed, a
strategy that is not offered) is undecided again.

While the operator is there the decision is its own. Only MindIO's patience counts then: before it ends the training is
saved (hajob.domain.patience).
"""

from __future__ import annotations

from hajob.domain.patience import SAVE_BEFORE_SECONDS
from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.conversation import PROCESS_FAULT
from trainer_sidecar.coordinator.conversation.states import NAMEABLE, UNDECIDED, State
from trainer_sidecar.coordinator.repair.orders import STRATEGIES
from trainer_sidecar.coordinator.state.incidents import OpenIncident
from trainer_sidecar.coordinator.state.job import Job


def standing_order(job: Job) -> pb.Order | None:
    """Return the order that the coordinator gives itself now.

    None while the operator has time, or while what it wants can still come.
    """
    incident, assignment = job.incidents.current, job.assignment
    if incident is None or assignment is None or job.conversation.state not in UNDECIDED:
        return None
    current, allowed = job.order, assignment.standing_orders
    if not _is_incident_decided(job, incident) and _is_patience_over(job, incident, allowed):
        action = _action_to_take(job, incident, allowed)
    else:
        action = pb.CHECKPOINT if _must_save_training(job, incident, allowed) else pb.ACTION_UNSPECIFIED
    if action == pb.ACTION_UNSPECIFIED:
        return None
    if current is not None and incident.standing == action and not _is_overtaken(job, incident, current):
        return None
    incident.note_standing_action(action)
    lost = sorted(job.conversation.memory.lost)
    restart = lost if action == pb.IN_PLACE else []
    revision = current.revision if current is not None and current.incarnation == incident.incarnation else 0
    number = max(incident.incarnation, current.incarnation if current is not None else 0)
    return pb.Order(incarnation=number, revision=revision, action=action, lost_ranks=lost, restart_ranks=restart)


def _is_incident_decided(job: Job, incident: OpenIncident) -> bool:
    """Whether the order in hand is about this incident, and MindIO may still be told what it wants."""
    current, conversation = job.order, job.conversation
    if current is None or current.incarnation < incident.incarnation:
        return False
    if conversation.state in NAMEABLE and _is_overtaken(job, incident, current):
        return False
    if conversation.state is State.RETRY_REFUSED:
        return current.action != pb.RETRY
    if conversation.state is State.FAILED_OPEN:
        return current.action == pb.CHECKPOINT
    return conversation.state is State.STOPPED or STRATEGIES.get(current.action) in conversation.memory.offered


def _is_overtaken(job: Job, incident: OpenIncident, current: pb.Order) -> bool:
    """Whether a death that came after the decision keeps it from being named as it is.

    Another order of the operator's is on its way, unless the operator is away; of a repair whose successors are still
    being started nobody can say that it is not.
    """
    lost = job.conversation.memory.lost
    if current.action == pb.RETRY:
        return PROCESS_FAULT in lost.values()
    planned = current.action == pb.SHRINK or current.action == incident.standing == pb.IN_PLACE
    return planned and not lost.keys() <= set(current.lost_ranks)


def _is_patience_over(job: Job, incident: OpenIncident, allowed: pb.StandingOrders) -> bool:
    patience = allowed.decision_timeout_milliseconds / 1000
    return (
        bool(patience) and min(_seconds_since_question(job, incident), job.operator.away_seconds(job.now)) >= patience
    )


def _seconds_since_question(job: Job, incident: OpenIncident) -> float:
    """Return how long ago MindIO asked, 0 when it has not."""
    memory = job.conversation.memory
    if memory.due is None:
        return 0.0
    return job.now - max(memory.due - memory.answer_seconds, incident.opened)  # after a takeover `due` is guessed


def _action_to_take(job: Job, incident: OpenIncident, allowed: pb.StandingOrders) -> pb.Action:
    conversation = job.conversation
    if conversation.state not in NAMEABLE:
        return pb.CHECKPOINT if _can_save_training(job, allowed) else pb.ACTION_UNSPECIFIED
    lost = conversation.memory.lost
    if allowed.allow_retry and PROCESS_FAULT not in lost.values():
        return pb.RETRY
    if allowed.allow_in_place and all(_is_pod_alive(job, rank) for rank in lost):
        return pb.IN_PLACE
    return pb.CHECKPOINT if _must_save_training(job, incident, allowed) else pb.ACTION_UNSPECIFIED


def _can_save_training(job: Job, allowed: pb.StandingOrders) -> bool:
    conversation = job.conversation
    return allowed.allow_checkpoint and (conversation.state in NAMEABLE or "dump" in conversation.memory.offered)


def _must_save_training(job: Job, incident: OpenIncident, allowed: pb.StandingOrders) -> bool:
    """Return whether what is not here now is given up: the operator is away and would not wait longer, or MindIO."""
    memory = job.conversation.memory
    if memory.due is None or not _can_save_training(job, allowed):
        return False
    margin = min(SAVE_BEFORE_SECONDS, memory.answer_seconds / 4)
    waits_no_longer = bool(allowed.save_after_milliseconds) and (
        _seconds_since_question(job, incident) >= allowed.save_after_milliseconds / 1000
    )
    return job.now >= memory.due - margin or (waits_no_longer and _is_patience_over(job, incident, allowed))


def _is_pod_alive(job: Job, rank: int) -> bool:
    pod = job.roster.pod_of_rank(rank)
    return pod is not None and pod.launcher_ready and job.is_agent_heard(pod)
