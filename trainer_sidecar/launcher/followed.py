"""The rank processes that TaskD's agent starts below the start script: found, named, and watched until they end.

They are nobody's children here, so their end is awaited by a descriptor of the process, and its code is read while the
process waits to be reaped. A name that the agent has ordered belongs to the first process of that rank that is newer
than the one before it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any, Callable, Dict, List

from trainer_sidecar import prctl

from . import foreign_launchers, process
from .loop import Loop
from .protocol import ProcessName, boottime_nanoseconds
from .ranks import GENTLE_SECONDS

# Without such descriptors (kernels before 5.3) the end is looked for; a stop of the training waits for it.
POLL_SECONDS = 0.05
UNKNOWN_CODE = 1
UNKNOWN_TEXT = "its exit code is not known: torchrun had taken it away before it was read"
MARKS = ("RANK", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT")
"""Variables that torchrun gives to its workers, and no start script to torchrun."""


class FollowedRank:
    """One process of a rank: running, or ended with a code."""

    def __init__(self, rank: int, name: ProcessName, pid: int) -> None:
        self.rank = rank
        self.name = name
        self.pid = pid
        self.running = True
        self.exit_code = 0
        self.ordered = False
        self.changed = boottime_nanoseconds()
        self.last_lines: List[str] = []

    def message_to_agent(self) -> Dict[str, Any]:
        """Return the message about this process as it is now; what it prints comes through torchrun, unnamed."""
        named = {"kind": "rank", "rank": self.rank, "incarnation": self.name.incarnation, "start": self.name.start}
        ended = {"running": self.running, "exit_code": self.exit_code, "ordered": self.ordered}
        printed = {"step": -1, "step_time": 0, "last_step": 0, "notices": {}, "last_lines": self.last_lines}
        return dict(named, pid=self.pid, changed=self.changed, **ended, **printed)


class FollowedRanks:
    """Table of the processes; `tell` gets a message for the agent at every change, `lines` are the script's last."""

    def __init__(self, loop: Loop, tell: Callable[[Dict[str, Any]], None], lines: Callable[[], List[str]]) -> None:
        self._loop, self._tell, self._lines = loop, tell, lines
        self._newest: Dict[int, FollowedRank] = {}
        self._expected: Dict[int, ProcessName] = {}

    @property
    def is_expecting(self) -> bool:
        """Whether a process is ordered that has not been found yet."""
        return bool(self._expected)

    def newest_processes(self) -> List[FollowedRank]:
        """Return the newest process of every rank that was ever found here."""
        return [self._newest[rank] for rank in sorted(self._newest)]

    def running_processes(self) -> List[FollowedRank]:
        """Return the processes that have not ended."""
        return [each for each in self.newest_processes() if each.running]

    def expect_process_of_rank(self, rank: int, name: ProcessName) -> None:
        """Give the name to the next process of the rank."""
        before = self._newest.get(rank)
        if before is None or name > before.name:
            self._expected[rank] = name

    def look_for_processes(self, script: int) -> None:
        """Find the processes that are expected, below the start script."""
        if not self._expected:
            return
        known = {each.pid for each in self._newest.values()}
        for rank, pid in workers_below(script).items():
            if rank in self._expected and pid not in known:
                self._adopt_process(rank, pid)

    def _adopt_process(self, rank: int, pid: int) -> None:
        before = self._newest.get(rank)
        if before is not None and before.running:
            self._note_ended_process(before)  # torchrun has replaced it: it ended between two looks
        found = FollowedRank(rank, self._expected.pop(rank), pid)
        self._newest[rank] = found
        self._tell(found.message_to_agent())
        try:
            descriptor = open_process(pid)
        except ProcessLookupError:
            self._note_ended_process(found)
        except OSError:
            self._poll_process(found)
        else:
            self._loop.watch_descriptor(descriptor, lambda: self._note_end_at_descriptor(descriptor, found))

    def _note_end_at_descriptor(self, descriptor: int, found: FollowedRank) -> None:
        self._loop.forget_descriptor(descriptor)
        os.close(descriptor)
        self._note_ended_process(found)

    def _poll_process(self, found: FollowedRank) -> None:
        if not found.running:
            return
        if is_process_alive(found.pid):
            self._loop.call_after(POLL_SECONDS, lambda: self._poll_process(found))
        else:
            self._note_ended_process(found)

    def _note_ended_process(self, found: FollowedRank) -> None:
        if not found.running:
            return
        code = exit_code_of_zombie(found.pid)
        found.running, found.changed = False, boottime_nanoseconds()
        found.exit_code = UNKNOWN_CODE if code is None else code
        found.last_lines = [*self._lines(), *([UNKNOWN_TEXT] if code is None else [])]
        self._tell(found.message_to_agent())

    def end_process(self, rank: int, up_to: ProcessName, gently: bool) -> None:
        """End a rank's process as the agent ordered, unless it is newer than `up_to`."""
        found = self._newest.get(rank)
        if found is not None and found.running and found.name <= up_to:
            found.ordered = True
            signal_process(found.pid, signal.SIGTERM if gently else signal.SIGKILL)
            if gently:
                self._loop.call_after(GENTLE_SECONDS, lambda: self._kill_if_running(found))

    def _kill_if_running(self, found: FollowedRank) -> None:
        if found.running:
            signal_process(found.pid, signal.SIGKILL)

    def mark_all_ordered(self) -> None:
        """Note that every end from now on is ordered."""
        for each in self.running_processes():
            each.ordered = True


