"""Ranks that live, are linked and look well to MindIO, and are replaced all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.sidecar_jobs import Job, is_alive
from tests.rigs.sidecar_recoveries import finish_undisturbed

NewJob = Callable[..., Job]


async def replace(job: Job, rank: int, incident: int) -> None:
    """Order a new process for a rank whose process lives; the old one goes, and nobody takes that for a death."""
    operator = job.operator
    old, facts = job.pid(rank), list(operator.facts)
    results = len(operator.marks(pb.RESULT))
    order = pb.Order(incarnation=incident, revision=1, action=pb.IN_PLACE, lost_ranks=[rank], restart_ranks=[rank])
    operator.order(order)
    result = await operator.milestone(pb.RESULT, results + 1)
    assert (result.result_code, result.strategy, result.incarnation) == (0, "recover", incident)
    assert not is_alive(old)
    assert operator.facts == facts


async def test_mute_ranks_are_replaced_in_place(new_job: NewJob, undisturbed: Path) -> None:
    """MindIO finds nothing wrong with either: only the gate misses heartbeats, only a device plugin sees the fault."""
    job = new_job()
    job.environment["TOY_RELAY"] = "1"
    await job.start()
    await job.until_step(3)
    job.fault("rank=1 do=mute")
    fact = await job.fact(pb.HEARTBEAT_SILENT)
    assert (list(fact.ranks), fact.node_rank) == ([1], 0)
    assert "no heartbeat has passed" in fact.message
    assert job.operator.facts == [fact]
    assert job.operator.state.conversation == "Serving"
    await replace(job, 1, 2)
    await replace(job, 2, 3)
    await finish_undisturbed(job, undisturbed, {1, 2})
