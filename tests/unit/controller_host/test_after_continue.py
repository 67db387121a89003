"""What is said to MindIO after a "continue": when, and how often."""

from __future__ import annotations

import threading

from trainer_sidecar.controller_host.after_continue import AGAIN_SECONDS, BACK_SECONDS, EARLY_SECONDS, AfterContinue


class Told:
    """MindIO, with a clock that goes on only where somebody sleeps."""

    def __init__(self, *again_seconds: float) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        self.times = 0
        self.came = threading.Semaphore(0)
        self.after = AfterContinue(again_seconds, lambda: self.now, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def call(self) -> int:
        """The call as MindIO gets it."""
        self.times += 1
        self.came.release()
        return 0

    def repeating(self) -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "again"]


def test_other_calls_are_made_once_and_at_once() -> None:
    told = Told(0.0, 0.0)
    told.after.note_callback(continued=False)
    assert told.after.call_at_rest("stop_train", told.call) == 0
    assert (told.slept, told.times, told.repeating()) == ([], 1, [])


def test_a_call_after_a_continue_waits_until_mindio_is_at_rest() -> None:
    told = Told()
    told.after.note_callback(continued=True)
    told.now += BACK_SECONDS / 5
    told.after.call_at_rest("dump", told.call)
    assert [round(seconds, 6) for seconds in told.slept] == [BACK_SECONDS * 4 / 5]
    told.after.call_at_rest("dump", told.call)
    assert (len(told.slept), told.times) == (1, 2)


def test_one_that_nothing_follows_is_made_again_a_few_times() -> None:
    told = Told(0.0, 0.0, 0.0)
    told.after.note_callback(continued=True)
    told.after.call_at_rest("pause", told.call)
    for _ in range(4):
        assert told.came.acquire(timeout=60.0)
    assert len(AGAIN_SECONDS) == 3


def test_not_one_that_mindio_answers_or_that_another_follows() -> None:
    for end in ("callback", "call"):
        told = Told(60.0)
        told.after.note_callback(continued=True)
        told.after.call_at_rest("stop_train", told.call)
        (thread,) = told.repeating()
        if end == "callback":
            told.after.note_callback(continued=False)
        else:
            told.now += EARLY_SECONDS
            told.after.call_at_rest("change_strategy", told.call)
            told.after.note_callback(continued=False)
        thread.join(60.0)
        assert told.times == (1 if end == "callback" else 2)


def test_a_fault_that_mindio_finds_answers_no_stop() -> None:
    """It then waits for the stop, which it may have forgotten; of one that it has heard it tells the end, too."""
    for call, times in (("stop_train", 3), ("pause", 1)):
        told = Told(0.5, 0.0)
        told.after.note_callback(continued=True)
        told.after.call_at_rest(call, told.call)
        (thread,) = told.repeating()
        told.after.note_callback(continued=False, found=True)
        thread.join(60.0)
        assert told.times == times


def test_not_a_late_one_a_save_or_one_that_is_refused() -> None:
    told = Told(0.0)
    told.after.note_callback(continued=True)
    told.after.call_at_rest("dump", told.call)
    told.after.call_at_rest("pause", lambda: 1)
    told.now += EARLY_SECONDS
    told.after.call_at_rest("pause", told.call)
    assert told.repeating() == []
