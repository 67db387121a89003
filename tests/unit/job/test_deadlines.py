"""A deadline comes in its time; whoever was away hears the coordinator before it calls a deadline missed."""

from __future__ import annotations

import pytest

from hajob.clock import Alarm, JobTime
from hajob.job.deadlines import HEAR_SECONDS, DeadlineWatch
from hajob.job.status.journal import Journal
from hajob.plan.state import JobState
from tests.rigs.fake_clock import FakeClock


class Rig:
    """A watch that has been there for long, asked when it says, and what it called missed."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.time = JobTime(self.clock)
        self.reached: list[str] = []
        self.cut_off = False
        self.alarm, self.deadlines = Alarm(self.clock), dict[str, int]()
        self.begin()
        self.clock.freeze(HEAR_SECONDS)

    def begin(self) -> None:
        """Begin to watch, as a new leader does."""
        self.watch = DeadlineWatch(self.clock.monotonic(), self.clock.monotonic())

    def arm(self, **seconds: float) -> None:
        now = self.time.now()
        self.deadlines = {name: now + round(rest * 1000) for name, rest in seconds.items()}
        delay = self.watch.delay_to_look(self.deadlines, self.clock.monotonic(), now)
        self.alarm.cancel()
        if delay is not None:
            self.alarm.set_alarm(delay, self.look)

    def look(self) -> None:
        now, now_ms = self.clock.monotonic(), self.time.now()
        missed, delay = self.watch.look_at_deadlines(self.deadlines, now, now_ms, cut_off=self.cut_off)
        self.alarm.set_alarm(delay, self.look)
        self.reached += filter(None, [missed])

    def heard(self) -> None:
        self.watch.note_report(self.clock.monotonic())


async def test_a_deadline_comes_in_its_time() -> None:
    rig = Rig()
    rig.arm(Recovery=60, Startup=90)
    await rig.clock.advance(59.9)
    assert rig.reached == []
    await rig.clock.advance(0.1)
    assert rig.reached == ["Recovery"]


@pytest.mark.parametrize("step", [-3600.0, -60.0, 60.0, 3600.0])
async def test_a_stepped_wall_clock_moves_no_deadline(step: float) -> None:
    rig = Rig()
    rig.arm(Recovery=60)
    await rig.clock.advance(30)
    rig.clock.step_wall(step)
    await rig.clock.advance(29.9)
    assert rig.reached == []
    await rig.clock.advance(0.1)
    assert rig.reached == ["Recovery"]


async def test_a_deadline_that_nobody_took_is_told_again() -> None:
    rig = Rig()
    rig.arm(Recovery=10)
    await rig.clock.advance(12.5)
    assert rig.reached == ["Recovery"] * 3


@pytest.mark.parametrize("frozen", [60.0, 60.5, 63.0, 600.0])
async def test_a_thawed_operator_hears_before_it_decides(frozen: float) -> None:
    rig = Rig()
    rig.arm(Recovery=60)
    await rig.clock.advance(0.2)
    rig.clock.freeze(frozen)
    rig.heard()  # what had been waiting all the time
    await rig.clock.advance(0.5)
    rig.arm(Recovery=-1)  # as after every event
    await rig.clock.advance(0.9)
    assert rig.reached == []
    await rig.clock.advance(0.3)
    rig.heard()
    await rig.clock.advance(1.0)
    assert rig.reached == ["Recovery"]


async def test_an_event_before_the_timer_does_not_hide_a_freeze() -> None:
    rig = Rig()
    rig.arm(Recovery=60)
    rig.clock.freeze(61)
    rig.arm(Recovery=-1)
    await rig.clock.advance(HEAR_SECONDS - 1)
    assert rig.reached == []


async def test_a_coordinator_out_of_reach_is_not_awaited_for_ever() -> None:
    rig = Rig()
    rig.arm(Recovery=60)
    rig.clock.freeze(61)
    await rig.clock.advance(HEAR_SECONDS - 0.1)
    assert rig.reached == []
    await rig.clock.advance(1.1)
    assert rig.reached == ["Recovery"]


async def test_an_operator_that_is_cut_off_calls_nothing_missed() -> None:
    rig = Rig()
    rig.arm(Coordinator=60)
    await rig.clock.advance(50)
    rig.cut_off = True
    await rig.clock.advance(3600)
    assert rig.reached == []
    rig.cut_off = False
    await rig.clock.advance(HEAR_SECONDS - 1)
    assert rig.reached == []
    await rig.clock.advance(2)
    assert rig.reached[:1] == ["Coordinator"]


async def test_a_deadline_kept_while_away_is_never_told() -> None:
    rig = Rig()
    rig.begin()
    rig.arm(Recovery=-40)
    await rig.clock.advance(1)
    rig.arm()
    await rig.clock.advance(HEAR_SECONDS)
    assert rig.reached == []


async def test_a_little_lateness_is_no_absence() -> None:
    rig = Rig()
    rig.arm(Recovery=1)
    rig.clock.freeze(2.5)
    await rig.clock.advance(0)
    assert rig.reached == ["Recovery"]


@pytest.mark.parametrize(
    ("ahead", "left", "after"),
    [(0, 45, 45), (-60, 45, 45), (60, 45, 45), (0, 200, 195), (-60, 200, 200), (60, 200, 135)],
)
def test_a_leader_with_another_clock_ends_no_deadline_early(ahead: int, left: int, after: int) -> None:
    """Taken over five seconds after the write; nobody knows by how much the clocks differ."""
    written, clock = 1_000_000, FakeClock()
    clock.step_wall((written + 5_000) / 1000 + ahead - clock.now_milliseconds() / 1000)
    now = JobTime(clock, written).now()
    state = JobState(deadlines={"Recovery": written + left * 1000})
    at = Journal(state=state, written_ms=written).for_new_leader(now).state.deadlines["Recovery"]
    assert (at - now) / 1000 == after


def test_job_time_never_runs_backwards_between_leaders() -> None:
    clock = FakeClock()
    written = clock.now_milliseconds() + 90_000
    time = JobTime(clock, written)
    clock.step_wall(-1000)
    clock.freeze(2.5)
    assert time.now() == written + 2500
