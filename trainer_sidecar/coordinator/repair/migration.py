"""Moving ranks off nodes that still work: second processes beside the running ones, then MindIO's hot switch.

The second processes start held at their gates. Only when all of them stand there is MindIO told to prepare, so that
nothing touches the training before everything is there; then they are admitted, MindIO brings every rank to the end of
a step and offers the migration. The processes that were replaced stay blocked and go on sending heartbeats: they are
ended with the first step of the new ones.

MindIO has ranks stop one step after the one they are at when it asks, and a move fails for good where they are past
that step before it can say so. So from the call on gates tell it that the ranks are some steps further (`steps_ahead`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.states import State
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.roster import RankPod, RankTarget

IN_TIME_SECONDS = 1.0
"""From MindIO's question how far the ranks are to its word where to stop: 40 to 90 ms were seen on a busy machine."""
UNTIMED_STEPS_AHEAD = 1
"""Before a coordinator has timed a step: one that came in the middle of a move."""
MOST_STEPS_AHEAD = 10_000
"""A bound for what is measured: steps of 0.1 ms."""


def moved_ranks(job: Job, order: pb.Order) -> set[int]:
    """Return the ranks of the nodes that are to be left."""
    return job.roster.ranks_of_nodes(order.replaced_nodes)


def prepare_spares(job: Job, order: pb.Order) -> None:
    """Have the second processes started where their pods are there; those of a move that was given up are over."""
    roster = job.roster
    if any(spare.incarnation < order.incarnation for spare in roster.spares.values()):
        give_up_spares(job)
    for node_rank in order.replaced_nodes:
        pod = roster.newest_pod(node_rank, order.incarnation)
        if pod is None:
            continue
        for rank in roster.ranks_of_node(node_rank):
            if rank not in roster.spares and roster.targets[rank].pod_uid != pod.uid:
                roster.set_spare(rank, RankTarget(order.incarnation, 0, pod.uid))
                job.effects.touch_pods(pod.uid)


def stands_at_gate(job: Job, rank: int) -> bool:
    """Return whether the second process waits at its gate, or has taken over already."""
    taken_over = job.order is not None and job.roster.targets[rank].incarnation >= job.order.incarnation
    return taken_over or job.roster.phase_of_spare(rank) in (pb.AT_GATE, pb.LINKED)


def promote_second_processes(job: Job) -> None:
    """Make the second processes the ranks; the pods of the first ones are over."""
    job.effects.touch_pods(*job.roster.promote_spares())


def relieving_pods(job: Job) -> dict[str, RankPod]:
    """Return, by UID, the pods of second processes that run at a take-over, each with the pod that it relieves."""
    order = job.order
    if order is None or order.action not in (pb.MIGRATE, pb.CONTINUE):
        return {}
    second: dict[str, RankPod] = {}
    for pod in job.roster.pods.values():
        moved = order.action == pb.CONTINUE or pod.node_rank in order.replaced_nodes
        if not moved or pod.over or pod.incarnation < order.incarnation:
            continue
        older = (
            one for one in job.roster.pods_of_node(pod.node_rank) if one.incarnation < pod.incarnation and not one.over
        )
        first = next(older, None)
        if first is not None:
            second[pod.uid] = first
    return second


def has_relieved(job: Job, second: RankPod, first: RankPod, *, moved: bool) -> bool:
    """Return whether the second processes have taken over. `moved`: MindIO's last success was a move."""
    phases = {view.phase for view in second.views.values()}
    if moved:
        return bool(phases) and not phases & {pb.STARTING, pb.AT_GATE, pb.ABSENT}
    ended = first.reported and not first.has_live_process()
    # With its controller a move's outcome is lost. First processes end after it; no rank trains but the second ones.
    if job.conversation.state is State.LOST:
        return ended and phases == {pb.LINKED}
    return ended and job.conversation.state in (State.MIGRATING, State.CONFIRMING)


def restart_second_processes(job: Job, registered: Iterable[int]) -> None:
    """Start second processes once more, because the controller is lost with which they had registered."""
    for rank in registered:
        spare = job.roster.spares.get(rank)
        if spare is not None:
            job.roster.set_spare(rank, RankTarget(spare.incarnation, spare.start + 1, spare.pod_uid))
            job.effects.touch_pods(spare.pod_uid)
    for spare in job.roster.spares.values():
        spare.hold_process()


def steps_ahead_of_ranks(job: Job) -> int:
    """Return how many steps more than the ranks have made MindIO is told, so that it stops them in time for a move."""
    if job.conversation.state is not State.SWITCHING:
        return 0
    seconds = job.steps.median_seconds
    return UNTIMED_STEPS_AHEAD if not seconds else min(math.ceil(IN_TIME_SECONDS / seconds), MOST_STEPS_AHEAD)


def follow_move(job: Job) -> None:
    """Tell all gates when a move begins, when its steps are first timed, and when it is over one way or the other."""
    ahead = steps_ahead_of_ranks(job) if job.is_running else 0
    is_timed_now = job.steps_ahead == UNTIMED_STEPS_AHEAD < ahead
    if bool(ahead) is not bool(job.steps_ahead) or is_timed_now:
        job.set_steps_ahead(ahead)
        job.touch_all_pods()


def is_move_given_up(job: Job) -> bool:
    """Return whether MindIO has been told of second processes that do not come."""
    order = job.order
    return job.conversation.state is State.SWITCHING and order is not None and order.action == pb.CONTINUE


def give_up_spares(job: Job) -> None:
    """Give up the second processes: nobody waits for them."""
    job.effects.touch_pods(*job.roster.retire_spares())
