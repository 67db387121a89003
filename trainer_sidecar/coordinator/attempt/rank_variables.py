"""The variables of every rank of an attempt: those of the assignment, and what only this coordinator knows."""

from __future__ import annotations

from collections.abc import Iterable

from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.roster import RankPod
from trainer_sidecar.coordinator.watch import checkpoints
from trainer_sidecar.launcher.arguments import WITHOUT_MINDIO


def rank_environment(job: Job) -> dict[str, str]:
    """Build the variables of every rank of this attempt; the agent adds those of the pod."""
    assert job.assignment is not None
    environment = {**job.assignment.environment, **attempt_environment(job)}
    if not job.without_mindio:
        environment.pop(WITHOUT_MINDIO, None)
    return environment


def attempt_environment(job: Job) -> dict[str, str]:
    """Build the variables of the attempt: where the rendezvous is, which start this is, what is loaded."""
    endpoint, attempt = job.setup.endpoint, str(job.attempt.number)
    return {
        "MASTER_ADDR": job.first_address if job.setup.is_followed else endpoint.address,
        "MS_SCHED_HOST": endpoint.address,
        "MS_SCHED_PORT": str(endpoint.rendezvous_port),  # dialled here; what MASTER_PORT names is at every rank pod
        "TORCHELASTIC_RESTART_COUNT": attempt,
        "HAJOB_ATTEMPT": attempt,
        **checkpoints.load_environment(job),
    }


def keep_started_environment(job: Job, pods: Iterable[RankPod]) -> None:
    """Keep the environment that the ranks of these pods were started with: the spec may have been edited since.

    Only the pod of node rank 0 tells it. Where that pod is gone, the assignment counts as it is.
    """
    started = next((pod.environment for pod in pods if pod.environment), {})
    own = attempt_environment(job)
    job.keep_environment({name: value for name, value in started.items() if name not in own})
