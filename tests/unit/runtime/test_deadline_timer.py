"""A deadline comes in its time; one that is found long past waits for what the coordinator has to say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from hajob.runtime.deadline_timer import HEAR_MILLISECONDS, DeadlineTimer


class Time:
    """Clock and event loop in one; `pass_by` lets time pass, `stand_still` lets it pass without anybody noticing."""

    def __init__(self) -> None:
        self.now = 0
        self.timers: list[tuple[int, Callable[[], None]]] = []

    def now_milliseconds(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    def call_later(self, delay: float, call: Callable[..., None], *arguments: object) -> Time.Handle:
        entry = (self.now + round(delay * 1000), lambda: call(*arguments))
        self.timers.append(entry)
        return Time.Handle(self, entry)

    class Handle:
        def __init__(self, time: Time, entry: tuple[int, Callable[[], None]]) -> None:
            self.time, self.entry = time, entry

        def cancel(self) -> None:
            if self.entry in self.time.timers:
                self.time.timers.remove(self.entry)

    def pass_by(self, milliseconds: int) -> None:
        until = self.now + milliseconds
        while due := [entry for entry in self.timers if entry[0] <= until]:
            entry = min(due, key=lambda one: one[0])
            self.timers.remove(entry)
            self.now = max(self.now, entry[0])
            entry[1]()
        self.now = until

    def stand_still(self, milliseconds: int) -> None:
        self.now += milliseconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: found)
    return found


def test_a_deadline_comes_in_its_time(time: Time) -> None:
    reached: list[str] = []
    timer = DeadlineTimer(time, reached.append)
    timer.arm({"Recovery": 60_000, "Startup": 90_000})
    time.pass_by(59_999)
    assert reached == []
    time.pass_by(1)
    assert reached == ["Recovery"]


def test_who_stood_still_hears_the_coordinator_before_a_deadline_counts(time: Time) -> None:
    reached: list[str] = []
    timer = DeadlineTimer(time, reached.append)
    timer.arm({"Recovery": 60_000})
    time.stand_still(63_000)
    time.pass_by(HEAR_MILLISECONDS - 1)
    assert reached == []
    timer.arm({"Recovery": 60_000})  # as after every event
    time.pass_by(1)
    assert reached == ["Recovery"]


def test_a_new_leader_that_finds_a_deadline_past_hears_the_coordinator_first(time: Time) -> None:
    reached: list[str] = []
    time.stand_still(100_000)
    timer = DeadlineTimer(time, reached.append)
    timer.arm({"Recovery": 60_000})
    time.pass_by(1_000)
    timer.arm({})  # it was kept
    time.pass_by(HEAR_MILLISECONDS)
    assert reached == []


def test_an_operator_that_is_a_little_late_does_not_wait(time: Time) -> None:
    reached: list[str] = []
    DeadlineTimer(time, reached.append).arm({"Recovery": 1_000})
    time.stand_still(2_500)
    time.pass_by(0)
    assert reached == ["Recovery"]
