"""A training that stands still although every process lives.

In a collective everybody waits for the one that is stuck, so the time without a step tells that somebody hangs, and
only the last finished steps may tell who: the ranks that are behind, or nobody in particular, which means all of them.
What follows ends processes, and with them the only trace of what they waited for. So each is asked where it stands
before the fact is told, and the fact carries the answers.
"""

from __future__ import annotations

from hajob.domain.text import last_lines
from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.states import STEADY
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.standstill import Standstill

STACK_SECONDS = 10.0
"""How long answers are waited for: a launcher takes eight seconds at most."""

SETTLED_SECONDS = 4.0
"""A heartbeat comes every two seconds and is told within one: before, who seems to be behind may only be late."""

# In a sentence for people: who hangs in a large job shows in the first ones, or everybody does.
NAMED_RANKS = 16
# Where the fewest ranks stand: who waits is many, who is waited for is few.
SHOWN_PLACES = 2
UNMEASURED_SECONDS = 1800.0
"""The least limit while nobody knows how long it takes: a step after a start or a restart of this process, a save."""

LONGER_THAN_SEEN = 2.0
"""Times the longest wait for a step that has ended by itself: the next save or evaluation may take longer."""

MESSAGE_CHARACTERS = 1000
"""Of the fact: as much as an incident keeps of it. Every stack is in its rank's kept output, whole."""


def due_hang_fact(job: Job) -> pb.Fact | None:
    """Return the fact of a hang that is due now; one for each standstill, None else."""
    watch = job.steps.standstill
    if not _is_watched(job):
        watch.stop_watching()
        return None
    since = watch.expect_step_since(job.now, job.steps.latest)
    limit, still = _standstill_limit(job), job.now - since
    if not limit or still < max(limit, LONGER_THAN_SEEN * watch.longest, watch.patience):
        return None
    found = watch.found
    if found is None or found.since != since:
        found = _ask_for_stacks(job, since)
    if found.told or not (_have_all_answered(job, found) or job.now - found.asked >= STACK_SECONDS):
        return None
    if still < UNMEASURED_SECONDS and found.busy:
        watch.wait_for_slow_work(UNMEASURED_SECONDS)
        return None
    watch.mark_told()
    return _build_hang_fact(job, still, found)


def _is_watched(job: Job) -> bool:
    """Whether steps are to be expected: the training runs, has run before, and nothing is being done about it."""
    if job.assignment is None or not job.is_running:
        return False
    if job.incidents.current is not None or job.attempt.over_since is not None:
        return False
    if job.conversation.state not in STEADY and not job.conversation.is_blind:
        return False
    # After a restart of this process agents still know of steps that were finished before it.
    stepped = (view.step is not None for pod in job.roster.pods.values() for view in pod.views.values())
    return job.steps.latest is not None or any(stepped)


def _standstill_limit(job: Job) -> float:
    """Seconds without a step that make a standstill; 0: none do."""
    assert job.assignment is not None, "only a job that is watched has a limit"
    rule, median = job.assignment.hang_rule, job.steps.median_seconds
    least = float(rule.minimum_seconds)
    if median is None:
        return max(least, UNMEASURED_SECONDS) if rule.step_time_multiple or least else 0.0
    limit = max(rule.step_time_multiple * median, least)
    return max(limit, SETTLED_SECONDS) if limit and job.steps.hears_heartbeats else limit


def _ask_for_stacks(job: Job, since: float) -> Standstill:
    training = [rank for rank in range(job.roster.world_size) if rank not in job.roster.dropped]
    found = job.steps.standstill.begin_standstill(since, job.now, job.steps.ranks_behind(training) or training)
    for rank in found.ranks & job.roster.targets.keys():
        job.roster.targets[rank].ask_for_stack()
        job.touch_pod_of(rank)
    return found


def _have_all_answered(job: Job, found: Standstill) -> bool:
    """Whether everybody has said where it stands who can."""
    pods = (job.roster.pod_of_rank(rank) for rank in found.ranks if rank not in found.answered)
    return not any(pod is not None and job.is_agent_heard(pod) for pod in pods)


def _build_hang_fact(job: Job, still: float, standstill: Standstill) -> pb.Fact:
    ranks = sorted(standstill.ranks)
    everybody = len(ranks) == job.roster.world_size - len(job.roster.dropped)
    behind = f"rank {ranks[0]} is behind" if len(ranks) == 1 else f"ranks {ranks[:NAMED_RANKS]} are behind"
    who = "no rank is behind the others" if everybody else behind
    text = f"every process lives, but no step has ended for {still:.0f} s; step {job.steps.newest} was the last, {who}"
    found = job.new_fact(
        pb.HANG, "job", "\n".join([text, *_describe_places(standstill, MESSAGE_CHARACTERS - len(text))])
    )
    found.ranks.extend(ranks)
    found.incarnation = job.incidents.incarnation
    nodes = {job.roster.node_rank_of(rank) for rank in ranks}
    found.node_rank = nodes.pop() if len(nodes) == 1 else -1
    return found


def _describe_places(standstill: Standstill, room: int) -> list[str]:
    """Where the ranks stand, the places with the fewest of them first: who waits is many, who is waited for is one."""
    rarest = sorted(standstill.places.values(), key=lambda place: (len(place.ranks), place.lowest))[:SHOWN_PLACES]
    headings = [f"{_describe_ranks(sorted(place.ranks))} here:\n" for place in rarest]
    share = (room - sum(len(heading) + 1 for heading in headings)) // max(len(rarest), 1)
    return [heading + last_lines(place.stack, share) for heading, place in zip(headings, rarest, strict=True)]


def _describe_ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} stands"
    return f"rank {ranks[0]} and {len(ranks) - 1} more stand"
