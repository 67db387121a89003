"""Takeover of running ranks by a coordinator that was restarted in the middle of an attempt.

It adopts the ranks as they are, and the controller if that is still the same process (replay.py); a new controller
would be blind to running ranks and look healthy.
"""

from __future__ import annotations

from hajob.domain.facts import NO_SUCCESSOR
from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.attempt.rank_variables import keep_started_environment
from trainer_sidecar.coordinator.attempt.start import has_attempt_begun
from trainer_sidecar.coordinator.conversation.conversation import EventKind, MindIOEvent
from trainer_sidecar.coordinator.conversation.states import AT_REST, TRAINING, UNNAMED, State
from trainer_sidecar.coordinator.repair import migration, resize
from trainer_sidecar.coordinator.repair.driver import feed_conversation, note_finished_rank, report_lost_ranks
from trainer_sidecar.coordinator.state.attempt import AttemptPhase
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.roster import RankPod, RankTarget, RankView
from trainer_sidecar.coordinator.takeover import successor
from trainer_sidecar.coordinator.takeover.effects import gather_store
from trainer_sidecar.coordinator.takeover.progress import why_impossible
from trainer_sidecar.coordinator.takeover.replay import Replayed, replay_conversation

SUCCESSORS = frozenset({pb.IN_PLACE, pb.REPLACE, pb.EXPAND, pb.MIGRATE})
"""Orders that start one."""

LOST_TEXT = "ranks run, but the MindIO controller they registered with is gone; the next fault cannot be recovered"
LEFT_TEXT = "MindIO's controller has left; the next fault cannot be recovered"


def take_up_running_ranks(job: Job) -> bool:
    """Take over the ranks that an earlier coordinator started, if there are any; return whether that was done now.

    It waits until every agent has said how its ranks are, and for a silent one no longer than `takeover_seconds`.
    """
    order, assignment, attempt = job.order, job.assignment, job.attempt
    if order is None or assignment is None:
        return False
    if attempt.phase is AttemptPhase.IDLE and order.action not in (pb.START, pb.STOP):
        return _adopt_attempt(job, assignment.attempt, order.incarnation)
    waited = job.now - attempt.since >= job.setup.limits.takeover_seconds
    if attempt.phase is not AttemptPhase.OPENING or not (waited or job.roster.are_all_reported()):
        return False
    there = job.roster.reported_pods()
    if not has_attempt_begun(job, there):
        return False
    _take_over_ranks(job, there)
    return True


def _adopt_attempt(job: Job, number: int, incarnation: int) -> bool:
    """A running job's order reached a coordinator that has started nothing, because it was restarted."""
    waited = job.now - job.attempt.first_check_time(job.now) >= job.setup.limits.takeover_seconds
    if not waited and not (job.controller.connected and job.roster.are_all_reported()):
        return False
    first = migration.relieving_pods(job).values()
    there = [*job.roster.reported_pods(), *(pod for pod in first if pod.connected and pod.reported)]
    if len(there) != job.roster.number_of_nodes + len(first) and not (waited and there):
        return False
    job.begin_attempt(number, 0)
    job.incidents.note_taken_number(incarnation)
    _take_over_ranks(job, there)
    return True


def _take_over_ranks(job: Job, pods: list[RankPod]) -> None:
    """The agents of these pods have said how their ranks are."""
    attempt, roster = job.attempt, job.roster
    keep_started_environment(job, pods)
    is_blind = job.controller.requested == attempt.number  # this coordinator's own, the ranks never saw it
    replayed = None
    if job.without_mindio:
        feed_conversation(job, MindIOEvent(EventKind.SERVES), job.now)  # nobody: nothing is asked of it
    elif job.controller.is_serving(attempt.number) and not is_blind and not job.controller.takes_over:
        replayed = replay_conversation(job)
    else:
        feed_conversation(job, MindIOEvent(EventKind.SERVES), job.now)  # somewhere, until now
        feed_conversation(job, MindIOEvent(EventKind.GONE, text=LOST_TEXT), job.now)
    linked = set() if job.without_mindio else set(range(roster.world_size)) - _ranks_never_linked(job, pods)
    roster.register_only(linked)
    _take_processes(job, pods, moved=replayed is not None and replayed.was_move)
    attempt.adopt_running(job.now)
    if job.without_mindio:
        gather_store(job)
    elif replayed is None:
        resize.find_left_out_ranks(job)
        _controller_was_lost(job)
    _end_dropped_ranks(job)
    job.touch_all_pods()
    if replayed is not None:
        _take_up_incident(job, replayed)
    for rank in [rank for rank in roster.targets if roster.phase_of_rank(rank) == pb.FINISHED]:
        note_finished_rank(job, rank)
    left = roster.dropped.union(job.conversation.memory.named if job.conversation.state is State.SHRINKING else ())
    report_lost_ranks(
        job, [rank for rank in roster.targets if roster.phase_of_rank(rank) == pb.DEAD and rank not in left]
    )
    for event in replayed.unanswered if replayed is not None else ():
        feed_conversation(job, event, job.now)


def _end_dropped_ranks(job: Job) -> None:
    """Those that a shrink has left out are blocked for ever; the ones that a growth brings back are newer."""
    order = job.order
    for rank in job.roster.dropped & job.roster.targets.keys():
        target = job.roster.targets[rank]
        if order is None or order.action == pb.SHRINK or target.incarnation < order.incarnation:
            target.end_process()


