"""The proof that a recovery was the promised one, in one place: bitwise weights, and the way there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from e2e.harness.job import Job
from e2e.trainer import proof
from e2e.trainer.layout import Layout

COMPLETE_SECONDS = 120.0


def assert_recovered(job: Job, layout: Layout, lost: Iterable[int], undisturbed: Path) -> None:
    """The job ends, its weights equal an undisturbed run's, and every lost rank was repaired from its partner."""
    job.wait_condition("Complete", seconds=COMPLETE_SECONDS)
    assert job.weights_differ(undisturbed) == []
    assert proof.failures(job.events(), {rank: layout.partner(rank) for rank in lost}) == []


def assert_phases_add_up(job: Job, incarnation: int, layout: Layout) -> None:
    """The phases of an incident add up to the outage that the ranks' own logs show."""
    incident = next(each for each in job.incidents() if each["incarnation"] == incarnation)
    told = sum(phase["milliseconds"] for phase in incident["phases"]) / 1000
    seen = [outage.seconds for outage in proof.outages(job.events(), layout.world)]
    assert seen, "the ranks' logs show no outage"
    nearest = min(seen, key=lambda seconds: abs(seconds - told))
    assert abs(nearest - told) < 1.0, f"the status says {told} s, the ranks' logs {seen}"
