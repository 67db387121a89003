"""Whether a start is over: from the end of the first step on MindIO can bring back what was trained.

MindIO knows that by itself; here it is learned from lines and heartbeats, which come up to two seconds later. So a
fault that comes before is held back for a moment: the stop makes MindIO collect every rank's step, and the gates pass
on what the living ones answer. The operator then hears of the first step before it hears of the fault, or, where
nothing was trained, of the fault alone.
"""

from __future__ import annotations

from collections.abc import Collection

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.state.job import Job

ANSWER_SECONDS = 1.0
"""The answers to a stop are here within 0.05 s where machines have time; the restart that follows takes far longer."""


def hold_doubtful_facts(job: Job) -> None:
    """Hold facts back for a moment where it is not known whether the first step has ended: one is about to be told."""
    if job.is_running and job.attempt.linked and not job.attempt.stepped:
        job.effects.hold_back(job.now, ANSWER_SECONDS)


def follow_first_step(job: Job, lost: Collection[int] = ()) -> None:
    """Note the end of the first step, once it is known. `lost`: ranks of which nothing more will be heard.

    It does not end an outage that is open already: that is ended by the first step after the outage.
    """
    attempt = job.attempt
    if attempt.stepped or not attempt.linked:
        return
    held_since = job.effects.held_since
    missing = lost if held_since is None else job.conversation.memory.lost.keys() | lost
    begun = job.steps.first_common_step(missing, job.num_telling)
    if begun is None:
        return
    attempt.note_first_step()
    milestone = pb.Milestone(kind=pb.RESUMED, incarnation=attempt.incarnation, step=begun[0])
    if held_since is not None:
        job.effects.queue_milestone_ahead(milestone, min(begun[1], held_since))
        job.effects.release_held()
    elif job.incidents.current is None:
        job.effects.queue_milestone(milestone, begun[1])
