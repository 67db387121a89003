"""Guards of the takeover's rows: each answers one question; docs/internals/takeover.md has them by docstring."""

from __future__ import annotations

from trainer_sidecar.coordinator.conversation.effects import unrepaired_ranks
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.roster import ALIVE
from trainer_sidecar.coordinator.takeover import partial_action, progress

LOOK_SECONDS = 0.2
"""Interval of what takes longer than a message of thousands of agents may: a look at every rank of the job."""

HANDLER_SECONDS = 180.0
"""MindIO's own limit for what a handler of the trainer does: what has not ended by then will not."""

TAKEOVER_SECONDS = 300.0
"""How long a takeover may take from the loss on: handlers of the trainer may run for `HANDLER_SECONDS`, everything else
takes seconds, each controller that cannot be wound on about ten. After that nobody waits for it any more."""


def always_applies(_job: Job) -> bool:
    """Return whether none of the rows above applied: this one always does."""
    return True


def is_takeover_possible(job: Job) -> bool:
    """Return whether another controller can take the place, as far as is known at once."""
    return not progress.why_impossible(job)


def steps_are_over(job: Job) -> bool:
    """Return whether the last step has ended on every rank, after which nothing is recovered."""
    return job.attempt.over_since is not None


def is_takeover_overdue(job: Job) -> bool:
    """Return whether 300 s have passed since the loss."""
    return job.now - job.change.since >= TAKEOVER_SECONDS


def store_is_held(job: Job) -> bool:
    """Return whether a store is lost, and nobody may reach another one yet."""
    return job.keeping.is_store_held


def links_are_gone(job: Job) -> bool:
    """Return whether no gate has a link to the former controller, and what was in a lost store is known."""
    if job.keeping.wanted_word or progress.is_any_late(job, progress.has_let_go):
        return False
    return not (job.change.untold and job.now - job.change.looked < LOOK_SECONDS)


def ranks_stand_still(job: Job) -> bool:
    """Return whether every rank has come as far as the former controller's words lead it, or will come no further."""
    if job.change.looked != job.now or job.change.untold:
        return False
    lost = unrepaired_ranks(job.conversation.memory) or progress.ranks_in_repair(job)
    return partial_action.is_half_repaired(job, lost) or not _handlers_run(job)


def _handlers_run(job: Job) -> bool:
    """Whether a rank does what the former controller asked for: its answer tells how far it is, and it ends once."""
    if job.now - job.change.since >= HANDLER_SECONDS:
        return False
    return any(one.busy and job.roster.phase_of_rank(one.rank) in ALIVE for _, one in progress.told_ranks(job))


def cannot_go_on(job: Job) -> bool:
    """Return whether no other controller can go on from where the ranks stand."""
    return bool(job.change.impossible) or (bool(job.change.saves) and job.order is None)


def another_one_serves(job: Job) -> bool:
    """Return whether the controller that was asked for serves."""
    change, controller = job.change, job.controller
    return change.asked and controller.is_serving(job.attempt.number) and controller.instance != change.former


def is_to_be_asked_for(job: Job) -> bool:
    """Return whether the controller container starts none, or has not done so within a second."""
    controller, change = job.controller, job.change
    if not controller.connected or (controller.controller == "starting" and controller.instance != change.former):
        return False
    return not change.asked or job.now - controller.requested_at >= job.setup.limits.controller_again_seconds


def is_time_to_look(job: Job) -> bool:
    """Return whether every gate has made its ranks known, or 0.2 s have passed since the last look."""
    if job.now - job.change.looked >= LOOK_SECONDS:
        return True
    return not progress.is_any_late(job, progress.has_made_known)


def every_rank_is_known(job: Job) -> bool:
    """Return whether the new controller knows every rank of the job, and the store may be reached."""
    if job.change.looked != job.now or job.keeping.is_store_held:
        return False
    states = map(progress.gate_state, progress.heard_gates(job))
    known = {rank for state in states if state.controller == job.controller.instance for rank in state.registered}
    return known.issuperset(range(job.roster.world_size))
