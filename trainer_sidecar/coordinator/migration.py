"""Moving ranks off nodes that still work: second processes beside the running ones, then MindIO's hot switch.

The second processes start held at their gates. Only when all of them stand there is MindIO told to prepare, so that
nothing touches the training before everything is there; then they are admitted, MindIO brings every rank to the end of
a step and offers the migration. The processes that were replaced stay blocked and go on sending heartbeats: they are
ended with the first step of the new ones.
"""

from __future__ import annotations

from trainer_sidecar.coordinator.job import Job
from trainer_sidecar.coordinator.roster import Target
from trainer_sidecar.protocol import sidecar_pb2 as pb


def moved_ranks(job: Job, order: pb.Order) -> set[int]:
    """The ranks of the nodes that are to be left."""
    return {rank for node_rank in order.replaced_nodes for rank in job.roster.ranks_of(node_rank)}


def prepare(job: Job, order: pb.Order) -> None:
    """Have the second processes started where their pods are there."""
    roster = job.roster
    for node_rank in order.replaced_nodes:
        pod = roster.newest(node_rank, order.incarnation)
        if pod is None:
            continue
        for rank in roster.ranks_of(node_rank):
            if rank not in roster.spares and roster.targets[rank].pod_uid != pod.uid:
                roster.spares[rank] = Target(order.incarnation, 0, pod.uid)
                job.dirty.add(pod.uid)


def stands(job: Job, rank: int) -> bool:
    """The second process waits at its gate, or has taken over already."""
    taken_over = job.order is not None and job.roster.targets[rank].incarnation >= job.order.incarnation
    return taken_over or job.roster.spare_phase(rank) in (pb.AT_GATE, pb.LINKED)


def take_over(job: Job) -> None:
    """The second processes are the ranks now; the pods of the first ones are over."""
    roster = job.roster
    for rank, spare in roster.spares.items():
        old = roster.pods.get(roster.targets[rank].pod_uid)
        if old is not None:
            old.over = True
            job.dirty.add(old.uid)
        roster.targets[rank] = spare
        job.dirty.add(spare.pod_uid)
    roster.spares.clear()


def give_up(job: Job) -> None:
    """Nobody waits for the second processes any more."""
    for spare in job.roster.spares.values():
        pod = job.roster.pods.get(spare.pod_uid)
        if pod is not None:
            pod.over = True
            job.dirty.add(pod.uid)
    job.roster.spares.clear()
