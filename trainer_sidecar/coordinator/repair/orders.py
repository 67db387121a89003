"""The operator's order: what it makes of the targets, and what it makes MindIO be asked for.

An order is a level. It is applied whenever it or the roster changes, and applying it again changes nothing; so it does
not matter whether a coordinator hears it once, twice or after a restart.
"""

from __future__ import annotations

from collections.abc import Callable

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.conversation import FAILED_FOR_GOOD, PROCESS_FAULT, Desired
from trainer_sidecar.coordinator.conversation.states import TRAINING, State
from trainer_sidecar.coordinator.repair import migration, resize
from trainer_sidecar.coordinator.repair.driver import (
    FAULT_ACTIONS,
    carry_out_commands,
    conclude_incident,
    open_incident,
    report_lost_ranks,
)
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.roster import ALIVE, RankPod, RankTarget

STRATEGIES = {
    pb.RETRY: "retry",
    pb.IN_PLACE: "recover",
    pb.REPLACE: "recover",
    pb.SHRINK: "downgrade",
    pb.EXPAND: "upgrade",
    pb.CHECKPOINT: "dump",
    pb.PAUSE: "pause",
    pb.CONTINUE: "continue",
    pb.MIGRATE: "migration",
}
PARAMETERS = {pb.SHRINK: resize.SCALE_IN, pb.EXPAND: '{"scale-out-strategy":"DP"}'}
WITHOUT_WAITING = frozenset({pb.RETRY, pb.CHECKPOINT, pb.PAUSE, pb.CONTINUE, pb.SHRINK})
TAKES_ALL = frozenset({pb.RETRY, pb.CHECKPOINT})
"""Orders that name whatever has died meanwhile, because nothing was planned rank by rank."""

REPAIRS = frozenset({pb.RETRY, pb.IN_PLACE, pb.REPLACE})
"""Orders after which every rank trains on as it was; they meet in the store for that."""

DEFAULT_SECONDS = 1
PAUSE_SECONDS = 600


def is_newer_order(job: Job, order: pb.Order) -> bool:
    """Return whether `order` replaces the one in hand.

    Another order may come under the same number and revision: the next leader decides anew if the one before was killed
    before it had recorded its decision. Only the leader with the highest fence is heard, so its word counts.
    """
    current = job.order
    if current is None:
        return True
    mine, theirs = (current.incarnation, current.revision), (order.incarnation, order.revision)
    return theirs > mine or (theirs == mine and order != current)


def is_order_open(job: Job) -> bool:
    """Return whether the order in hand is about something that is not over."""
    order = job.order
    if order is None or order.action not in STRATEGIES:
        return False
    if order.incarnation <= job.incidents.concluded and not (order.action == pb.SHRINK and job.change.smaller):
        return False
    return job.incidents.current is None or order.incarnation >= job.incidents.current.incarnation


def apply_order(job: Job) -> None:
    """Bring targets in line with a recovery order, and tell MindIO of every rank it gives up."""
    order = job.order
    if order is None or not is_order_open(job) or _give_up_growth(job, order):
        return
    if order.action == pb.MIGRATE:
        open_incident(job, order.incarnation, planned=True)
        migration.prepare_spares(job, order)
        return
    if job.roster.spares:
        migration.give_up_spares(job)
    job.incidents.note_taken_number(order.incarnation)
    if job.conversation.state is State.FINISHING and order.action in FAULT_ACTIONS:
        _refuse_after_the_end(job, order)
        return
    if _is_for_next_incident(job, order):
        for rank in order.restart_ranks:
            _restart_rank(job, rank, order.incarnation, order.incarnation)
        return
    _recover_ranks(job, order)


def _recover_ranks(job: Job, order: pb.Order) -> None:
    again = order.action == pb.SHRINK and job.change.smaller
    incident = open_incident(job, order.incarnation, planned=again or order.action not in FAULT_ACTIONS)
    for node_rank in order.replaced_nodes:
        _replace_node_rank(job, node_rank, incident.incarnation)
    for rank in order.restart_ranks:
        _restart_rank(job, rank, order.incarnation, incident.incarnation)
    memory = job.conversation.memory
    known = memory.lost.keys() | memory.late.keys()
    if job.conversation.state not in TRAINING:  # there MindIO was told of a move, and of no loss
        known |= memory.named.keys()
    given_up = set(order.lost_ranks) - known - job.roster.dropped
    if given_up and order.action not in (pb.EXPAND, pb.PAUSE, pb.CONTINUE):
        report_lost_ranks(job, given_up)


