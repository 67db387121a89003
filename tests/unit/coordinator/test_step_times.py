"""How long steps take: the median and the 95th percentile, from lines where there are any, and without outages."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from trainer_sidecar.coordinator.state.steps import ENOUGH_TIMES, KEPT_TIMES, Steps

PRINTING = 3


class Printing:
    """A training of four ranks whose last one prints each step."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.step, self.now = 1, 0.0
        self.steps.note_printed_step(PRINTING, 1, 0.0, 4)

    def take_steps(self, *seconds: float) -> None:
        for each in seconds:
            self.step, self.now = self.step + 1, self.now + each
            self.steps.note_printed_step(PRINTING, self.step, self.now, 4)

    @property
    def times(self) -> tuple[float, float]:
        assert self.steps.step_times is not None
        return self.steps.step_times


def test_too_few_steps_have_no_percentiles() -> None:
    training = Printing()
    training.take_steps(*[1.0] * (ENOUGH_TIMES - 1))
    assert training.steps.step_times is None
    training.take_steps(1.0)
    assert training.times == (1.0, 1.0)


def test_one_slow_step_in_ten_is_the_95th_percentile() -> None:
    training = Printing()
    for _ in range(10):
        training.take_steps(*[1.0] * 9, 4.0)
    assert training.times == (1.0, 4.0)


def test_one_slow_step_in_a_hundred_is_not() -> None:
    training = Printing()
    training.take_steps(*[1.0] * 99, 60.0)
    assert training.times == (1.0, 1.0)


def test_only_the_newest_steps_count() -> None:
    training = Printing()
    training.take_steps(*[8.0] * KEPT_TIMES, *[1.0] * KEPT_TIMES)
    assert training.times == (1.0, 1.0)


def test_heartbeats_between_lines_do_not_smooth_them() -> None:
    training = Printing()
    for number in range(40):
        training.take_steps(3.0 if number % 10 == 0 else 1.0)
        if number % 2:
            for rank in range(4):
                training.steps.note_heartbeat_step(rank, training.step, training.now + 0.1, 4)
    assert training.times == (1.0, 3.0)


@pytest.mark.parametrize("ranks", [(0, 1, 2, 3), (3, 2, 1, 0)])
def test_where_all_ranks_print_a_step_counts_once(ranks: tuple[int, ...]) -> None:
    steps = Steps()
    for step in range(1, 30):
        for rank in ranks:
            steps.note_printed_step(rank, step, float(step), 4)
    assert steps.step_times == (1.0, 1.0)


def test_gathered_steps_take_their_share_each() -> None:
    steps = Steps()
    for step in range(0, 200, 5):
        steps.note_printed_step(PRINTING, step, step / 20, 4)
    assert steps.step_times == pytest.approx((0.05, 0.05))


def test_an_outage_is_no_step() -> None:
    training = Printing()
    for rank in range(3):
        training.steps.note_heartbeat_step(rank, 1, 0.1, 4)
    for _ in range(5):
        training.take_steps(*[1.0] * 5)
        training.steps.roll_back_to_common()
        training.now += 300.0
    training.take_steps(*[1.0] * 5)
    assert training.times == (1.0, 1.0)


def test_another_attempt_is_measured_anew() -> None:
    training = Printing()
    training.take_steps(*[1.0] * 30)
    training.steps.forget_attempt()
    assert training.steps.step_times is None


def test_without_lines_heartbeats_tell_it() -> None:
    steps = Steps()
    for number in range(40):
        steps.note_heartbeat_step(0, 4 * number, 2.0 * number, 4)
    assert steps.step_times == pytest.approx((0.5, 0.5))


def test_the_coordinator_reports_them() -> None:
    world = World()
    world.hang_rule = pb.HangRule(step_time_multiple=5, minimum_seconds=5)
    world.start()
    assert not world.state.HasField("step_times")
    for step in range(1, 30):
        world.advance(1.0)
        world.step(step, [PRINTING])
    told = world.state.step_times
    assert (told.median_nanoseconds, told.slow_nanoseconds) == pytest.approx((1e9, 1e9), rel=0.01)
