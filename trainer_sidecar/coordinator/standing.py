"""Standing orders: what is done when a fault stays undecided because the operator stays away.

Only what needs nobody else: retry a memory fault, start dead processes again in their own pods. A lost pod is waited
for, because its replacement is made by the operator; where that is not allowed either, the training is saved before
MindIO's patience ends.
"""

from __future__ import annotations

from trainer_sidecar.coordinator.conversation import PROCESS_FAULT, State
from trainer_sidecar.coordinator.job import Job
from trainer_sidecar.protocol import sidecar_pb2 as pb

SAVE_BEFORE_SECONDS = 30.0
"""A checkpoint is begun this long before MindIO would leave."""


def order(job: Job) -> pb.Order | None:
    """The order the coordinator gives itself now; None while the operator has time, or what it wants can still come."""
    incident, assignment = job.incident, job.assignment
    if incident is None or assignment is None or job.conversation.state is not State.STOPPED:
        return None
    current, allowed = job.order, assignment.standing_orders
    patience = allowed.decision_timeout_milliseconds / 1000
    if current is not None and current.incarnation >= incident.incarnation:
        action = pb.CHECKPOINT if _must_save(job, allowed) else pb.ACTION_UNSPECIFIED
    elif not patience or incident.stopped is None or job.now - incident.stopped < patience:
        return None
    else:
        action = _action(job, allowed)
    if action == pb.ACTION_UNSPECIFIED or (current is not None and incident.standing == action):
        return None
    incident.standing = action
    lost = sorted(job.conversation.memory.lost)
    restart = lost if action == pb.IN_PLACE else []
    revision = current.revision if current is not None and current.incarnation == incident.incarnation else 0
    number = max(incident.incarnation, current.incarnation if current is not None else 0)
    return pb.Order(incarnation=number, revision=revision, action=action, lost_ranks=lost, restart_ranks=restart)


def _action(job: Job, allowed: pb.StandingOrders) -> pb.Action:
    lost = job.conversation.memory.lost
    if allowed.allow_retry and PROCESS_FAULT not in lost.values():
        return pb.RETRY
    if allowed.allow_in_place and all(_pod_lives(job, rank) for rank in lost):
        return pb.IN_PLACE
    return pb.CHECKPOINT if _must_save(job, allowed) else pb.ACTION_UNSPECIFIED


def _must_save(job: Job, allowed: pb.StandingOrders) -> bool:
    """MindIO's patience is nearly over: what is not here now will not be there in time."""
    memory = job.conversation.memory
    margin = min(SAVE_BEFORE_SECONDS, memory.answer_seconds / 4)
    return allowed.allow_checkpoint and memory.due is not None and job.now >= memory.due - margin


def _pod_lives(job: Job, rank: int) -> bool:
    pod = job.roster.pod_of(rank)
    return pod is not None and pod.launcher_ready and job.hears(pod)
