"""The coordinator sidecar as it is, with every turn of its event loop timed.

    python -m e2e.bench.watched_coordinator FILE

Every handle that the loop runs is one message, one timer or one wake-up: how long each held the loop is kept, in the
thread's own processor time and by the clock on the wall, and written to FILE whenever SIGUSR1 comes (what was counted
before it is forgotten then).
"""

from __future__ import annotations

import asyncio
import asyncio.events
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from trainer_sidecar.coordinator.__main__ import main

SLOW_SECONDS = 0.02


class Turns:
    """Times of the turns since they were written last."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.began, self.cpu_began = time.monotonic(), time.process_time()
        self.count, self.busy, self.longest, self.longest_wall = 0, 0.0, 0.0, 0.0
        self.longest_of, self.slow = "", Counter[str]()

    def take(self, handle: asyncio.events.Handle, cpu: float, wall: float) -> None:
        """One turn is over."""
        self.count += 1
        self.busy += cpu
        self.longest_wall = max(self.longest_wall, wall)
        if cpu > self.longest:
            self.longest, self.longest_of = cpu, _name(handle)
        if cpu > SLOW_SECONDS:
            self.slow[_name(handle)] += 1

    def write(self, path: Path) -> None:
        """As JSON, whole or not at all."""
        wall = time.monotonic() - self.began
        found = {
            "seconds": wall,
            "turns": self.count,
            "loopShare": self.busy / wall,
            "processShare": (time.process_time() - self.cpu_began) / wall,
            "longestMilliseconds": 1000 * self.longest,
            "longestOf": self.longest_of,
            "longestWallMilliseconds": 1000 * self.longest_wall,
            "slow": dict(self.slow),
        }
        path.with_suffix(".new").write_text(json.dumps(found))
        path.with_suffix(".new").rename(path)
        self.forget()


def _name(handle: asyncio.events.Handle) -> str:
    callback = getattr(handle, "_callback", None)
    owner = getattr(callback, "__self__", None)
    coroutine = owner.get_coro() if isinstance(owner, asyncio.Task) else None
    return str(getattr(coroutine or callback, "__qualname__", callback))


def watch(turns: Turns) -> None:
    """Every handle of every loop of this process is timed."""
    run, cpu, wall = asyncio.events.Handle._run, time.thread_time, time.monotonic

    def timed(handle: asyncio.events.Handle) -> None:
        before, began = cpu(), wall()
        run(handle)
        turns.take(handle, cpu() - before, wall() - began)

    asyncio.events.Handle._run = timed  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    found = Turns()
    watch(found)
    signal.signal(signal.SIGUSR1, lambda *_: found.write(Path(sys.argv[1])))
    os.environ.setdefault("HAJOB_LOG_LEVEL", "INFO")
    raise SystemExit(main())
