"""Actions other than starting ranks again: retry, saving, and the falls from one to the next."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from e2e.trainer import proof
from e2e.trainer.compare import digests
from hajob.protocol import sidecar_pb2 as pb
from tests.integration.sidecar.policy import InPlacePolicy
from tests.rigs.sidecar_jobs import Job, is_alive
from tests.rigs.sidecar_recoveries import finish_undisturbed

NewJob = Callable[..., Job]


RETRIED: tuple[tuple[str, pb.FactKind, list[int]], ...] = (
    ("UCE_ERROR", pb.MEMORY_FAULT, [0, 1]),
    ("HBM_MULTI_BIT_ECC_time_us=NOW", pb.MEMORY_FAULT, [0, 1]),
    ("HCCL_OP_RETRY_FAILED", pb.COMMUNICATION_FAULT, []),
)
"""What a rank reports, what becomes of it, and MindIO's types of repair: a partner sends (0), the rank rebuilds (1)."""


async def test_reported_faults_are_retried_in_the_same_process(new_job: NewJob, undisturbed: Path) -> None:
    job = new_job()
    operator = job.operator
    await job.start()
    repairs: list[int] = []
    for number, (text, kind, types) in enumerate(RETRIED, start=1):
        await job.until_step(operator.state.step + 2)
        job.fault(f"rank={number} do=raise text={text}")
        await operator.until(lambda number=number: len(operator.facts) >= number, text)  # type: ignore[misc]
        assert (operator.facts[-1].kind, list(operator.facts[-1].ranks)) == (kind, [number]), text
        operator.order(pb.Order(incarnation=number + 1, revision=1, action=pb.RETRY, lost_ranks=[number]))
        result = await operator.milestone(pb.RESULT, number)
        assert (result.result_code, result.strategy, result.incarnation) == (0, "retry", number + 1), text
        repairs += types
        assert sorted(repairs) == sorted(one["type"] for one in proof.of(proof.load(job.log_directory), "repair")), text
    await finish_undisturbed(job, undisturbed, set())


async def test_a_memory_fault_can_be_recovered_with_a_new_process(new_job: NewJob, undisturbed: Path) -> None:
    job = new_job()
    await job.start()
    await job.until_step(5)
    job.fault("rank=1 do=raise text=UCE_ERROR")
    await job.fact(pb.MEMORY_FAULT)
    order = pb.Order(incarnation=2, revision=1, action=pb.IN_PLACE, lost_ranks=[1], restart_ranks=[1])
    job.operator.order(order)
    result = await job.operator.milestone(pb.RESULT)
    assert (result.result_code, result.strategy) == (0, "recover")
    await finish_undisturbed(job, undisturbed, {1})


async def test_a_checkpoint_on_request_is_saved_and_every_rank_ended(new_job: NewJob) -> None:
    job = new_job()
    await job.start()
    await job.until_step(5)
    pids = [job.pid(rank) for rank in range(4)]
    job.operator.order(pb.Order(incarnation=2, revision=1, action=pb.CHECKPOINT))
    result = await job.operator.milestone(pb.RESULT)
    assert (result.result_code, result.strategy) == (0, "dump")
    await job.operator.until(lambda: not any(map(is_alive, pids)), "the end of all ranks")
    assert job.operator.facts == []
    assert list((job.directory / "ckpt").rglob("latest_checkpointed_iteration.txt"))


async def test_a_death_after_the_naming_is_saved_instead(new_job: NewJob) -> None:
    """Rank 2 dies while it rebuilds: MindIO answers 406, and the step is saved by those that are left."""
    job = new_job()
    job.action_limit = "8"  # so long MindIO waits for it
    job.arguments = [*job.arguments, "--fault", "rank=2 at=rebuild do=kill"]
    await job.start()
    policy = InPlacePolicy(job)
    await job.until_step(5)
    job.kill(3)
    await job.operator.until(lambda: len(job.operator.facts) >= 2, "the second death")
    job.operator.on_fact = lambda _: None
    assert policy is not None
    order = pb.Order(incarnation=2, revision=9, action=pb.CHECKPOINT, lost_ranks=[2, 3])
    job.operator.order(order)
    await job.operator.until(lambda: job.operator.state.conversation == "Closed", "the end of the conversation")
    results = [(mark.result_code, mark.strategy) for mark, _ in job.operator.marks(pb.RESULT)]
    assert results == [(406, "recover"), (0, "dump")]


async def test_the_operator_stays_away(new_job: NewJob, undisturbed: Path) -> None:
    job = new_job()
    job.standing = pb.StandingOrders(decision_timeout_milliseconds=1500, allow_in_place=True)
    await job.start()
    await job.until_step(5)
    await job.operator.hang_up()
    job.kill(2)
    await job.operator.until(lambda: "recover" in job.coordinator.log.read_text(), "the standing order")
    job.operator.dial()
    result = await job.operator.milestone(pb.RESULT)
    assert result.result_code == 0
    await finish_undisturbed(job, undisturbed, {2})


async def test_ranks_are_moved_off_a_node_without_a_fault(new_job: NewJob, undisturbed: Path) -> None:
    """A hot switch: the second pod's processes take over from running ones."""
    job = new_job()
    await job.start()
    await job.until_step(10)
    old = [job.pid(2), job.pid(3)]
    order = pb.Order(incarnation=2, revision=1, action=pb.MIGRATE, lost_ranks=[2, 3], replaced_nodes=[1])
    job.operator.order(order)
    job.start_pod(1, 2)
    job.assign()
    result = await job.operator.milestone(pb.RESULT)
    assert (result.result_code, result.strategy) == (0, "migration")
    await job.operator.until(lambda: not any(map(is_alive, old)), "the end of the replaced processes")
    await finish_undisturbed(job, undisturbed, {2, 3})


async def test_shrink_and_grow_again(new_job: NewJob) -> None:
    job = new_job()
    job.environment["HIGH_AVAILABILITY"] = "dump,retry,recover,elastic-training"
    job.arguments = [*job.arguments, "--enable-elastic-training"]
    operator = job.operator
    await job.start()
    await job.until_step(10)
    job.pods[1].send(signal.SIGKILL)
    await job.fact(pb.AGENT_SILENT)
    operator.order(pb.Order(incarnation=2, revision=1, action=pb.SHRINK, lost_ranks=[2, 3]))
    await operator.milestone(pb.RESULT, number=2)
    assert [mark.result_code for mark, _ in operator.marks(pb.RESULT)] == [201, 0]
    await operator.until(lambda: operator.state.conversation == "Shrunk", "training without the lost ranks")
    step = operator.state.step
    await job.until_step(step + 10)
    del job.pods[1]
    order = pb.Order(incarnation=3, revision=1, action=pb.EXPAND, lost_ranks=[2, 3], replaced_nodes=[1])
    operator.order(order)
    job.start_pod(1, 3)
    job.assign()
    result = await operator.milestone(pb.RESULT, number=3)
    assert (result.result_code, result.strategy) == (0, "upgrade")
    assert operator.state.conversation == "Serving"
    job.hurry()
    await operator.milestone(pb.FINISHED_ALL)
    assert digests(job.log_directory)
