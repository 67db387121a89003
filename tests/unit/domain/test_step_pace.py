"""How long a step takes: told after a few steps, by the period in which the job trains at one size."""

from __future__ import annotations

from hajob.domain.pace import ENOUGH_STEPS, StepPace


def trained(pace: StepPace, size: int, resumed_ms: int, first: int, begin: int, step_ms: int, steps: int) -> StepPace:
    """The pace after so many steps more."""
    for number in range(steps + 1):
        pace = pace.with_seen_step(size, resumed_ms, first + number, begin + number * step_ms)
    return pace


def test_a_pace_is_told_after_a_few_steps() -> None:
    assert trained(StepPace(), 4, 0, 10, 0, 200, ENOUGH_STEPS - 1).milliseconds_per_step is None
    assert trained(StepPace(), 4, 0, 10, 0, 200, ENOUGH_STEPS).milliseconds_per_step == 200


def test_steps_told_together_count_each() -> None:
    pace = (
        StepPace()
        .with_seen_step(4, 0, 0, 0)
        .with_seen_step(4, 0, 5, 1000)
        .with_seen_step(4, 0, 10, 2000)
        .with_seen_step(4, 0, 10, 9000)
        .with_seen_step(4, 0, -1, 9000)
    )
    assert pace.milliseconds_per_step == 200


def test_an_outage_is_no_part_of_the_pace() -> None:
    pace = trained(StepPace(), 4, 0, 0, 0, 200, 10)
    pace = trained(pace, 4, 99_000, 11, 99_000, 300, 1)
    assert pace.milliseconds_per_step == 200, "until there are enough steps after it"
    assert trained(pace, 4, 99_000, 12, 99_300, 300, ENOUGH_STEPS).milliseconds_per_step == 300


def test_another_size_has_a_pace_of_its_own() -> None:
    full = trained(StepPace(), 4, 0, 0, 0, 200, 10)
    small = trained(full, 3, 5_000, 11, 5_000, 260, 1)
    assert small.milliseconds_per_step is None
    assert trained(small, 3, 5_000, 12, 5_260, 260, ENOUGH_STEPS).milliseconds_per_step == 260


def test_steps_that_are_done_again_begin_a_new_period() -> None:
    pace = trained(StepPace(), 4, 0, 0, 0, 200, 10).with_seen_step(4, 0, 3, 50_000)
    assert (pace.began, pace.milliseconds_per_step) == (3, 200)
