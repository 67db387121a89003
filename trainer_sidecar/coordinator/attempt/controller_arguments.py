"""The arguments with which the controller host opens every controller of an attempt."""

from __future__ import annotations

from trainer_sidecar.coordinator.state.job import Job


def controller_arguments(job: Job) -> dict[str, object]:
    """Return the host's arguments for one attempt. MindIO's switches follow the ranks' own variable."""
    assert job.assignment is not None
    environment = dict(job.assignment.environment)
    enabled = environment.get("HIGH_AVAILABILITY", "dump,retry,recover").split(",")
    return {
        "attempt": job.attempt.number,
        "world_size": job.assignment.world_size,
        "arf": "recover" in enabled,
        "zit": "elastic-training" in enabled,
        "address": job.setup.endpoint.address,
        "port": job.setup.endpoint.mindio_port,
        "store_port": job.setup.endpoint.rendezvous_port,
        "environment": environment,
    }
