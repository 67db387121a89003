"""What a rank has printed of its failure reaches the operator, whoever notices the failure first."""

from __future__ import annotations

from collections.abc import Callable

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.sidecar_jobs import Job


async def test_a_traceback_is_the_cause_of_what_mindio_finds(new_job: Callable[..., Job]) -> None:
    job = new_job()
    await job.start()
    await job.until_step(3)
    job.fault("rank=1 do=raise text=no_such_file:_/data/corpus.bin")
    await job.operator.until(lambda: bool(job.operator.facts), "the exception")
    fact = job.operator.facts[0]
    assert (fact.kind, list(fact.ranks), fact.unexplained) == (pb.PROCESS_FAULT, [1], False)
    lines = fact.message.splitlines()
    assert lines[0] == "found by MindIO: Traceback (most recent call last):"
    assert lines[-1] == "RuntimeError: no such file: /data/corpus.bin"
