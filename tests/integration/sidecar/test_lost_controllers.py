"""The MindIO controller is lost while the ranks train: another one takes its place, and nothing starts anew."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil

from hajob.protocol import sidecar_pb2 as pb
from tests.integration.sidecar.policy import InPlacePolicy
from tests.integration.sidecar.rig import Job
from tests.integration.sidecar.test_recoveries import finish

NewJob = Callable[..., Job]
MINDIO_PORT = 8000


def controller_process(job: Job) -> psutil.Process:
    """The child of the controller host that listens for MindIO's ranks."""
    for process in map(psutil.Process, job.controller.processes()):
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == MINDIO_PORT:
                return process
    raise AssertionError("nobody listens for MindIO's ranks")


async def test_faults_before_and_after_a_lost_controller_are_recovered(new_job: NewJob, undisturbed: Path) -> None:
    job = new_job()
    await job.start()
    InPlacePolicy(job)
    await job.until_step(5)
    job.kill(3)
    await job.operator.milestone(pb.RESULT)
    os.kill(controller_process(job).pid, signal.SIGKILL)
    await job.operator.milestone(pb.TAKEN_OVER)
    await job.operator.until(lambda: job.operator.state.controller_ready, "its protection")
    job.kill(0)
    result = await job.operator.milestone(pb.RESULT, 2)
    assert (result.result_code, result.strategy) == (0, "recover")
    assert not [fact for fact in job.operator.facts if fact.kind == pb.CONTROLLER_LOST]
    await finish(job, undisturbed, {0, 3})
