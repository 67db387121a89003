"""Replaces a lost MindIO controller while the ranks keep training: the door of the takeover's table (table.py).

Every gate lets go of the former controller, the new one's counters are raised past what the ranks have seen, and the
gates make their ranks known to it; only when it knows all of them is it told of anything (docs/protocols/sidecar.md,
"Another controller"). Until then the job is unprotected, and a fault waits.
"""

from __future__ import annotations

from trainer_sidecar.controller_protocol import HUNG
from trainer_sidecar.coordinator.conversation.conversation import EventKind, MindIOEvent
from trainer_sidecar.coordinator.conversation.states import State
from trainer_sidecar.coordinator.repair.driver import feed_conversation
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.takeover import effects, table
from trainer_sidecar.coordinator.takeover.progress import why_impossible
from trainer_sidecar.coordinator.takeover.table import TakeoverEvent


def begin_for_adopted_ranks(job: Job) -> None:
    """Begin for ranks that an earlier coordinator started, and whose controller is gone."""
    table.handle_event(job, TakeoverEvent.ADOPTED)


def begin_instead_of_a_move(job: Job) -> None:
    """Replace a controller that was told of a move which is given up, if another one can take its place.

    The call that takes a move back leaves a flag set in MindIO. At the next fault that MindIO finds itself, the flag
    makes it leave (docs/protocols/mindio.md §7.7).
    """
    if job.change.is_under_way or why_impossible(job):
        return
    feed_conversation(job, MindIOEvent(EventKind.GONE), job.now)
    job.conversation.unname_ranks(list(job.conversation.memory.named))
    table.handle_event(job, TakeoverEvent.MOVE_GIVEN_UP)


def handle_controller_state(job: Job) -> None:
    """Handle a controller or store of which the host says that it is lost or hangs."""
    controller, change = job.controller, job.change
    if (controller.controller == "lost" or _is_controller_hung(job)) and not change.is_loss_known(controller.instance):
        if not job.without_mindio:
            _lose_controller(job, TakeoverEvent.LOST, controller.problem)
    elif controller.store == "lost" and not change.is_under_way:
        _handle_lost_store(job, controller.problem)


def handle_lost_container(job: Job, text: str) -> None:
    """Handle the end of the controller's container: only another pod has another one."""
    _lose_controller(job, TakeoverEvent.CONTAINER_ENDED, text)


def _lose_controller(job: Job, event: TakeoverEvent, text: str) -> None:
    if not job.is_running:
        return
    before = job.conversation.state
    feed_conversation(job, MindIOEvent(EventKind.GONE), job.now)
    # A loss counts once; a conversation that is over (conversation.states.OVER) has nothing to lose.
    if job.conversation.state is State.LOST and (before is not State.LOST or job.change.is_under_way):
        table.handle_event(job, event, text)


def _is_controller_hung(job: Job) -> bool:
    """Whether the controller stands still, and another one can take its place: it is ended when that begins."""
    return job.controller.kind == HUNG and job.controller.is_serving(job.attempt.number) and not why_impossible(job)


def _handle_lost_store(job: Job, text: str) -> None:
    """The store's process has ended alone: another pod's is filled with what was in it, as after the pod's loss."""
    if job.is_running and job.attempt.over_since is None and job.conversation.state is not State.LOST:
        job.effects.request_call("end", {})
        _lose_controller(job, TakeoverEvent.CONTAINER_ENDED, text)


def advance_takeover(job: Job) -> None:
    """Continue the takeover as far as possible now; without MindIO only the store is to be filled."""
    if job.change.is_under_way:
        table.advance_table(job)
    elif job.without_mindio and job.keeping.is_store_held:
        effects.refill_store(job)
