"""Calls that follow a "continue": MindIO accepts them and forgets them until it is at rest again.

Between the return of its callback and its rest MindIO wipes what it was told, which nothing tells
(docs/protocols/mindio.md §7.7). So a call that comes at once waits for a moment, and where MindIO does not call back it
is made again. A call that was heard after all leaves nothing behind when it is repeated: MindIO holds one word at a
time, and drops it before it calls back.
"""

from __future__ import annotations

import threading
import time
from typing import Callable, Tuple

BACK_SECONDS = 0.05
"""After that MindIO is at rest: all of 12 windings of 8 and more pauses each got through with it."""
EARLY_SECONDS = 1.0
"""A call that comes later than this after a "continue" is heard, however busy the host is."""
AGAIN_SECONDS = (1.0, 2.0, 4.0)
"""So long a call that may have been forgotten waits for a callback, each time it is made. A rank that does not answer
keeps a callback back for 5 s, and a repetition meanwhile changes nothing."""
REPEATED = frozenset({"stop_train", "pause"})
"""Calls whose first callback comes soon. A save has none before its end, so it is not repeated; it only waits."""


class AfterContinue:
    """What of MindIO's callbacks decides whether a call may have been forgotten."""

    def __init__(
        self,
        again_seconds: Tuple[float, ...] = AGAIN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._again_seconds, self._clock, self._sleep = again_seconds, clock, sleep
        self._continued_at = float("-inf")
        self._callbacks = 0
        self._found = 0
        self._calls = 0
        self._heard = threading.Condition()

    def note_callback(self, *, continued: bool, found: bool = False) -> None:
        """Note the end of a callback.

        `continued`: it was the result of a "continue". `found`: it tells of faults, which MindIO may have found itself.
        """
        with self._heard:
            self._callbacks += 1
            self._found += found
            if continued:
                self._continued_at = self._clock()
            self._heard.notify_all()

    def wait_for_rest(self, seconds: float = BACK_SECONDS) -> None:
        """Return once MindIO has had so long to come to rest."""
        left = self._continued_at + seconds - self._clock()
        if left > 0:
            self._sleep(left)

    def call_at_rest(self, name: str, function: Callable[[], int]) -> int:
        """Make a call when MindIO is at rest, and again while it may have been forgotten; return MindIO's code."""
        self.wait_for_rest()
        before, is_early = self._count_answers(name), self._clock() - self._continued_at < EARLY_SECONDS
        self._calls += 1
        code = function()
        if is_early and code == 0 and name in REPEATED:
            arguments = (name, function, before, self._calls)
            threading.Thread(target=self._repeat_call, args=arguments, name="again", daemon=True).start()
        return code

    def _count_answers(self, name: str) -> int:
        """Return how many callbacks can have been the answer to such a call.

        After a fault MindIO waits for a stop, be it that it was told one before and has forgotten it.
        """
        return self._callbacks - (self._found if name == "stop_train" else 0)

    def _repeat_call(self, name: str, function: Callable[[], int], before: int, number: int) -> None:
        """Make the call again until MindIO calls back, or is told something else."""

        def is_over() -> bool:
            return self._count_answers(name) != before or self._calls != number

        for seconds in self._again_seconds:
            with self._heard:
                self._heard.wait_for(is_over, seconds)
            if is_over():
                return
            function()
