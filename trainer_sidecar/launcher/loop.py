"""A small event loop: descriptors, timers, signals, in one thread.

Not asyncio: its child watchers differ between 3.7 and 3.14, and an exit must be seen before anything else that is
ready. Timers count monotonic seconds.
"""

from __future__ import annotations

import heapq
import itertools
import os
import selectors
import signal
import time
from typing import Callable, Iterable, List, Tuple


class Loop:
    """Loop that calls back when a descriptor is readable (or writable), a time has come, or a signal was caught."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: List[Tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._stopped = False
        self._signals: dict[int, Callable[[], None]] = {}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def catch_signals(self, numbers: Iterable[int], callback: Callable[[int], None]) -> None:
        """Call `callback` with the number, from the loop, when one of these signals has arrived."""
        for number in numbers:
            self._signals[number] = lambda number=number: callback(number)  # type: ignore[misc]
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def watch_descriptor(
        self, descriptor: int, readable: Callable[[], object], writable: Callable[[], None] | None = None
    ) -> None:
        """Call `readable` while there is something to read, and `writable`, if given, while there is room to write."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writable else 0)
        try:
            self._selector.modify(descriptor, events, (readable, writable))
        except KeyError:
            self._selector.register(descriptor, events, (readable, writable))

    def forget_descriptor(self, descriptor: int) -> None:
        """Stop watching a descriptor, before it is closed."""
        self._selector.unregister(descriptor)

    def call_after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call `callback` once after `seconds`."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), callback))

    def stop_loop(self) -> None:
        """Return from `run_until_stopped` after the callbacks of this round."""
        self._stopped = True

    def run_until_stopped(self) -> None:
        """Wait and call back until `stop_loop`."""
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        while not self._stopped:
            ready = self._selector.select(self._seconds_to_timer())
            self._deliver_signals()
            for key, events in ready:
                if key.data is not None and self._is_watched(key):
                    self._call_ready(key.data, events)
            self._run_timers()

    def _is_watched(self, key: selectors.SelectorKey) -> bool:
        """Whether the descriptor is still watched: an earlier callback of this round may have dropped it."""
        current = self._selector.get_map().get(key.fd)
        return current is not None and current.data is key.data

    def _call_ready(self, callbacks: Tuple[Callable[[], None], Callable[[], None] | None], events: int) -> None:
        readable, writable = callbacks
        if events & selectors.EVENT_WRITE and writable is not None:
            writable()
        if events & selectors.EVENT_READ:
            readable()

    def _seconds_to_timer(self) -> float | None:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _deliver_signals(self) -> None:
        try:
            caught = os.read(self._wake_read, 4096)
        except BlockingIOError:
            return
        for number in sorted(set(caught), key=lambda number: number != signal.SIGCHLD):
            if number in self._signals:
                self._signals[number]()

    def _run_timers(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()
