"""Waiting by a clock of one's own: nothing that the operator waits for goes by another one."""

from __future__ import annotations

import asyncio

import pytest

from hajob.clock import Alarm, SystemClock, timeout
from hajob.coordinator_link.channel import SILENCE_SECONDS, Channel, CoordinatorCredentials, Dialer
from hajob.leader.leadership import Leadership
from tests.rigs.channel_listeners import NotingListener, ScriptedStream, put_at_every_address
from tests.rigs.fake_clock import FakeClock, settle


async def test_a_timeout_comes_by_the_given_clock() -> None:
    clock, began = FakeClock(), asyncio.get_running_loop().time()

    async def wait() -> None:
        async with timeout(clock, 3600):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await clock.advance(3599)
    assert not waiting.done()
    await clock.advance(1)
    with pytest.raises(TimeoutError):
        await waiting
    assert asyncio.get_running_loop().time() - began < 60


async def test_a_timeout_that_was_not_needed_leaves_no_timer() -> None:
    clock = FakeClock()
    async with timeout(clock, 10):
        pass
    assert clock.awaited == []


async def test_a_silent_coordinator_is_given_up_by_the_given_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    put_at_every_address(monkeypatch, ScriptedStream())
    clock, listener = FakeClock(), NotingListener()
    credentials = CoordinatorCredentials(b"", b"", b"")
    channel = Channel("127.0.0.1:1", "uid", credentials, listener, Dialer(Leadership(), clock))
    channel.start_dialling()
    await settle()
    await clock.advance(SILENCE_SECONDS - 0.1)
    assert listener.news == [(True, "")]
    await clock.advance(0.2)
    assert listener.news[:2] == [(True, ""), (False, f"it said nothing for {SILENCE_SECONDS} s")]
    await channel.close_channel()


async def test_the_systems_clock_sleeps_and_calls() -> None:
    clock, called = SystemClock(), asyncio.Event()
    began = clock.monotonic()
    clock.call_later(0.01, called.set)()
    cancel = clock.call_later(0.01, called.set)
    await called.wait()
    cancel()
    await clock.sleep(0.01)
    assert clock.monotonic() - began >= 0.019


async def test_an_alarm_set_anew_replaces_the_one_before() -> None:
    clock, calls = FakeClock(), list[str]()
    alarm = Alarm(clock)
    alarm.set_alarm(1, calls.append, "first")
    alarm.set_alarm(5, calls.append, "second")
    await clock.advance(2)
    assert (calls, alarm.is_set) == ([], True)
    await clock.advance(3)
    assert (calls, alarm.is_set) == (["second"], False)


async def test_an_alarm_that_rings_can_be_set_by_its_call() -> None:
    clock, calls = FakeClock(), list[int]()
    alarm = Alarm(clock)

    def again() -> None:
        calls.append(len(calls))
        assert not alarm.is_set
        alarm.set_alarm(1, again)

    alarm.set_alarm(1, again)
    for _ in range(3):
        await clock.advance(1)
    alarm.cancel()
    await clock.advance(9)
    assert (calls, alarm.is_set) == ([0, 1, 2], False)
