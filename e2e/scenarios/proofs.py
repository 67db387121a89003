"""The proof that a recovery was the promised one, in one place: bitwise weights, and the way there."""

from __future__ import annotations

from collections.abc import Iterable

from e2e.harness.account import layout_of
from e2e.harness.job import Job
from e2e.harness.undisturbed import undisturbed
from e2e.trainer import proof

COMPLETE_SECONDS = 120.0


def assert_weights_equal(job: Job, iterations: int) -> None:
    """The job ends, and its weights are bitwise those of an undisturbed training."""
    job.hurry()
    job.wait_condition("Complete", seconds=COMPLETE_SECONDS)
    layout = layout_of(job)
    reference = undisturbed(
        job.plane.run,
        tensor=layout.tensor,
        pipeline=layout.pipeline,
        data=layout.data,
        iterations=iterations,
        is_mapped=layout.tensor_pipeline_data,
    )
    assert job.weights_differ(reference) == []


def assert_recovered(job: Job, lost: Iterable[int], iterations: int) -> None:
    """The job ends with the right weights, and every lost rank was repaired from its partner."""
    assert_weights_equal(job, iterations)
    layout = layout_of(job)
    assert proof.failures(job.events(), {rank: layout.partner(rank) for rank in lost}) == []
