"""Starting the whole job: its controller process, its ranks, its end.

A start waits for three things that come up side by side: the controller with the rendezvous store, the launcher of
every node, the death of whatever ran before. Ranks that run already are not started: takeover/takeover.py adopts them.
"""

from __future__ import annotations

from collections.abc import Iterable

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.attempt.controller_arguments import controller_arguments
from trainer_sidecar.coordinator.conversation.conversation import EventKind, MindIOEvent
from trainer_sidecar.coordinator.repair.driver import feed_conversation, follow_training_end
from trainer_sidecar.coordinator.state.attempt import AttemptPhase
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.roster import RankPod, RankTarget
from trainer_sidecar.coordinator.watch import checkpoints, training_end


def is_for_a_successor(job: Job) -> bool:
    """Return whether a START belongs to a coordinator pod that is made for it: here it only ends what runs.

    Starting it here would let the new ranks register with a controller that goes with this pod in a moment.
    """
    order = job.order
    return order is not None and order.action == pb.START and 0 < job.setup.incarnation < order.incarnation


def begin_attempt_if_due(job: Job) -> None:
    """End the ranks that run and begin the attempt that is ordered, if it has not begun."""
    if job.order is None or job.assignment is None or not _is_attempt_due(job, job.order, job.assignment):
        return
    had_run = job.is_running
    job.begin_attempt(job.assignment.attempt, job.order.incarnation)
    _abandon_incident(job, job.order.incarnation)
    job.roster.leave_out_ranks(())
    job.roster.register_only(set())
    job.steps.forget_attempt()
    if had_run:
        _end_all_ranks(job)


def _is_attempt_due(job: Job, order: pb.Order, assignment: pb.Assignment) -> bool:
    """Whether a START order asks for an attempt that has not begun; order and assignment may come in either order."""
    if order.action != pb.START or is_for_a_successor(job):
        return False
    return order.incarnation > job.attempt.incarnation and assignment.attempt > job.attempt.number


def end_attempt(job: Job, order: pb.Order) -> None:
    """End every rank without saving, for a STOP order."""
    _abandon_incident(job, order.incarnation)
    job.attempt.note_end()
    _end_all_ranks(job)
    feed_conversation(job, MindIOEvent(EventKind.ENDED), job.now)


def _abandon_incident(job: Job, incarnation: int) -> None:
    job.incidents.conclude_up_to(incarnation)
    job.incidents.abandon_incident()


def _end_all_ranks(job: Job) -> None:
    """Every rank, also those that this coordinator never started, and the controller."""
    for pod in job.roster.pods.values():
        job.roster.adopt_running(pod)
    for target in job.roster.targets.values():
        target.end_process()
    job.touch_all_pods()
    job.effects.request_call("end", {})
    job.controller.forget_request()


def has_attempt_begun(job: Job, pods: Iterable[RankPod]) -> bool:
    """Return whether an earlier coordinator has started a process of this attempt, even if it has ended since."""
    number = job.attempt.incarnation
    return any(pod.newest_started is not None and pod.newest_started >= number for pod in pods)


def advance_start(job: Job) -> None:
    """Continue the start of the attempt as far as possible now; ranks that run already are taken up before."""
    if job.assignment is None or job.order is None:
        return
    if job.attempt.phase is AttemptPhase.OPENING:
        _advance_opening(job)
    elif job.attempt.phase is AttemptPhase.RUNNING:
        _watch_running(job)


def _advance_opening(job: Job) -> None:
    complete = job.roster.are_all_reported()
    job.attempt.note_pods(job.now, complete=complete)
    if _has_stale_ranks(job):
        return
    _ask_for_controller(job)
    if complete and checkpoints.are_verified(job) and job.is_everything_up:
        there = job.roster.reported_pods()
        if all(pod.launcher_ready for pod in there):
            _start_ranks(job, there)


def _has_stale_ranks(job: Job) -> bool:
    """A process of an older attempt may still reach the controller: it must be gone before a new one serves."""
    found = False
    for pod in job.roster.pods.values():
        if pod.oldest_alive is None or pod.oldest_alive >= job.attempt.incarnation:
            continue
        job.roster.adopt_running(pod)
        for _, target in job.roster.targets_told_to(pod):
            target.end_process()
        job.effects.touch_pods(pod.uid)
        found = found or pod.connected or not job.contacts.is_lease_expired(pod.uid, job.now)
    return found


def _ask_for_controller(job: Job) -> None:
    """Ask for what the ranks need, and again when that is another thing than was asked for, or has failed."""
    controller, number = job.controller, job.attempt.number
    if not controller.connected:
        return
    call, arguments = "store" if job.without_mindio else "start", controller_arguments(job)
    asked = controller.requested == number
    if not asked or controller.wanted == (call, arguments):
        failed = controller.has_failed
        part = controller.store if job.without_mindio else controller.controller
        if controller.attempt == number and part in ("starting", "serving", "listening") and not failed:
            return
        once = failed and controller.attempt == number and controller.starts == 1
        patience = job.setup.limits.controller_again_seconds if once else job.setup.limits.controller_retry_seconds
        if asked and job.now - controller.requested_at < patience:
            return
    controller.note_requested_start(number, call, arguments, job.now)
    job.effects.request_call(call, arguments)


def _start_ranks(job: Job, pods: list[RankPod]) -> None:
    """A process is never older than its pod, which may have been made anew while the others came up."""
    ranks = ((rank, pod) for pod in pods for rank in job.roster.ranks_of_node(pod.node_rank))
    targets = {rank: (max(job.attempt.incarnation, pod.incarnation), pod.uid) for rank, pod in ranks}
    job.roster.set_all_targets(
        {rank: RankTarget(number, 0, uid, run=True, admitted=True) for rank, (number, uid) in targets.items()}
    )
    job.attempt.note_running(job.now)
    feed_conversation(job, MindIOEvent(EventKind.SERVES), job.now)
    job.touch_all_pods()
    job.effects.note_change()


def _watch_running(job: Job) -> None:
    attempt, roster = job.attempt, job.roster
    if job.without_mindio and not job.is_everything_up and job.controller.store != "lost":
        _ask_for_controller(job)
    if job.controller.unfilled and job.is_everything_up and not (job.change.is_under_way or job.keeping.is_store_held):
        job.effects.request_call("known", {})  # the ranks have lost nothing of a store that was opened alone
    if not attempt.linked and (roster.are_all_running() if job.without_mindio else roster.are_all_linked()):
        attempt.note_all_linked()
        job.mark_milestone(pb.STARTED, job.now)
    follow_training_end(job)
    if not attempt.done and training_end.is_training_complete(job):
        attempt.note_all_finished()
        job.mark_milestone(pb.FINISHED_ALL, job.now, pb.Milestone(step=job.steps.newest))