def _refuse_after_the_end(job: Job, order: pb.Order) -> None:
    """Ranks have left MindIO in order, to save, upload or convert: it recovers nothing any more, and never says so."""
    incident = open_incident(job, order.incarnation)
    if incident.is_new_milestone(pb.RESULT, frozenset(order.lost_ranks)):
        text = "ranks have left MindIO at the end of their training: it recovers nothing any more"
        failed = pb.Milestone(result_code=FAILED_FOR_GOOD, text=text, strategy=STRATEGIES[order.action])
        job.mark_milestone(pb.RESULT, job.now, failed)


def _is_for_next_incident(job: Job, order: pb.Order) -> bool:
    """A decision about a death that MindIO is told of only after it has reported the success before."""
    incident = job.incidents.current
    if incident is None or order.incarnation <= incident.highest_number:
        return False
    state = job.conversation.state
    return state is State.CONFIRMING or (state is State.SHRINKING and incident.resumed)


def _give_up_growth(job: Job, order: pb.Order) -> bool:
    """A SHRINK order of a job that is shrunk already: the ranks that were to come back are ended again."""
    shrunk = job.conversation.state in (State.SHRUNK, State.EXPANDING) and set(order.lost_ranks) <= job.roster.dropped
    if order.action != pb.SHRINK or not shrunk:
        return False
    desired = Desired(STRATEGIES[order.action], dict.fromkeys(order.lost_ranks, PROCESS_FAULT))
    for rank in order.lost_ranks:
        target = job.roster.targets.get(rank)
        if target is not None:
            target.end_process()
            job.touch_pod_of(rank)
    conclude_incident(job)
    carry_out_commands(job, job.conversation.pursue_decision(desired, job.now), job.now)
    return True


def _restart_rank(job: Job, rank: int, incarnation: int, first_incarnation: int) -> None:
    """A new process in the same pod, unless one of this incident lives already."""
    target = job.roster.targets.get(rank)
    if target is None or not target.pod_uid:
        return
    if target.incarnation < first_incarnation or not target.run:
        number, unknown = max(incarnation, target.incarnation + 1), rank not in job.roster.registered
        renewed = RankTarget(number, 0, target.pod_uid, admitted=unknown)
    elif job.roster.phase_of_rank(rank) == pb.DEAD and _can_start_again(job, rank):
        renewed = RankTarget(target.incarnation, target.start + 1, target.pod_uid)
    else:
        return
    _renew_target(job, rank, renewed)


def _renew_target(job: Job, rank: int, target: RankTarget) -> None:
    """Another process is the rank now."""
    job.roster.set_target(rank, target)
    job.conversation.note_renewed_rank(rank)
    job.touch_pod_of(rank)


def _can_start_again(job: Job, rank: int) -> bool:
    """A successor that died may be started again only while MindIO has not been told to let it in."""
    named = job.conversation.memory.named
    return rank not in named or job.conversation.state is State.CONFIRMING


def _replace_node_rank(job: Job, node_rank: int, first: int) -> None:
    """The node rank's ranks belong into the newest pod made for this incident, whose first number is `first`.

    An order may come under a higher number because one replacement has died as well. So a replacement is known by being
    of this incident, not by the order's number, and gives way to a newer one only when that is there.
    """
    roster = job.roster
    successor = roster.newest_pod(node_rank, first)
    newest = successor.incarnation if successor is not None else first
    for pod in roster.pods_of_node(node_rank):
        if pod.incarnation < newest and not pod.over:
            _retire_pod(job, pod)
    for rank in roster.ranks_of_node(node_rank):
        target = roster.targets.get(rank)
        if successor is not None and (target is None or target.pod_uid != successor.uid):
            view = successor.views.get(rank)  # another coordinator may have started it there, and again
            start = view.start if view is not None and view.incarnation == successor.incarnation else 0
            _renew_target(job, rank, RankTarget(successor.incarnation, start, successor.uid))
        elif target is None or target.incarnation < first:
            _renew_target(job, rank, RankTarget(first))


def _retire_pod(job: Job, pod: RankPod) -> None:
    """The pod is over. While MindIO locks the step it waits for all ranks that it has not heard to be dead.

    Those that live answer it themselves, its gate answers for those that die now (decision 0028): the pod hears later.
    """
    answers = job.conversation.state is State.STOPPING and job.is_agent_heard(pod)
    job.roster.retire_pod(pod, answers=answers)
    if not answers:
        job.effects.touch_pods(pod.uid)


