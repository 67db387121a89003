"""How a recovery of a real job without Kubernetes is brought about, and what must hold at its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil

from e2e.trainer import proof
from e2e.trainer.compare import differences
from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.sidecar_jobs import Job

NewJob = Callable[..., Job]
MINDIO_PORT = 8000


async def finish_undisturbed(job: Job, undisturbed: Path, restarted: set[int]) -> None:
    """Let the training end, and prove that it is the one an undisturbed run would have been."""
    job.hurry()
    await job.operator.milestone(pb.FINISHED_ALL)
    assert differences(job.log_directory, undisturbed) == []
    events = proof.load(job.log_directory)
    assert proof.survivors_kept(events, restarted) == []
    assert proof.steps_went_back(events) == []
    assert proof.checkpoints_opened(events) == []


def highest_finished_step(job: Job) -> int:
    """Find the highest step that any rank has finished."""
    return max(int(event["step"]) for event in proof.of(proof.load(job.log_directory), "step_end"))


def controller_process(job: Job) -> psutil.Process:
    """Find the child of the controller host that listens for MindIO's ranks."""
    for process in map(psutil.Process, job.controller.processes()):
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == MINDIO_PORT:
                return process
    raise AssertionError("nobody listens for MindIO's ranks")


async def until_in_handler(job: Job, number: int = 1) -> None:
    """Wait until a rank stands in the handler that a fault was ordered for."""
    await job.operator.until(lambda: len(list(job.log_directory.glob("fault-*"))) >= number, "the handler")


async def job_in_a_retry(new_job: NewJob, rank: int, handler: str, **environment: str) -> Job:
    """Start a training and have it do a step again after a fault of rank 1's memory; `rank` is in a handler of it."""
    job = new_job()
    job.environment |= environment
    await job.start()
    await job.until_step(5)
    job.fault(f"rank={rank} at={handler} do=slow seconds=1")
    job.fault("rank=1 do=raise text=UCE_ERROR")
    await job.fact(pb.MEMORY_FAULT)
    job.operator.order(pb.Order(incarnation=2, revision=1, action=pb.RETRY, lost_ranks=[1]))
    await until_in_handler(job, 2)
    return job


def kill_controller(job: Job) -> None:
    """Kill the controller's process, not its container: host, store and coordinator live on."""
    os.kill(controller_process(job).pid, signal.SIGKILL)
