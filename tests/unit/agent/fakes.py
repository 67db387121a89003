"""A clock that tests set, and the settings of one pod."""

from __future__ import annotations

from pathlib import Path

from trainer_sidecar.agent.clock import SECOND
from trainer_sidecar.agent.settings import AgentSettings, Identity

JOB = "0b1d2c3e-job"


class FakeClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.time = 1000 * SECOND

    def now(self) -> int:
        return self.time

    def pass_seconds(self, seconds: float) -> None:
        self.time += int(seconds * SECOND)


def pod_settings(*, node_rank: int = 1, fence_after: int = 60) -> AgentSettings:
    """Node rank 1 of a job of two nodes with two chips each: ranks 2 and 3."""
    return AgentSettings(
        directory=Path("/nowhere"),
        tls_directory=Path("/nowhere/tls"),
        pod_address="127.0.0.1",
        pod_name="job-1-abc",
        pod_uid="uid-1",
        job_uid=JOB,
        identity=Identity(node_rank, 1),
        ranks_per_node=2,
        world_size=4,
        agent_port=7071,
        mindio_port=8000,
        rendezvous_port=29500,
        output_directory="",
        output_attempt_limit=5,
        checkpoint_directory="",
        fence_after_seconds=fence_after,
    )