def _ranks_never_linked(job: Job, pods: list[RankPod]) -> set[int]:
    """Ranks that a start in the middle has not brought to MindIO yet: naming one would refuse the whole call."""
    if not job.attempt.incarnation:
        return set()
    first = (job.attempt.incarnation, 0)
    heard = [(rank, pod.views.get(rank)) for pod in pods for rank in job.roster.ranks_of_node(pod.node_rank)]
    told = {one.rank for pod in pods if pod.gate is not None for one in pod.gate.told}  # by what stands at the gate now
    return {
        rank
        for rank, view in heard
        if view is None
        or view.phase == pb.ABSENT
        or (view.phase in (pb.STARTING, pb.AT_GATE) and view.process_name == first and rank not in told)
    }


def _take_processes(job: Job, pods: list[RankPod], *, moved: bool) -> None:
    """Every process as it is; in the middle of a move the second ones stand beside the first ones."""
    roster = job.roster
    second = migration.relieving_pods(job)
    for uid, first in list(second.items()):
        if migration.has_relieved(job, roster.pods[uid], first, moved=moved):
            del second[uid]
            first.mark_over()
            job.effects.touch_pods(first.uid)
    heard = set(pods)
    for pod in sorted(roster.pods.values(), key=lambda pod: (pod in heard, pod.incarnation)):  # the last one counts
        for rank, view in pod.views.items():
            if pod.uid not in second:
                roster.set_target(rank, _target_as_found(job, pod, view))
            elif view.phase != pb.ABSENT:
                admitted = view.is_alive and (view.phase == pb.LINKED or rank in job.conversation.memory.named)
                roster.set_spare(rank, RankTarget(view.incarnation, view.start, pod.uid, True, admitted))
        job.contacts.watch_agent(pod.uid, job.now)
    for first in second.values():
        for rank in roster.ranks_of_node(
            first.node_rank
        ):  # its agent has not been heard; its processes came with the pod
            if rank not in roster.targets:
                roster.set_target(rank, RankTarget(first.incarnation, 0, first.uid, True, True))


def _target_as_found(job: Job, pod: RankPod, view: RankView) -> RankTarget:
    """What was found is what is desired; a rank that a start in the middle has left out is started, too."""
    if view.phase == pb.ABSENT and job.attempt.incarnation:
        return RankTarget(job.attempt.incarnation, 0, pod.uid, True, job.conversation.state not in UNNAMED)
    known = job.conversation.state not in UNNAMED and not _is_unnamed_successor(job, view)
    admitted = view.phase == pb.LINKED or (view.is_alive and known)
    return RankTarget(view.incarnation, view.start, pod.uid, True, admitted)


def _is_unnamed_successor(job: Job, view: RankView) -> bool:
    """A successor that was started by the order in hand, about which MindIO has not been told yet."""
    order = job.order
    if order is None or order.action not in SUCCESSORS or job.conversation.state not in TRAINING:
        return False
    return view.incarnation >= order.incarnation


def take_late_ranks(job: Job, pod: RankPod, rank: int, view: RankView) -> None:
    """Take over ranks whose agent could not be reached when the job was taken over."""
    if job.is_running and rank not in job.roster.targets and view.phase != pb.ABSENT:
        job.roster.set_target(rank, _target_as_found(job, pod, view))
        job.touch_pod_of(rank)


def _take_up_incident(job: Job, replayed: Replayed) -> None:
    """An order that was carried out is not carried out again; its result is told once more."""
    order, conversation = job.order, job.conversation
    if conversation.is_blind:
        job.tell_controller_lost(conversation.memory.problem or LEFT_TEXT, job.now)
    if conversation.state not in AT_REST or order is None:
        return
    if order.incarnation > job.incidents.concluded and not _is_order_carried_out(job, order):
        return
    job.incidents.conclude_up_to(order.incarnation)
    if replayed.result is not None:
        replayed.result.incarnation = order.incarnation
        job.effects.queue_milestone(replayed.result, job.now)


def _is_order_carried_out(job: Job, order: pb.Order) -> bool:
    """Whether MindIO, at rest, has this order behind it: its successors are linked."""
    if order.action in (pb.SHRINK, pb.EXPAND):
        return (job.conversation.state is State.SHRUNK) is (order.action == pb.SHRINK)
    if order.action not in SUCCESSORS:
        return order.action in (pb.RETRY, pb.CONTINUE, pb.START)
    ranks = job.roster.ranks_of_nodes(order.replaced_nodes).union(order.restart_ranks)
    targets = {rank: job.roster.targets[rank] for rank in ranks if rank in job.roster.targets}
    there = all(job.roster.phase_of_rank(rank) not in (pb.STARTING, pb.AT_GATE) for rank in targets)
    return there and all(target.incarnation >= order.incarnation for target in targets.values())


def _controller_was_lost(job: Job) -> None:
    """Another one takes its place, if it can; else whatever was ordered cannot be done any more."""
    why = why_impossible(job)
    if len(job.roster.registered) < job.roster.world_size:
        why = why or "not every rank was registered"
    if not why and not any(job.roster.phase_of_rank(rank) == pb.FINISHED for rank in job.roster.targets):
        successor.begin_for_adopted_ranks(job)
        return
    if job.order is not None:
        job.incidents.conclude_up_to(job.order.incarnation)
    job.effects.request_call("end", {})
    job.tell_controller_lost(f"{LOST_TEXT}: {why}" if why else LOST_TEXT, job.now, code=NO_SUCCESSOR)
