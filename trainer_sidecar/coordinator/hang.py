"""A training that stands still although every process lives.

In a collective everybody waits for the one that is stuck, so the time without a step tells that somebody hangs, and
only the last finished steps may tell who: the ranks that are behind, or nobody in particular, which means all of them.
"""

from __future__ import annotations

from trainer_sidecar.coordinator.conversation import State
from trainer_sidecar.coordinator.job import Job, Phase
from trainer_sidecar.protocol import sidecar_pb2 as pb

WATCHED = frozenset({State.SERVING, State.SHRUNK, State.LOST})


def fact(job: Job) -> pb.Fact | None:
    """The fact that is due now; one for each standstill."""
    steps, assignment = job.steps, job.assignment
    if assignment is None or steps.latest is None or job.attempt.phase is not Phase.RUNNING:
        return None
    if job.incident is not None or job.attempt.first_finish is not None or job.conversation.state not in WATCHED:
        job.hang_told = None
        return None
    rule = assignment.hang_rule
    limit = max(rule.step_time_multiple * (steps.median_seconds or 0.0), float(rule.minimum_seconds))
    still = job.now - steps.latest
    if not limit or still < limit or job.hang_told == steps.latest:
        return None
    job.hang_told = steps.latest
    return _make(job, still)


def _make(job: Job, still: float) -> pb.Fact:
    training = [rank for rank in range(job.roster.world_size) if rank not in job.dropped]
    behind = job.steps.behind(training)
    who = f"ranks {sorted(behind)} are behind" if behind else "no rank is behind the others"
    text = f"every process lives, but no step has ended for {still:.0f} s; step {job.steps.newest} was the last, {who}"
    found = job.new_fact(pb.HANG, "job", text)
    found.ranks.extend(sorted(behind) or training)
    found.incarnation = job.incarnation
    nodes = {job.roster.node_of(rank) for rank in found.ranks}
    found.node_rank = nodes.pop() if len(nodes) == 1 else -1
    return found
