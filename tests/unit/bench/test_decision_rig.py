"""The rig of the rows about decisions: an operator's core, scripted coordinators, one fault and the order about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import pytest

from e2e.bench import decision
from e2e.bench.decision import ScriptedCoordinator
from e2e.bench.obedient_coordinator import ObedientCoordinator
from e2e.cluster.reaper import KEEP
from e2e.cluster.run import Run
from hajob.protocol import sidecar_pb2 as wire

START = wire.Order(incarnation=1, revision=2, action=wire.START)


class Operator:
    """One end of the conversation: what it says is taken in when `say` returns."""

    def __init__(self, coordinator: ScriptedCoordinator) -> None:
        self._said: asyncio.Queue[wire.OperatorMessage] = asyncio.Queue()
        self.stream = coordinator.Converse(self._words(), cast("Any", None))

    async def _words(self) -> AsyncIterator[wire.OperatorMessage]:
        yield wire.OperatorMessage(hello=wire.Hello())
        while True:
            yield await self._said.get()
            self._said.task_done()

    async def say(self, **body: Any) -> None:
        self._said.put_nowait(wire.OperatorMessage(**body))
        await self._said.join()

    async def hear_started(self) -> int:
        """Number of the report that says so."""
        async for message in self.stream:
            if any(each.kind == wire.STARTED for each in message.report.milestones):
                return message.report.sequence
        raise AssertionError("it hung up")


def test_a_fault_is_decided_on_the_rig_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "OTHER_JOBS", 1)
    with Run.start("a test of the benchmark's rig") as run:
        (seconds,) = decision.decisions(run, rounds=1)
    assert seconds > 0


def test_a_broken_measurement_keeps_the_operators_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hears_nothing(coordinator: ScriptedCoordinator, rank: int) -> float:
        raise TimeoutError(f"{coordinator.uid}: no order about rank {rank}")

    monkeypatch.setattr(decision, "OTHER_JOBS", 1)
    monkeypatch.setattr(ScriptedCoordinator, "lose", hears_nothing)
    with Run.start("a test of the benchmark's rig") as run:
        with pytest.raises(TimeoutError, match="job-0") as caught:
            decision.decisions(run, rounds=1)
        assert caught.value.__notes__ == [f"logs are kept in {run.keep_logs()}"]
        (run.directory / KEEP).unlink()  # this one was broken on purpose
        assert "job-0" in (run.logs / "operator-core.log").read_text()


@pytest.mark.parametrize("kind", [ScriptedCoordinator, ObedientCoordinator])
async def test_a_job_runs_once_its_start_is_acknowledged(kind: type[ScriptedCoordinator]) -> None:
    coordinator = kind("job-0")
    operator = Operator(coordinator)
    async with aclosing(cast("Any", operator.stream)):
        await anext(operator.stream)
        hearing = asyncio.create_task(operator.hear_started())
        await operator.say(assignment=wire.Assignment(attempt=1))
        await operator.say(order=START)
        started = await hearing
        assert not coordinator.running.is_set()
        await operator.say(acknowledge=wire.Acknowledge(sequence=started - 1))
        assert not coordinator.running.is_set()
        await operator.say(acknowledge=wire.Acknowledge(sequence=started))
        assert coordinator.running.is_set()


async def test_an_order_that_does_not_come_is_told_with_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "PATIENCE_SECONDS", 0.01)
    coordinator = ScriptedCoordinator("job-0")
    with pytest.raises(TimeoutError, match=r"job-0: no order within .* newest is: none"):
        await coordinator.ordered()
    operator = Operator(coordinator)
    async with aclosing(cast("Any", operator.stream)):
        await anext(operator.stream)
        hearing = asyncio.create_task(operator.hear_started())
        await operator.say(order=START)
        await hearing
        with pytest.raises(TimeoutError, match="newest is: START of incarnation 1, revision 2"):
            await coordinator.ordered()
