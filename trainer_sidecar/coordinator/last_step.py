"""When the training last went on, told although everything is ended at once.

An account of an outage begins with the last step that all ranks had in common. A restart can be ordered a few
milliseconds after a fault, when agents have not told of that step yet; so what they say is gathered for a moment
longer, beside the steps of the attempt that begins meanwhile. Where MindIO was given a strategy it has been told.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from trainer_sidecar.coordinator.job import Job, Phase
from trainer_sidecar.coordinator.steps import Steps
from trainer_sidecar.protocol import sidecar_pb2 as pb

GATHER_SECONDS = 0.15


@dataclass
class LastStep:
    """Steps of an attempt that is being ended, and when they are told."""

    steps: Steps
    due: float
    num_ranks: int


def gather(job: Job) -> None:
    """Every rank is about to be ended."""
    incident = job.incident
    told = incident is not None and incident.strategy_sent is not None
    if job.attempt.phase is Phase.RUNNING and job.last_step is None and not told:
        job.last_step = LastStep(copy.deepcopy(job.steps), job.now + GATHER_SECONDS, job.num_ranks)


def finished(job: Job, rank: int, step: int, at: float) -> bool:
    """A step was told of; whether it was of the attempt that is being ended."""
    if job.last_step is None:
        return False
    job.last_step.steps.finished(rank, step, at, job.last_step.num_ranks)
    return True


def tell(job: Job) -> None:
    """Tell of the last common step, once it is time."""
    last = job.last_step
    if last is None or job.now < last.due:
        return
    job.last_step = None
    common = last.steps.last_common(last.num_ranks)
    if common is not None:
        step, at = common
        job.mark(pb.STEP_BEFORE, at, pb.Milestone(step=step))
