"""Whether anything is left to train: the one place of this process that knows.

After the last step ranks save, convert, upload and end. MindIO recovers nothing then, so the conversation is over, no
fault stops the training, and nobody waits for a step. Who has died is told, and the operator decides: before the final
checkpoint is complete a lost rank may have taken it along, afterwards nothing can be lost
(docs/protocols/sidecar.md, "The end of a training").
"""

from __future__ import annotations

from collections.abc import Iterator

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.state.job import Job


def training_end_of(job: Job) -> pb.TrainingEnd:
    """Return how far the attempt has come on its way to the end."""
    if job.attempt.over_since is None or not job.is_running:
        return pb.TRAINS
    found, newest = job.checkpoints.found, max((step or 0 for step in _newest_steps(job)), default=0)
    saved = found is not None and found.tracked and not found.problem and found.step >= newest > 0
    return pb.FINAL_CHECKPOINT if saved else pb.LAST_STEP_ENDED


def is_training_complete(job: Job) -> bool:
    """Return whether no rank works: each has ended in order, or, once nothing can be lost, has ended at all."""
    attempt, roster = job.attempt, job.roster
    if attempt.over_since is None:
        return False
    left = set(_ranks_in_training(job)) - attempt.finished
    if left and training_end_of(job) == pb.FINAL_CHECKPOINT:
        left -= dead_ranks(job)
    return not left and bool(roster.world_size)


def dead_ranks(job: Job) -> set[int]:
    """Return the ranks that have ended out of order, or whose pod is not heard."""
    found = set()
    for rank in _ranks_in_training(job):
        pod = job.roster.pod_of_rank(rank)
        unheard = (
            pod is None or not pod.is_current or (job.contacts.is_agent_silent(pod.uid) and not job.contacts.doubts)
        )
        if rank not in job.attempt.finished and (unheard or job.roster.phase_of_rank(rank) == pb.DEAD):
            found.add(rank)
    return found


def are_at_the_last_step(job: Job) -> bool:
    """Return whether every rank has ended the last step; without MindIO those count that print theirs."""
    last, common = job.attempt.last_step, job.steps.common_step
    if job.without_mindio:
        return bool(last) and common is not None and common[0] == last
    return bool(last and job.roster.world_size) and all(step == last for step in _newest_steps(job))


def _newest_steps(job: Job) -> Iterator[int | None]:
    """Yield the newest step that each rank's present process has finished, None: unknown."""
    for rank in _ranks_in_training(job):
        pod = job.roster.pod_of_rank(rank)
        view = pod.views.get(rank) if pod is not None else None
        yield view.step if view is not None else None


def _ranks_in_training(job: Job) -> Iterator[int]:
    return (rank for rank in range(job.roster.world_size) if rank not in job.roster.dropped)
