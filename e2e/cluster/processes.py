"""What /proc says about processes: the one place that reads it, for the reaper, for `make down` and for tests.

Standard library only, because the reaper must start in milliseconds. A process is named by its pid and its start
time, so that a number that was given out again is never taken for the old process. Processes that have ended but
were not waited for (in a container nobody may do so) count as gone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARKER = "HAJOB_RUN"


@dataclass(frozen=True)
class Process:
    """A process, told apart from a later one with the same pid by its start time (clock ticks since boot)."""

    pid: int
    start: int

    @classmethod
    def current(cls) -> Process:
        """This process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has `pid` now.

        Raises:
            ProcessLookupError: None has.
        """
        fields = _stat(pid)
        if fields is None:
            raise ProcessLookupError(f"no process {pid}")
        return cls(pid, int(fields[19]))

    def alive(self) -> bool:
        """Whether it runs (stopped counts, ended but not waited for does not)."""
        fields = _stat(self.pid)
        return fields is not None and int(fields[19]) == self.start and fields[0] not in {"Z", "X"}

    def signal(self, number: int) -> bool:
        """Send it a signal; False when it has gone."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def wait_gone(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for its end; whether it has ended."""
        deadline = time.monotonic() + timeout
        while self.alive():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state on; None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def marked(run: str, marker: str = MARKER) -> Iterator[Process]:
    """All living processes, except this one, that were started with the mark of `run` in their environment."""
    mark = f"{marker}={run}".encode()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            process = Process.of(int(entry.name))
            if mark in Path(entry.path, "environ").read_bytes().split(b"\0") and process.alive():
                yield process
        except OSError:
            continue  # gone meanwhile, or somebody else's


def end_marked(run: str, timeout: float = 20.0, marker: str = MARKER) -> int:
    """Kill every process of `run` until none is left; returns how many still live after `timeout` seconds.

    One pass is not enough: a process may start another one between the look and the blow.
    """
    deadline = time.monotonic() + timeout
    while found := list(marked(run, marker)):
        for process in found:
            process.signal(signal.SIGKILL)
        if time.monotonic() > deadline:
            return len(found)
        time.sleep(0.01)
    return 0


def wait_end(process: Process, poll_seconds: float = 0.2) -> None:
    """Block until `process` has ended; a process that is not a child can be waited for, too."""
    with contextlib.suppress(OSError, AttributeError):  # no pidfd in old kernels and some sandboxes
        descriptor = os.pidfd_open(process.pid)
        try:
            if process.alive():
                select.select([descriptor], [], [])
            return
        finally:
            os.close(descriptor)
    while process.alive():
        time.sleep(poll_seconds)
