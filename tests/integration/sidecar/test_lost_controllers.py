"""The MindIO controller is lost while the ranks train: another one takes its place, and nothing starts anew."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from e2e.trainer import checkpoint
from hajob.protocol import sidecar_pb2 as pb
from tests.integration.sidecar.policy import InPlacePolicy
from tests.rigs.sidecar_jobs import Job
from tests.rigs.sidecar_recoveries import (
    NewJob,
    controller_process,
    finish_undisturbed,
    highest_finished_step,
    job_in_a_retry,
    kill_controller,
    until_in_handler,
)


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
    await finish_undisturbed(job, undisturbed, {0, 3})


@pytest.mark.slow
async def test_a_hung_controller_is_followed_by_another(new_job: NewJob, undisturbed: Path) -> None:
    """It stands still and keeps port and links: it is ended before it can wake up, and the next fault is repaired."""
    job = new_job()
    await job.start()
    InPlacePolicy(job)
    await job.until_step(5)
    hung = controller_process(job)
    hung.suspend()
    await job.operator.milestone(pb.TAKEN_OVER)
    await job.operator.until(lambda: job.operator.state.controller_ready, "its protection")
    assert not hung.is_running()
    job.kill(3)
    result = await job.operator.milestone(pb.RESULT)
    assert (result.result_code, result.strategy) == (0, "recover")
    assert not [fact for fact in job.operator.facts if fact.kind == pb.CONTROLLER_LOST]
    await finish_undisturbed(job, undisturbed, {3})


async def in_a_move(new_job: NewJob, rank: int, moment: str, seconds: int = 1) -> Job:
    """A training whose ranks of node 1 move to another pod; `rank` stands at a moment of it for so long."""
    job = new_job()
    await job.start()
    await job.until_step(5)
    job.fault(f"rank={rank} at={moment} do=slow seconds={seconds}")
    await job.until_step(7)
    job.operator.order(pb.Order(incarnation=2, revision=1, action=pb.MIGRATE, lost_ranks=[2, 3], replaced_nodes=[1]))
    job.start_pod(1, 2)
    job.assign()
    await until_in_handler(job)
    return job


@pytest.mark.parametrize("handler", ["stop", "clean", "rebuild", "repair", "rollback"])
@pytest.mark.slow
async def test_a_repair_goes_on_with_another_controller(new_job: NewJob, undisturbed: Path, handler: str) -> None:
    """It is lost while a rank stands in a handler; the handler ends, and nothing is done twice."""
    job = new_job()
    await job.start()
    InPlacePolicy(job)
    await job.until_step(5)
    rank = 3 if handler in ("repair", "rollback") else 1
    job.fault(f"rank={rank} at={handler} do=slow seconds=1")
    await job.until_step(7)
    job.kill(3)
    await until_in_handler(job)
    kill_controller(job)
    await job.operator.milestone(pb.TAKEN_OVER)
    result = await job.operator.milestone(pb.RESULT)
    assert (result.result_code, result.strategy) == (0, "recover")
    assert not [fact for fact in job.operator.facts if fact.kind == pb.CONTROLLER_LOST]
    await finish_undisturbed(job, undisturbed, {3})


@pytest.mark.parametrize("handler", ["stop", "clean", "repair", "rollback"])
@pytest.mark.slow
async def test_a_retry_goes_on_with_another_controller(new_job: NewJob, undisturbed: Path, handler: str) -> None:
    job = await job_in_a_retry(new_job, 1, handler)
    kill_controller(job)
    await job.operator.milestone(pb.TAKEN_OVER)
    result = await job.operator.milestone(pb.RESULT)
    assert (result.result_code, result.strategy) == (0, "retry")
    await finish_undisturbed(job, undisturbed, set())


@pytest.mark.parametrize("dead", [True, False])
async def test_a_save_goes_on_with_another_controller(new_job: NewJob, dead: bool) -> None:
    job = new_job()
    await job.start()
    await job.until_step(5)
    job.fault("rank=0 at=dump do=slow seconds=1")
    await job.until_step(7)
    if dead:
        job.kill(3)
        await job.fact(pb.PROCESS_EXITED)
    lost = [3] if dead else []
    job.operator.order(pb.Order(incarnation=2, revision=1, action=pb.CHECKPOINT, lost_ranks=lost))
    await until_in_handler(job)
    kill_controller(job)
    await job.operator.milestone(pb.TAKEN_OVER)
    result = await job.operator.milestone(pb.RESULT)
    assert (result.result_code, result.strategy) == (0, "dump"), result.text
    saved = checkpoint.newest(job.directory / "ckpt")
    assert saved is not None
    assert saved >= highest_finished_step(job)


@pytest.mark.slow
async def test_held_ranks_go_on_with_another_controller(new_job: NewJob, undisturbed: Path) -> None:
    job = new_job()
    operator = job.operator
    await job.start()
    await job.until_step(5)
    operator.order(pb.Order(incarnation=2, revision=1, action=pb.PAUSE, timeout_seconds=300))
    await operator.until(lambda: operator.state.conversation == "Paused", "the pause")
    kill_controller(job)
    await operator.milestone(pb.TAKEN_OVER)
    await operator.until(lambda: operator.state.conversation == "Paused", "the pause of the other controller")
    stood = highest_finished_step(job)
    operator.order(pb.Order(incarnation=2, revision=2, action=pb.CONTINUE))
    await job.until_step(stood + 3)
    InPlacePolicy(job)
    job.kill(3)
    await operator.until(lambda: any(mark.strategy == "recover" for mark, _ in operator.marks(pb.RESULT)), "its repair")
    await finish_undisturbed(job, undisturbed, {3})


@pytest.mark.slow
async def test_a_move_goes_on_with_another_controller(new_job: NewJob, undisturbed: Path) -> None:
    """Lost while the second processes start."""
    job = await in_a_move(new_job, 3, "ready")
    kill_controller(job)
    await job.operator.milestone(pb.TAKEN_OVER)
    result = await job.operator.milestone(pb.RESULT)
    assert (result.result_code, result.strategy) == (0, "migration")
    await finish_undisturbed(job, undisturbed, {2, 3})


@pytest.mark.slow
async def test_lost_in_the_middle_of_a_move_it_is_told(new_job: NewJob) -> None:
    """Every rank has left its step: nobody else can let them go, and only a start anew is left."""
    job = await in_a_move(new_job, 1, "rebuild", seconds=10)  # the kill comes in it, however busy this machine is
    kill_controller(job)
    result = await job.operator.milestone(pb.RESULT)
    assert result.result_code == 499
    assert result.incarnation in {2, 3}  # the move, or what a process that ended meanwhile has begun
    lost = await job.fact(pb.CONTROLLER_LOST)
    assert lost.code == "NoSuccessor"
    assert "for a move" in lost.message
