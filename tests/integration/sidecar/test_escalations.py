"""What MindIO falls back to when something fails in the middle, and what is left of the training then.

Each test goes from one fall to the next in one job, because a restart in the same pods costs less than a new job. What
is left is compared with an undisturbed run step by step; nobody waits for the end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.proof.window import Reference
from e2e.trainer import checkpoint, proof
from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.sidecar_jobs import Job
from tests.rigs.sidecar_recoveries import highest_finished_step

pytestmark = pytest.mark.slow

NewJob = Callable[..., Job]
NAMED_SECONDS = 10.0
"""The specification's bound from the failure of a handler to its name."""


async def goes_on(job: Job, undisturbed: Path) -> None:
    """The newest attempt trains, and after every step so far each rank's state was that of an undisturbed run."""
    newest = checkpoint.newest(job.directory / "ckpt")
    assert newest is not None
    await job.until_step(newest + 4)
    events = proof.load(job.log_directory)
    assert Reference(undisturbed).differences(events) == []
    told = {event["rank"] for event in proof.of(events, "state") if event["attempt"] == job.attempt}
    assert told == set(range(job.world_size))


async def ordered(job: Job, order: pb.Order) -> tuple[int, str]:
    """Give an order; code and strategy of the result that follows, which comes in time when it is a failure."""
    operator = job.operator
    results = len(operator.marks(pb.RESULT))
    operator.order(order)
    await operator.milestone(pb.RESULT, results + 1)
    result, at = operator.marks(pb.RESULT)[results]
    chosen = operator.marks(pb.STRATEGY_SENT)[-1][1]
    assert result.result_code == 0 or at - chosen < NAMED_SECONDS + float(job.action_limit or 0), result.text
    return result.result_code, result.strategy


async def faulty(job: Job, line: str, action: pb.Action) -> tuple[int, str]:
    """Let a rank report a memory fault, and answer it; the result."""
    operator = job.operator
    facts, incident = len(operator.facts), operator.state.incarnation + 1
    job.fault(line)
    await operator.until(lambda: len(operator.facts) > facts, "the memory fault")
    assert operator.facts[-1].kind == pb.MEMORY_FAULT
    ranks = list(operator.facts[-1].ranks)
    return await ordered(job, pb.Order(incarnation=incident, revision=1, action=action, lost_ranks=ranks))


async def killed(job: Job, rank: int) -> tuple[int, str]:
    """Kill a rank's process and order a new one; the result."""
    operator = job.operator
    facts, incident = len(operator.facts), operator.state.incarnation + 1
    job.kill(rank)
    await operator.until(lambda: len(operator.facts) > facts, "the death")
    order = pb.Order(incarnation=incident, revision=1, action=pb.IN_PLACE, lost_ranks=[rank], restart_ranks=[rank])
    return await ordered(job, order)


def saving(job: Job, ranks: list[int]) -> pb.Order:
    """The order to save what is left of the incident that is open."""
    return pb.Order(incarnation=job.operator.state.incarnation, revision=2, action=pb.CHECKPOINT, lost_ranks=ranks)


async def with_checkpoints(new_job: NewJob, step: int, action_limit: str = "") -> Job:
    """A training that saves periodically and has come to this step; so long MindIO waits for ranks in an action."""
    job = new_job()
    job.action_limit = action_limit
    job.keep_checkpoints()
    await job.start()
    await job.until_step(step)
    return job


def text(job: Job) -> str:
    """What MindIO said last, which is what the operator shows."""
    return job.operator.marks(pb.RESULT)[-1][0].text


async def test_failed_retry_dead_successor_and_failed_stop(new_job: NewJob, undisturbed: Path) -> None:
    job = await with_checkpoints(new_job, step=8, action_limit="8")
    operator = job.operator
    job.fault("rank=1 at=clean do=fail")
    assert await faulty(job, "rank=1 do=raise text=UCE_ERROR", pb.RETRY) == (405, "retry")
    await operator.until(lambda: operator.state.conversation == "RetryRefused", "the other decision")
    order = pb.Order(incarnation=2, revision=2, action=pb.IN_PLACE, lost_ranks=[1], restart_ranks=[1])
    assert await ordered(job, order) == (0, "recover")
    events = proof.load(job.log_directory)
    assert (proof.survivors_kept(events, {1}), proof.steps_went_back(events)) == ([], [])
    assert proof.checkpoints_opened(events) == []

    job.fault("rank=3 at=ready do=kill after=0.5")
    facts, results = len(operator.facts), len(operator.marks(pb.RESULT))
    job.kill(3)
    await operator.until(lambda: len(operator.facts) > facts, "the death")
    operator.order(pb.Order(incarnation=3, revision=1, action=pb.IN_PLACE, lost_ranks=[3], restart_ranks=[3]))
    await operator.until(lambda: len(operator.facts) > facts + 1, "the death of its successor")
    assert (operator.state.conversation, len(operator.marks(pb.RESULT))) == ("Recovering", results)
    assert await ordered(job, saving(job, [3])) == (0, "dump")
    saved = checkpoint.newest(job.directory / "ckpt")
    assert saved is not None
    assert saved >= highest_finished_step(job)
    await job.start_again()
    await job.until_step(saved + 2)
    opened = proof.of(proof.load(job.log_directory), "load_checkpoint")
    assert [(event["rank"], event["step"]) for event in sorted(opened, key=lambda one: one["rank"])] == [
        (rank, saved) for rank in range(4)
    ]

    job.fault("rank=0 at=stop do=raise text=no_stop")
    assert await killed(job, 2) == (499, "recover")
    assert "stop failed" in text(job)
    assert operator.state.conversation == "Closed"
    await job.start_again()
    await goes_on(job, undisturbed)