def signal_process(pid: int, number: int) -> None:
    """Send a signal to a worker and, to end it for good, to all below it; torchrun's group is not its own."""
    for each in [pid, *(foreign_launchers.processes_below(pid) if number == signal.SIGKILL else [])]:
        with contextlib.suppress(OSError):
            os.kill(each, number)


def workers_below(script: int) -> Dict[int, int]:
    """Return rank -> process of the topmost process of each worker of torchrun below the start script."""
    found: Dict[int, int] = {}
    within = set()
    for each in foreign_launchers.process_family(script):
        if each.parent in within:
            within.add(each.pid)
            continue
        rank = rank_of_environment(variables_of_process(each.pid))
        if rank is not None:
            within.add(each.pid)
            if is_process_alive(each.pid):
                found[rank] = each.pid
    return found


def rank_of_environment(environment: Dict[str, str]) -> int | None:
    """Return the rank of a worker's environment; None: it is none of a worker."""
    marks = [environment.get(name, "") for name in MARKS]
    return int(marks[0]) if all(mark.isdigit() for mark in marks) else None


def variables_of_process(pid: int) -> Dict[str, str]:
    """Return the environment with which a process was started; empty if the kernel does not tell."""
    words = [word.decode("utf-8", "surrogateescape") for word in foreign_launchers.environment_of_process(pid)]
    return dict(word.split("=", 1) for word in words if "=" in word)


def arguments_of_worker(pid: int) -> List[str]:
    """Return the script or module of a worker, and its arguments; empty if it shows none."""
    words = foreign_launchers.arguments_of_process(pid)[1:]
    while words and words[0].startswith("-") and words[0] != "-m":
        words = words[1:]
    return words[1:] if words[:1] == ["-m"] else words


def open_process(pid: int) -> int:
    """Return a descriptor that is readable once the process has ended. OSError: it is gone, or there are none here."""
    return int(os.pidfd_open(pid)) if hasattr(os, "pidfd_open") else prctl.open_process(pid)


def is_process_alive(pid: int) -> bool:
    """Return whether a process has not ended; one that waits to be reaped has."""
    return foreign_launchers.fields_of_process(pid)[:1] not in ([], [b"Z"], [b"X"])


def exit_code_of_zombie(pid: int) -> int | None:
    """Return the code of a process that waits to be reaped, minus the signal that ended it; None: it is gone."""
    fields = foreign_launchers.fields_of_process(pid)
    return process.exit_code_of_status(int(fields[-1])) if fields else None
