"""The coordinator's whole pod is lost in a repair, and with it a store that no gate can read: the step is saved."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from e2e.trainer import checkpoint, store_wire
from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.sidecar_jobs import Job
from tests.rigs.sidecar_recoveries import highest_finished_step, job_in_a_retry

NewJob = Callable[..., Job]


@pytest.mark.parametrize("handler", ["clean", "repair"])
async def test_a_retry_whose_store_is_lost_is_saved(new_job: NewJob, handler: str) -> None:
    """Ranks that cannot meet have been cleaned: what is left is to save, and no step is lost."""
    unreadable = {store_wire.VARIABLE: store_wire.UNHEARD_OF.name}
    job = await job_in_a_retry(new_job, 1 if handler == "repair" else 0, handler, **unreadable)
    for container in (job.coordinator, job.controller):
        container.send(signal.SIGKILL)
    job.operator.milestones.clear()
    job.start_coordinator(incarnation=3)
    await job.operator.milestone(pb.TAKEN_OVER)
    result = await job.operator.milestone(pb.RESULT)
    assert (result.result_code, result.strategy) == (406, "retry"), result.text
    job.operator.order(pb.Order(incarnation=2, revision=2, action=pb.CHECKPOINT, lost_ranks=[1]))
    saved = await job.operator.milestone(pb.RESULT, 2)
    assert (saved.result_code, saved.strategy) == (0, "dump"), saved.text
    assert checkpoint.newest(job.directory / "ckpt") == highest_finished_step(job)
