"""Which agent looks at the checkpoints, and whether an attempt's ranks may be started (docs/checkpoints.md).

One agent is asked, the one of the lowest node rank that can see them. It is told to set right what an attempt loads
only while none of the job's ranks can write: before they are started, after the last one of an older attempt is gone.
"""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.job import Job, Phase
from trainer_sidecar.coordinator.roster import Pod

LOAD_STEP = "HAJOB_LOAD_STEP"


def are_verified(job: Job) -> bool:
    """Whether the ranks of the attempt that opens may be started; asks an agent where they may not yet."""
    if not job.attempt.alone:
        job.attempt.alone = True
        follow(job, anew=True)
    if _rules(job) is None or _chosen(job) is None:
        return True  # nobody can look: the job is started as it would be without Hajob
    return job.checkpoint is not None and job.checkpoint.attempt == job.attempt.number


def follow(job: Job, *, anew: bool = False) -> None:
    """Tell the agents when it is another one's turn to look."""
    pod = _chosen(job)
    uid = pod.uid if pod is not None else ""
    if uid != job.checkpoint_pod or anew:
        job.dirty.update(one for one in (job.checkpoint_pod, uid) if one)
        job.checkpoint_pod = uid


def order(job: Job, pod: Pod) -> pb.CheckpointOrder | None:
    """What this pod's agent is asked; None: nothing."""
    rules = _rules(job)
    if rules is None or pod.uid != job.checkpoint_pod:
        return None
    prepares = job.attempt.phase is Phase.OPENING and job.attempt.alone
    return pb.CheckpointOrder(rules=rules, prepare_attempt=job.attempt.number if prepares else 0)


def take(job: Job, pod: Pod, report: pb.AgentReport) -> None:
    """An agent's report: whether it sees the checkpoints, and what it found if it is the one that was asked."""
    pod.sees_checkpoints = report.sees_checkpoints
    if not report.HasField("checkpoint") or pod.uid != job.checkpoint_pod or report.checkpoint == job.checkpoint:
        return
    found = pb.CheckpointState()
    found.CopyFrom(report.checkpoint)
    before = job.checkpoint
    if before is not None and found.attempt < before.attempt:  # another agent's turn: what was loaded stays known
        found.attempt, found.loaded_step, found.num_filled = before.attempt, before.loaded_step, before.num_filled
        found.num_refused = before.num_refused
        del found.refused[:]
        found.refused.extend(before.refused)
    job.urgent = job.urgent or before is None or found.attempt != before.attempt
    job.checkpoint, job.changed = found, True


def environment(job: Job) -> dict[str, str]:
    """The verified step, for start scripts that want to know it."""
    found = job.checkpoint
    if found is None or found.attempt != job.attempt.number or found.loaded_step < 0:
        return {}
    return {LOAD_STEP: str(found.loaded_step)}


def problem(job: Job) -> str:
    """Why a start waits; empty when it does not wait for this."""
    found = job.checkpoint
    waits = job.attempt.phase is Phase.OPENING and found is not None and found.attempt != job.attempt.number
    return found.problem if waits and found is not None else ""


def _rules(job: Job) -> pb.CheckpointRules | None:
    assignment = job.assignment
    known = assignment is not None and assignment.HasField("checkpoint_rules")
    return assignment.checkpoint_rules if known and assignment is not None else None


def _chosen(job: Job) -> Pod | None:
    able = (
        pod
        for pod in job.roster.pods.values()
        if pod.sees_checkpoints and pod.listed and not pod.over and job.hears(pod)
    )
    return min(able, key=lambda pod: (pod.node_rank, -pod.incarnation), default=None)
