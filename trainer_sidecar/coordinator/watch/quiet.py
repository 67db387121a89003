"""A training that has been quiet since its start: no rank was started, or no step has ended.

A start script may wait for a file server before it calls torchrun, and nothing says how long it may.
A rank that hangs in the first steps looks like one that compiles for twenty minutes, so nothing is ended for half an
hour (hang.py). People are told long before: what does not happen, who keeps it up as far as that shows, and whether
anybody works at all. It is said in the report's problems, and no fault follows from it.
"""

from __future__ import annotations

from hajob.domain.text import first_of_list, number_runs
from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.states import STEADY
from trainer_sidecar.coordinator.state.attempt import AttemptPhase
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.roster import ARRIVED, STARTED

NO_STEP_ENDED = "NoStepEnded"
NO_RANK_STARTED = "NoRankStarted"
QUIET_SECONDS = 90.0
"""From here on it is told: most first steps are over by then, and a person waits no longer before he looks."""
IDLE_SECONDS = 30.0
"""Without a sign of work for so long nobody works: launchers look every ten seconds (launcher/signs.py)."""


def quiet_problem(job: Job) -> pb.Problem | None:
    """Return what is to be said of a quiet training; None of one that is not quiet, or not yet."""
    if job.attempt.phase is AttemptPhase.OPENING:
        return _problem_of_opening(job)
    since = _awaited_since(job)
    if since is None or job.now - since < QUIET_SECONDS:
        return None
    return pb.Problem(code=NO_STEP_ENDED, message="; ".join(_sentences_of_quiet(job, job.now - since)))


def _problem_of_opening(job: Job) -> pb.Problem | None:
    """Return what is to be said of a start whose pods are all there, and whose ranks are not started."""
    since = job.attempt.complete_since
    if since is None or job.now - since < QUIET_SECONDS:
        return None
    told = [f"no rank has been started for more than {_rough_duration(job.now - since)} since all pods are there"]
    silent = [pod.name for pod in job.roster.reported_pods() if not pod.launcher_ready]
    if silent:
        told.append(f"no call of torchrun or msrun yet by the start script in {first_of_list(silent)}")
        idle = job.now - max(since, job.attempt.sign) >= IDLE_SECONDS
        told.append(
            "nothing that it runs computes or prints: it waits for something"
            if idle
            else "what it runs computes or prints"
        )
    elif job.is_everything_up:
        told.append("an agent still looks at the checkpoints")
    else:
        told.append("what the ranks are to register with does not serve yet")
    return pb.Problem(code=NO_RANK_STARTED, message="; ".join(told))


def _awaited_since(job: Job) -> float | None:
    """Since when a step is awaited; None while none is, or where the rule for hangs knows how long one takes."""
    attempt, steps = job.attempt, job.steps
    if not job.is_running or job.incidents.current is not None or attempt.over_since is not None:
        return None
    if not attempt.stepped:
        return max(attempt.since, steps.latest or 0.0)
    if job.conversation.state not in STEADY and not job.conversation.is_blind:
        return None
    return steps.standstill.since if steps.median_seconds is None else None


def _sentences_of_quiet(job: Job, seconds: float) -> list[str]:
    duration = _rough_duration(seconds)
    if job.attempt.stepped:
        told = [f"no step has ended for more than {duration}", f"step {job.steps.newest} was the last"]
    else:
        told = [f"no step has ended for more than {duration} since the ranks were started"]
    told.append(_describe_progress(job))
    if job.attempt.sign:
        idle = job.now - job.attempt.sign >= IDLE_SECONDS
        told.append(
            "no rank computes or prints: they wait, for one another or for something outside"
            if idle
            else "ranks compute or print: a first compilation may take this long"
        )
    return told


def _rough_duration(seconds: float) -> str:
    """Name a time that doubles each time: each new word is a write of the status."""
    told = QUIET_SECONDS
    while 2 * told <= seconds:
        told *= 2
    return f"{told:.0f} s" if told < 120 else f"{told // 60:.0f} min"


def _describe_progress(job: Job) -> str:
    """Who has not come as far as the others, as far as that is known."""
    roster = job.roster
    training = [rank for rank in range(roster.world_size) if rank not in roster.dropped]
    if job.attempt.stepped:
        who = _name_ranks(sorted(job.steps.ranks_behind(training)))
        return f"behind the others: {who}" if who else "no rank is behind the others"
    there = STARTED if job.without_mindio else ARRIVED
    who = _name_ranks([rank for rank in training if roster.phase_of_rank(rank) not in there])
    if job.without_mindio:
        return f"without a process: {who}" if who else "every rank runs"
    return f"not registered with MindIO: {who}" if who else "every rank has registered with MindIO"


def _name_ranks(ranks: list[int]) -> str:
    """Name ranks; empty for none."""
    runs = first_of_list(number_runs(ranks), 8)
    return (f"rank {runs}" if len(ranks) == 1 else f"ranks {runs}") if ranks else ""