def tell_retired_pods(job: Job) -> None:
    """Tell pods that are over that they are: MindIO has stopped the training, or will not."""
    is_stopping = job.is_running and job.conversation.state is State.STOPPING
    if job.roster.answering and not is_stopping:
        job.effects.touch_pods(*job.roster.take_answering())


def is_rank_fenced(job: Job, rank: int) -> bool:
    """Return whether no older process of this rank can reach MindIO.

    That is so when its agent says that it is dead, or when its gate's lease is over.
    """
    for pod in job.roster.predecessor_pods(rank):
        view = pod.views.get(rank)
        told = pod.over and pod.reported and job.is_agent_heard(pod)
        confirmed = told and (view is None or not view.is_alive)
        if not confirmed and not job.contacts.is_lease_expired(pod.uid, job.now):
            return False
    return True


def awaited_ranks(job: Job) -> set[int]:
    """Return the ranks that have to come back before MindIO may be told their names."""
    order = job.order
    if order is None:
        return set()
    return job.roster.ranks_of_nodes(order.replaced_nodes).union(order.restart_ranks)


def is_successor_ready(job: Job, rank: int) -> bool:
    """Return whether the successor waits at its gate, as far as is known now, and its predecessor is out of reach."""
    if job.order is not None and job.order.action == pb.MIGRATE:
        return migration.stands_at_gate(job, rank)
    pod = job.roster.pod_of_rank(rank)
    if pod is None or not job.is_agent_heard(pod):
        return False
    if job.setup.is_followed and job.order is not None and rank in job.order.restart_ranks:
        return is_rank_fenced(job, rank)  # TaskD starts it again only once it was named
    return job.roster.phase_of_rank(rank) in (pb.AT_GATE, pb.LINKED) and is_rank_fenced(job, rank)


def desired_decision(job: Job) -> Desired | None:
    """Return what is desired of MindIO now; None when nothing is, or nothing may be yet."""
    order = job.order
    if order is None or not is_order_open(job) or job.without_mindio:
        return None
    if (again := resize.decision_to_leave_out(job)) is not None:
        return again
    memory = job.conversation.memory
    if order.action == pb.MIGRATE:
        moved = migration.moved_ranks(job, order)
        return Desired("migration", dict.fromkeys(moved, 0), all(migration.stands_at_gate(job, rank) for rank in moved))
    waiting = awaited_ranks(job) & job.roster.registered
    names = {rank: memory.lost.get(rank, 1) for rank in set(order.lost_ranks) & job.roster.registered}
    names.update(dict.fromkeys(waiting, 1))
    if order.action == pb.CHECKPOINT and not names:
        names = dict.fromkeys(job.roster.dropped, PROCESS_FAULT)
    if order.action in TAKES_ALL:
        names = {**names, **memory.lost}
    ready = order.action in WITHOUT_WAITING or all(is_successor_ready(job, rank) for rank in waiting)
    if (order.incarnation, order.revision) == job.change.undone and order.action in REPAIRS:
        ready = False
    seconds = order.timeout_seconds or (PAUSE_SECONDS if order.action == pb.PAUSE else DEFAULT_SECONDS)
    parameters = order.parameters or PARAMETERS.get(order.action, "")
    return Desired(STRATEGIES[order.action], names, ready, parameters, seconds)


def track_replacements(job: Job) -> None:
    """Note milestones of the replacements, and the end of a recovery that MindIO needs not know of."""
    incident = job.incidents.current
    if incident is None or not is_order_open(job):
        return
    ranks = frozenset(awaited_ranks(job))
    moving = job.order is not None and job.order.action == pb.MIGRATE
    phase = job.roster.phase_of_spare if moving else job.roster.phase_of_rank
    reached: dict[pb.MilestoneKind, Callable[[int], bool]] = {
        pb.REPLACEMENTS_STARTED: lambda rank: phase(rank) in ALIVE,
        pb.REPLACEMENTS_READY: lambda rank: is_successor_ready(job, rank),
    }
    for kind, has_reached in reached.items():
        if ranks and all(map(has_reached, ranks)) and incident.is_new_milestone(kind, ranks):
            job.mark_milestone(kind, job.now, pb.Milestone(ranks=sorted(ranks)))
    if job.order is not None and job.order.action == pb.CONTINUE and job.conversation.state is State.SERVING:
        conclude_incident(job)  # nothing is held any more
        return
    unknown = ranks and not (ranks & job.roster.registered)
    if unknown and job.conversation.state is State.SERVING and job.roster.are_linked(ranks):
        conclude_incident(job)
