"""When the training last went on, told although everything is ended at once.

An account of an outage begins with the last step that all ranks had in common. A restart or a save can be ordered a
few milliseconds after a fault, when agents have not told of that step yet; so what they say is gathered for a moment
longer, beside the steps of an attempt that begins meanwhile. Where processes had to be started it has been told before
MindIO is given its strategy.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.job import Attempt, Incident, Job, Phase
from trainer_sidecar.coordinator.steps import Steps

GATHER_SECONDS = 0.2  # launchers keep the last quick steps for 0.1 s (docs/protocols/launcher.md)


@dataclass
class LastStep:
    """Steps of an attempt that is being ended or saved, when they are told, and as part of what."""

    steps: Steps
    due: float
    num_ranks: int
    of: Incident | Attempt


def gather(job: Job) -> None:
    """Every rank is about to be ended; the job's own steps begin again."""
    incident, last = job.incident, job.last_step
    told = incident is not None and incident.strategy_sent is not None
    if last is not None:
        last.steps = copy.deepcopy(last.steps)
    elif job.attempt.phase is Phase.RUNNING and not told:
        steps = copy.deepcopy(job.steps)
        job.last_step = LastStep(steps, job.now + GATHER_SECONDS, job.num_ranks, incident or job.attempt)


def wait(job: Job, incident: Incident) -> None:
    """The step that MindIO has locked is saved at once: no step will be repeated."""
    job.last_step = LastStep(job.steps, job.now + GATHER_SECONDS, job.num_ranks, incident)


def is_gathered(job: Job) -> bool:
    """Whether steps that are told now are of an attempt that is being ended."""
    return job.last_step is not None and job.last_step.steps is not job.steps


def finished(job: Job, rank: int, step: int, at: float) -> bool:
    """A step was told of; whether it was of an attempt that is being ended."""
    last = job.last_step
    if last is None or not is_gathered(job):
        return False
    last.steps.finished(rank, step, at, last.num_ranks)
    return True


def heartbeat(job: Job, rank: int, step: int, at: float) -> bool:
    """A heartbeat told of a step; whether it was of an attempt that is being ended."""
    last = job.last_step
    if last is None or not is_gathered(job):
        return False
    last.steps.heartbeat(rank, step, at, last.num_ranks)
    return True


def tell(job: Job) -> None:
    """Tell of the last common step, once it is time."""
    last = job.last_step
    if last is None or job.now < last.due:
        return
    job.last_step = None
    common = last.steps.last_common()
    if common is not None:
        step, at = common
        job.mark_in(last.of, pb.STEP_BEFORE, at, pb.Milestone(step=step))