async def test_damaged_data_is_never_saved(new_job: NewJob, undisturbed: Path) -> None:
    job = await with_checkpoints(new_job, step=8)
    operator = job.operator
    resumed = len(operator.marks(pb.RESUMED))
    assert await faulty(job, "rank=1 do=raise text=HBM_MULTI_BIT_ECC", pb.RETRY) == (0, "retry")
    repairs = proof.of(proof.load(job.log_directory), "repair")
    assert sorted((one["rank"], one["type"], one["source"]) for one in repairs) == [
        (rank, 6 if rank == 1 else 5, "checkpoint") for rank in range(4)
    ]
    loaded = int(repairs[0]["step"])
    again = await operator.milestone(pb.RESUMED, resumed + 1)
    assert (again.step, again.incarnation) == (loaded + 1, 2)

    await job.until_step(loaded + 3)
    assert await faulty(job, "rank=2 do=raise text=HBM_MULTI_BIT_ECC_time_us=1", pb.CHECKPOINT) == (499, "dump")
    assert text(job) == "do not support dump!"
    assert operator.state.conversation == "Closed"
    assert {event["kind"] for event in proof.of(proof.load(job.log_directory), "save")} == {"periodic"}
    await job.start_again()
    await goes_on(job, undisturbed)


ANSWERS = (
    "rank=1 at=rebuild do=nonsense answer=text",
    "rank=3 at=repair do=nonsense answer=17",
    "rank=2 at=rollback do=nonsense answer=17",
    "rank=0 at=dump do=nonsense answer=text",
)
"""Whatever a handler returns that MindIO does not ask for changes nothing."""

FAILURES = (
    ("rank=3 at=repair", "do repair failed", ()),
    ("rank=1 at=rebuild", "do repair failed", ()),
    ("rank=1 at=rollback", "rollback failed", ("rank=0 at=dump do=raise text=no_space",)),
)
"""A handler that raises, MindIO's words for it, and what goes wrong while the rest is saved.

The receiver's repair fails, not the sender's: MindIO hears from every rank first, and a receiver without a sender has
nothing to say until the limit of its action.
"""


async def test_a_rank_that_dies_in_clean_leaves_a_saved_step(new_job: NewJob, undisturbed: Path) -> None:
    """A clean that returns no number aborts its process (mindio.md, 7.12); its gate answers, MindIO would wait."""
    job = await with_checkpoints(new_job, step=8, action_limit="8")
    operator = job.operator
    job.fault("rank=2 at=clean do=nonsense answer=none")
    known = len(operator.facts)
    assert await killed(job, 3) == (406, "recover")
    died = [(list(fact.ranks), fact.code) for fact in operator.facts[known:]]
    assert died == [([3], "SIGKILL"), ([2], "SIGABRT")]
    assert operator.state.conversation == "FailedOpen"
    assert await ordered(job, saving(job, [2, 3])) == (0, "dump"), text(job)
    before = checkpoint.newest(job.directory / "ckpt")
    assert before is not None
    assert before >= highest_finished_step(job), "a step was lost"
    await job.start_again()
    await goes_on(job, undisturbed)


async def test_bad_handlers_are_named_and_leave_nothing_hanging(new_job: NewJob, undisturbed: Path) -> None:
    job = await with_checkpoints(new_job, step=6)
    operator = job.operator
    for line in ANSWERS:
        job.fault(line)
    assert await killed(job, 3) == (0, "recover")
    for handler, words, more in FAILURES:
        for line in (f"{handler} do=raise text=broken", *more):
            job.fault(line)
        assert await killed(job, 3) == (406, "recover"), handler
        assert words in text(job)
        assert operator.state.conversation == "FailedOpen"
        code = 499 if more else 0
        assert await ordered(job, saving(job, [3])) == (code, "dump"), text(job)
        assert operator.state.conversation == "Closed"
        before = checkpoint.newest(job.directory / "ckpt")
        assert before is not None
        assert more or before >= highest_finished_step(job), "a step was lost"
        await job.start_again()
        await job.until_step(before + 2)
    assert "save ckpt failed" in text(job)
    orders = len(ANSWERS) + len(FAILURES) + 1
    assert len(list(job.log_directory.glob("fault-*"))) == orders, "one was never met"
    await goes_on(job, undisturbed)
