"""Agent, launcher, coordinator, controller host, MindIO and trainer together: recoveries that keep the weights."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from hajob.protocol import sidecar_pb2 as pb
from tests.integration.sidecar.policy import InPlacePolicy
from tests.rigs.sidecar_jobs import Job, is_alive
from tests.rigs.sidecar_recoveries import finish_undisturbed

NewJob = Callable[..., Job]


async def test_a_killed_process_is_recovered_in_place(new_job: NewJob, undisturbed: Path) -> None:
    job = new_job()
    await job.start()
    InPlacePolicy(job)
    await job.until_step(5)
    job.kill(3)
    await job.operator.milestone(pb.RESUMED)
    result = await job.operator.milestone(pb.RESULT)
    assert (result.result_code, result.strategy, result.incarnation) == (0, "recover", 2)
    await finish_undisturbed(job, undisturbed, {3})


async def test_rank_0_is_recovered_like_any_other(new_job: NewJob, undisturbed: Path) -> None:
    job = new_job()
    await job.start()
    InPlacePolicy(job)
    await job.until_step(5)
    job.kill(0)
    await job.operator.milestone(pb.RESULT)
    await finish_undisturbed(job, undisturbed, {0})


async def test_a_death_right_after_the_first_step_is_repaired(new_job: NewJob, undisturbed: Path) -> None:
    """One rank prints, heartbeats come every two seconds: nobody has told yet that the first step has ended."""
    job = new_job()
    job.environment["TOY_MANNERS"] = ""
    job.arguments = [*job.arguments, "--fault", "rank=1 step=2 do=kill"]
    InPlacePolicy(job)
    await job.start()
    await job.fact(pb.PROCESS_EXITED)
    assert [mark.step for mark, _ in job.operator.marks(pb.RESUMED)][:1] == [1]
    result = await job.operator.milestone(pb.RESULT)
    assert (result.result_code, result.strategy) == (0, "recover")
    await finish_undisturbed(job, undisturbed, {1})


async def test_second_death_during_a_replacement_is_recovered(new_job: NewJob, undisturbed: Path) -> None:
    """Node 3 is being replaced, its new pod takes its time; three seconds later the process of node 0 dies."""
    job = new_job(nodes=4)
    operator = job.operator
    await job.start()
    await job.until_step(10)
    job.pods[3].send(signal.SIGKILL)
    await operator.until(lambda: bool(operator.facts), "a fact about node 3")
    order = pb.Order(incarnation=2, revision=1, action=pb.REPLACE, lost_ranks=[3], replaced_nodes=[3])
    operator.order(order)
    await operator.milestone(pb.STOPPED)
    await asyncio.sleep(3.0)
    job.kill(0)
    await operator.until(lambda: any(0 in fact.ranks for fact in operator.facts), "the second death")
    widened = pb.Order(incarnation=2, revision=2, action=pb.REPLACE, lost_ranks=[0, 3], replaced_nodes=[3])
    widened.restart_ranks.append(0)
    operator.order(widened)
    del job.pods[3]
    job.start_pod(3, 2)
    job.assign()
    result = await operator.milestone(pb.RESULT)
    assert result.result_code == 0
    assert len(operator.marks(pb.NAMED)) == 1
    await finish_undisturbed(job, undisturbed, {0, 3})


async def test_frozen_node_is_replaced_and_returns_harmless(new_job: NewJob, undisturbed: Path) -> None:
    job = new_job()
    await job.start()
    await job.until_step(10)
    frozen, old = job.pods[1], [job.pid(2), job.pid(3)]
    frozen.send(signal.SIGSTOP)
    await job.operator.until(lambda: bool(job.operator.facts), "the silent agent")
    fact = job.operator.facts[0]
    assert (fact.kind, fact.node_rank, list(fact.ranks)) == (pb.AGENT_SILENT, 1, [2, 3])
    order = pb.Order(incarnation=2, revision=1, action=pb.REPLACE, lost_ranks=[2, 3], replaced_nodes=[1])
    job.operator.order(order)
    job.start_pod(1, 2)
    job.assign()
    await job.operator.milestone(pb.RESULT)
    frozen.send(signal.SIGCONT)
    await job.operator.until(lambda: not any(map(is_alive, old)), "the end of its ranks")
    InPlacePolicy(job)
    job.kill(2)
    await job.operator.milestone(pb.RESULT, number=2)
    await finish_undisturbed(job, undisturbed, {2, 3})
