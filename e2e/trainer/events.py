"""The log a proof is made of: one JSON line per event and rank, stamped with the real-time clock.

The trainer writes down what it did and when; whether that was right is decided elsewhere (e2e/trainer/proof.py), from
these lines alone. Lines are collected and written when a step ends and once more after it: a log must not slow down
what it times, and who is killed while it waits for others has ended its step all the same.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def _space() -> int:
    """The namespace of process numbers that this process is in; 0 where that is not told."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _start() -> int:
    """When this process was started: clock ticks since the machine was."""
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


class EventLog:
    """Appends to `<log-dir>/events-rank<R>.jsonl`; a restarted rank goes on in the same file with a new pid."""

    def __init__(self, directory: Path, rank: int, incarnation: int, attempt: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"events-rank{rank}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        process = {"pid": os.getpid(), "space": _space(), "start": _start()}
        self._who = {"rank": rank, **process, "incarnation": incarnation, "attempt": attempt}
        self._lines: list[str] = []
        self._lock = threading.Lock()

    def add(self, event: str, *, at: int | None = None, flush: bool = True, **details: object) -> None:
        """Record an event, now or at `at` (nanoseconds of the real-time clock)."""
        line = json.dumps({"t": at or time.time_ns(), **self._who, "event": event, **details})
        with self._lock:
            self._lines.append(line)
        if flush:
            self.flush()

    def flush(self) -> None:
        """Hand all lines to the kernel in one write, so that lines of two processes never mix."""
        with self._lock:
            if self._lines:
                os.write(self._file, ("\n".join(self._lines) + "\n").encode())
                self._lines = []


class EventReader:
    """The event logs of all ranks in a directory, read on from where the last look ended."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._offsets: dict[Path, int] = {}
        self._own = _space()

    def read(self) -> list[Event]:
        """What is new since the last call, in order of time.

        A line that is being written comes with a later call. One that was cut off by a kill is left out; the
        rank's next process ends it.
        """
        fresh = [event for path in sorted(self.directory.glob("events-rank*.jsonl")) for event in self._new(path)]
        return sorted(fresh, key=lambda event: int(event["t"]))

    def _new(self, path: Path) -> list[Event]:
        found = []
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offsets[path] = self._offsets.get(path, 0) + len(line)
                try:
                    found.append(self._numbered(json.loads(line)))
                except ValueError:
                    continue
        return found

    def _numbered(self, event: Event) -> Event:
        """Processes of other containers have numbers of their own: there it is start, rank and number together."""
        if event.get("space", self._own) != self._own:
            event["pid"] = int(event["start"]) << 40 | int(event["rank"]) << 22 | int(event["pid"])
        return event


def read_events(directory: Path) -> list[Event]:
    """All events of a run in order of time."""
    return EventReader(directory).read()
