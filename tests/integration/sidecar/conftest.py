"""Jobs of real processes for the tests of this directory; each leaves nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.rigs.sidecar_jobs import Job

STEPS = 260
ARGUMENTS = ["--tensor-model-parallel-size", "1", "--train-iters", str(STEPS), "--step-time-ms", "100"]
"""Twenty-six seconds for what a test does to the training; `Job.hurry` brings it to its end."""


@pytest.fixture
async def new_job(tmp_path: Path) -> AsyncIterator[Callable[..., Job]]:
    """Makes jobs of four ranks, on two nodes unless told otherwise."""
    jobs: list[Job] = []

    def make(nodes: int = 2) -> Job:
        directory = tmp_path / f"job-{len(jobs)}"
        directory.mkdir()
        jobs.append(Job(directory, nodes, 4 // nodes, ARGUMENTS))
        return jobs[-1]

    yield make
    for job in jobs:
        await job.stop()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events, weights and the state after every step of the same training without any fault."""
    import asyncio

    from hajob.protocol import sidecar_pb2 as pb

    directory = tmp_path_factory.mktemp("undisturbed")

    async def train() -> Path:
        job = Job(directory, 2, 2, [*ARGUMENTS[:-1], "0", "--log-digests"])
        try:
            await job.start()
            await job.operator.milestone(pb.FINISHED_ALL)
        finally:
            await job.stop()
        return job.log_directory

    return asyncio.run(train())
