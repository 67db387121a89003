"""A job that is smaller than it began, or about to grow, and whose controller is lost.

Another controller is made to know every rank and takes all of them for part of the training. So it is made to leave out
again who was left out: stopped, named and downgraded like the first time, without the operator, for whom nothing has
changed. Whoever was on the way back waits at its gate meanwhile, and growing begins anew from there; a process that has
taken part in it already is started once more (docs/protocols/mindio.md §11.5).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.conversation import PROCESS_FAULT, Desired
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.roster import ALIVE, RankTarget

SIZES = frozenset({pb.SHRINK, pb.EXPAND})
SCALE_IN = '{"scale-in-strategy":"DP"}'


def hold_growth_open(job: Job) -> None:
    """Keep the growth open, because its controller is lost: no step ends it."""
    incident = job.incidents.current
    if incident is not None and _is_growth_ordered(job) and not incident.resumed:
        incident.forget_strategy()


def find_left_out_ranks(job: Job) -> None:
    """Find who was left out: whoever does not live, because this coordinator knows only the operator's order.

    An order to save may be about ranks that were lost just now. Of the others, those without a pod were left out.
    """
    order, roster = job.order, job.roster
    if order is not None and order.action == pb.CHECKPOINT:
        with_pods = roster.ranks_of_nodes({pod.node_rank for pod in roster.pods.values() if pod.listed})
        _leave_out_ranks(job, set(range(roster.world_size)) - with_pods - set(order.lost_ranks))
        return
    if order is None or order.action not in SIZES:
        return
    gone = {rank for rank in range(roster.world_size) if roster.phase_of_rank(rank) not in (*ALIVE, pb.FINISHED)}
    _leave_out_ranks(job, gone.union(order.lost_ranks))


def settle_who_takes_part(job: Job, told: Mapping[int, pb.RankActions]) -> None:
    """Decide who takes part, and who is to be left out again, once the ranks stand still or train."""
    left = job.roster.dropped & job.roster.registered
    if _is_growth_complete(job, left, told):
        _leave_out_ranks(job, ())
    elif left:
        job.conversation.miss_ranks(dict.fromkeys(left, PROCESS_FAULT))
        job.change.note_leaving_out()
        for rank in left:
            if rank in told and told[rank].answered and _is_growth_ordered(job):
                _restart_rank(job, rank)


def decision_to_leave_out(job: Job) -> Desired | None:
    """Return what another controller is asked for first: to leave ranks out again. None: it knows who takes part."""
    order = job.order
    if order is None or not job.change.smaller or order.action not in SIZES:
        return None
    names = job.roster.dropped.union(order.lost_ranks) & job.roster.registered
    can_meet = (order.incarnation, order.revision) != job.change.undone
    return Desired("downgrade", dict.fromkeys(names, PROCESS_FAULT), can_meet, SCALE_IN)


def is_own_affair(job: Job) -> bool:
    """Return whether ranks are being left out again while the operator waits for them to come back."""
    return job.change.smaller and _is_growth_ordered(job)


def is_awaited_by_growth(job: Job, rank: int) -> bool:
    """Return whether the rank's current process is the one that growing waits for."""
    order, target = job.order, job.roster.targets.get(rank)
    return is_own_affair(job) and order is not None and target is not None and target.incarnation >= order.incarnation


def _is_growth_ordered(job: Job) -> bool:
    return job.order is not None and job.order.action == pb.EXPAND


def _is_growth_complete(job: Job, left: Collection[int], told: Mapping[int, pb.RankActions]) -> bool:
    """Whether every rank that was left out has been taken back and trains."""
    trains = (rank in told and told[rank].repaired and not told[rank].answered for rank in left)
    return _is_growth_ordered(job) and all(trains)


def _leave_out_ranks(job: Job, ranks: Collection[int]) -> None:
    job.roster.leave_out_ranks(ranks)
    job.steps.leave_out_ranks(ranks)


def _restart_rank(job: Job, rank: int) -> None:
    target = job.roster.targets.get(rank)
    if target is not None and target.run:
        job.roster.set_target(rank, RankTarget(target.incarnation, target.start + 1, target.pod_uid))
        job.touch_pod_of(rank)
