"""MindIO's controller ends between two ranks: some have been given the action, others have not, and none of it is lost.

`make slow` takes the words that count most; HAJOB_EVERY_POINT=1 (`make e2e`) takes all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.harness.marks import EVERY_POINT, only_e2e
from hajob.protocol import sidecar_pb2 as pb
from tests.integration.sidecar.policy import InPlacePolicy
from tests.rigs.sidecar_jobs import Job
from tests.rigs.sidecar_recoveries import finish_undisturbed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("HAJOB_MINDIO" in os.environ, reason="only the simulator can be told when to end"),
]
NewJob = Callable[..., Job]
LOCK, STOP, CLEAN, REPAIR, ROLLBACK, NORMAL, REBUILD = 11, 17, 19, 21, 23, 25, 31
RANKS_GIVEN = {LOCK: 3, STOP: 3, CLEAN: 3, REBUILD: 4, ROLLBACK: 4, NORMAL: 4}
POINTS = [(3, action, number) for action, given in RANKS_GIVEN.items() for number in range(1, given)]
POINTS += [(0, NORMAL, 1), (0, REBUILD, 1), (0, REPAIR, 1)]  # who takes the data is told before who gives them
if not EVERY_POINT:
    POINTS = [(3, REBUILD, 2), (3, NORMAL, 2)]


async def lost_between(job: Job, rank: int, action: int, number: int) -> None:
    """A rank dies; the controller that repairs it ends when it has given an action to so many."""
    job.controller_environment["SIM_MINDIO_DIES"] = f"{action}:{number}:{job.directory / 'died'}"
    await job.start()
    InPlacePolicy(job)
    await job.until_step(5)
    job.kill(rank)


@pytest.mark.parametrize(("rank", "action", "number"), POINTS)
async def test_a_repair_goes_on(new_job: NewJob, undisturbed: Path, rank: int, action: int, number: int) -> None:
    job = new_job()
    await lost_between(job, rank, action, number)
    await job.operator.milestone(pb.TAKEN_OVER)
    result = await job.operator.milestone(pb.RESULT)
    assert (result.result_code, result.strategy) == (0, "recover"), result.text
    assert not [fact for fact in job.operator.facts if fact.kind == pb.CONTROLLER_LOST]
    await finish_undisturbed(job, undisturbed, {rank})


@only_e2e
async def test_a_repair_begun_on_one_side_is_told(new_job: NewJob) -> None:
    """Data are given once, and nobody took them: that is known at once, and no handler is waited for."""
    job = new_job()
    await lost_between(job, 3, REPAIR, 1)
    lost = await job.fact(pb.CONTROLLER_LOST)
    assert (lost.code, "to give its data" in lost.message) == ("NoSuccessor", True)
