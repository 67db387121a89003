"""A status for which nobody waits is written after what matters more, and all the same in time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from hajob.api.status import HATrainingJobStatus
from hajob.job.status_publisher import LAZY_SECONDS, LONGEST_SECONDS, StatusPublisher, WritePace
from hajob.job.status_writer import StatusWriter
from tests.rigs.fake_clock import FakeClock


class Notes:
    """A writer that only notes when something was handed over."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.times = clock, list[float]()

    def hand_over_status(self, _: HATrainingJobStatus) -> int:
        self.times.append(self.clock.seconds)
        return len(self.times)

    async def wait_until_written(self, _: int) -> None:
        """At once."""


class Rig:
    """A publisher, and whether pods are being made."""

    def __init__(self) -> None:
        self.clock, self.pace, count = FakeClock(), WritePace(), iter(range(1, 100))
        self.pace.creations = asyncio.Semaphore(0)
        self.notes, self.began = Notes(self.clock), self.clock.seconds
        self.publisher = StatusPublisher(
            self.clock,
            cast("StatusWriter", self.notes),
            HATrainingJobStatus(),
            lambda before: (before.model_copy(update={"observed_generation": next(count)}), lambda: None),
            self.pace,
        )

    def since(self) -> list[Any]:
        return [pytest.approx(at - self.began, abs=0.01) for at in self.notes.times]


async def test_a_lazy_status_waits_while_pods_are_made() -> None:
    rig = Rig()
    rig.publisher.publish_status(lazy=True)
    await rig.clock.advance(2.5 * LAZY_SECONDS)
    assert not rig.notes.times
    rig.pace.creations.release()
    await rig.clock.advance(10 * LAZY_SECONDS)
    assert rig.since() == [3 * LAZY_SECONDS]


async def test_a_lazy_status_does_not_wait_for_ever() -> None:
    rig = Rig()
    rig.publisher.publish_status(lazy=True)
    await rig.clock.advance(4 * LONGEST_SECONDS)
    assert rig.since() == [LONGEST_SECONDS]


async def test_an_urgent_status_waits_for_no_pods() -> None:
    rig = Rig()
    rig.publisher.publish_status(lazy=True)
    rig.publisher.publish_status()
    await rig.clock.advance(1.0)
    assert rig.since() == [0]
