"""The MindIO controller is lost while the job is smaller, becomes smaller or grows: it is the same size afterwards.

Another controller is told who takes part by leaving the same ranks out again (docs/protocols/mindio.md §11.5).

Every handler would take three minutes: `make slow` takes one of each way; HAJOB_EVERY_POINT=1 (`make e2e`) takes all.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from e2e.harness.marks import EVERY_POINT
from e2e.trainer.compare import digests
from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.sidecar_jobs import Job
from tests.rigs.sidecar_recoveries import kill_controller, until_in_handler

pytestmark = pytest.mark.slow

NewJob = Callable[..., Job]
STEPS = 5
SHRINKING = ("clean", "stop", "rebuild")
GROWING = ("rebuild", "ready", "stop", "clean", "repair", "rollback")
TAKEN = None if EVERY_POINT else 1
"""So many handlers of each."""


async def elastic(new_job: NewJob) -> Job:
    """Four ranks on two nodes, of which two may train alone."""
    job = new_job()
    job.environment["HIGH_AVAILABILITY"] = "dump,retry,recover,elastic-training"
    job.arguments = [*job.arguments, "--enable-elastic-training"]
    await job.start()
    await job.until_step(STEPS)
    return job


async def shrink(job: Job) -> None:
    """Node 1 goes; the order is out when this returns."""
    job.pods[1].send(signal.SIGKILL)
    await job.fact(pb.AGENT_SILENT)
    job.operator.order(pb.Order(incarnation=2, revision=1, action=pb.SHRINK, lost_ranks=[2, 3]))


async def is_shrunk(job: Job) -> None:
    """Training with two ranks, protected."""
    operator = job.operator
    await operator.until(lambda: operator.state.conversation == "Shrunk", "training without the lost ranks")
    await job.until_step(operator.state.step + STEPS)


def expand(job: Job) -> None:
    """Another pod for node 1."""
    if any(pod.node_rank == 1 and pod.incarnation == 1 for pod in job.pods):
        del job.pods[1]
    job.operator.order(pb.Order(incarnation=3, revision=1, action=pb.EXPAND, lost_ranks=[2, 3], replaced_nodes=[1]))
    job.start_pod(1, 3)
    job.assign()


async def is_grown_and_ends(job: Job) -> None:
    """At full size, to the last step; nobody was told that there is no controller."""
    operator = job.operator
    await operator.until(lambda: ("upgrade", 0) in results(job), "full size")
    await operator.until(lambda: operator.state.conversation == "Serving", "protection at full size")
    assert not [fact for fact in operator.facts if fact.kind == pb.CONTROLLER_LOST]
    job.hurry()
    await operator.milestone(pb.FINISHED_ALL)
    assert digests(job.log_directory)


def results(job: Job) -> list[tuple[str, int]]:
    """What MindIO said in the end."""
    return [(mark.strategy, mark.result_code) for mark, _ in job.operator.marks(pb.RESULT)]


async def test_a_shrunk_job_grows_under_another_controller(new_job: NewJob) -> None:
    job = await elastic(new_job)
    await shrink(job)
    await is_shrunk(job)
    kill_controller(job)
    await job.operator.milestone(pb.TAKEN_OVER)
    await is_shrunk(job)
    expand(job)
    await is_grown_and_ends(job)


@pytest.mark.parametrize("handler", SHRINKING[:TAKEN])
async def test_a_shrink_goes_on_with_another_controller(new_job: NewJob, handler: str) -> None:
    job = await elastic(new_job)
    job.fault(f"rank=1 at={handler} do=slow seconds=1")
    await job.until_step(STEPS + 2)
    await shrink(job)
    await until_in_handler(job)
    kill_controller(job)
    await job.operator.milestone(pb.TAKEN_OVER)
    await is_shrunk(job)
    assert results(job)[-2:] == [("downgrade", 201), ("downgrade", 0)]
    expand(job)
    await is_grown_and_ends(job)


@pytest.mark.parametrize("handler", GROWING[:TAKEN])
async def test_growing_goes_on_with_another_controller(new_job: NewJob, handler: str) -> None:
    """Lost while the ranks that come back start, or while any of them stands in a handler of the growth."""
    job = await elastic(new_job)
    await shrink(job)
    await is_shrunk(job)
    rank = 3 if handler in ("ready", "repair", "rollback") else 1
    job.fault(f"rank={rank} at={handler} do=slow seconds=1")
    await job.until_step(job.operator.state.step + 2)
    expand(job)
    await until_in_handler(job)
    kill_controller(job)
    await job.operator.milestone(pb.TAKEN_OVER)
    await is_grown_and_ends(job)
