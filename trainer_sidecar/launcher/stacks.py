"""The stack of a rank that takes no step: its threads as the kernel sees them, and its Python stack where available.

Taken before a hanging rank is ended, since afterwards its stack is lost. The kernel's part costs nothing and is always
available; Python's comes from `faulthandler`, which `entry.py` arms, or from py-spy if the image has it. Nothing here
blocks the launcher's loop: an exit must be seen meanwhile. docs/protocols/launcher.md#stacks
"""

from __future__ import annotations

import collections
import contextlib
import os
import shutil
import signal
from typing import Callable, Dict, List

from . import output, process
from .loop import Loop

SIGNAL = 60
"""A real-time signal: the C library needs 32 and 33, programs and schedulers take the ones with names."""

DIRECTORY = "stacks"
# Of a stack file, enough for a hundred threads of a few frames each; a rank has dozens.
FILE_LINES = 400
# A process that runs writes its stack within milliseconds of the signal.
POLL_SECONDS = 0.1
# A process that has not written by then will not: py-spy looks from outside.
WRITTEN_SECONDS = 2.0
# py-spy stops the process while it reads it; one that cannot be read in this time will not be read at all.
PY_SPY_SECONDS = 5.0
# Of a rank with hundreds of threads most wait at the same place: the commonest places tell everything.
THREAD_KINDS = 16

Done = Callable[[List[str]], None]


def stack_variables(directory: str, name: str) -> Dict[str, str]:
    """Return what `entry.py` needs in a rank's environment; empty if no file can be made."""
    path = os.path.join(directory, DIRECTORY)
    try:
        os.makedirs(path, exist_ok=True)
    except OSError:
        return {}
    return {"HAJOB_STACK_FILE": os.path.join(path, name), "HAJOB_STACK_SIGNAL": str(SIGNAL)}


class Taker:
    """Taker of one process's stack; `done` gets the lines, most telling last, within eight seconds."""

    def __init__(self, loop: Loop, pid: int, environment: Dict[str, str], done: Done) -> None:
        self._loop = loop
        self._pid = pid
        self._environment = environment
        self._done = done
        self._lines = kernel_lines(pid)
        self._file = environment.get("HAJOB_STACK_FILE", "")
        self._before = _size_of_file(self._file)
        self._seen = -1
        self._polls = int(WRITTEN_SECONDS / POLL_SECONDS)
        self._tool: List[str] = []
        self._finished = False

    def request_stack(self) -> None:
        """Send the signal if the process catches it, which it does once entry.py has armed it; else run py-spy."""
        if self._file and catches_signal(self._pid, SIGNAL):
            with contextlib.suppress(OSError):
                os.kill(self._pid, SIGNAL)
            self._loop.call_after(POLL_SECONDS, self._poll_stack_file)
        else:
            self._ask_tool()

    def _poll_stack_file(self) -> None:
        """Read the file until it has not changed for a moment."""
        size = _size_of_file(self._file)
        self._polls -= 1
        if size > self._before and size == self._seen:
            self._report_stack("by faulthandler", written_lines(self._file, self._before))
        elif self._polls > 0:
            self._seen = size
            self._loop.call_after(POLL_SECONDS, self._poll_stack_file)
        else:
            self._lines.append("it did not answer a signal for {:.0f} s".format(WRITTEN_SECONDS))
            self._ask_tool()

    def _ask_tool(self) -> None:
        tool = shutil.which("py-spy", path=self._environment.get("PATH"))
        if tool is None:
            self._report_stack("", [])
            return
        try:
            spawned = process.spawn_process([tool, "dump", "--pid", str(self._pid)], self._environment, "/")
        except OSError as problem:
            self._report_stack("", ["py-spy could not be started: {}".format(problem)])
            return
        take = lambda line: self._tool.append(line.decode("utf-8", "replace"))  # noqa: E731
        output.Pipe(self._loop, spawned.stdout, take, lambda: None)
        output.Pipe(self._loop, spawned.stderr, take, self._tool_ended)
        self._loop.call_after(PY_SPY_SECONDS, lambda: self._end_tool(spawned.pid))

    def _end_tool(self, pid: int) -> None:
        if not self._finished:  # its number may be a rank's by now
            process.signal_group(pid, signal.SIGKILL)

    def _tool_ended(self) -> None:
        """Conclude: the end of the tool's stderr is its end."""
        self._report_stack("by py-spy", innermost_last("\n".join(self._tool)))

    def _report_stack(self, how: str, lines: List[str]) -> None:
        self._finished = True
        if how:
            self._lines.append("its Python stack, {}:".format(how))
        self._done(self._lines + lines)


def innermost_last(text: str) -> List[str]:
    """Return the threads of both tools in reverse: frames from the outermost on, the main thread at the end.

    Only the last lines travel far, and they should be those of the call in which the rank hangs.
    """
    blocks: List[List[str]] = [[]]
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            blocks.append([line.replace("most recent call first", "most recent call last")])
        elif line.startswith(" ") and len(blocks) > 1:
            blocks[-1].insert(1, line)
        elif line:
            blocks[0].append(line)
    blocks[1:] = sorted(blocks[1:], key=lambda block: "MainThread" in block[0])
    return [line for block in blocks for line in block][-FILE_LINES:]


def catches_signal(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal; without one the signal would kill it."""
    for line in _text_of_file("/proc/{}/status".format(pid)).splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def kernel_lines(pid: int) -> List[str]:
    """Return a process's threads by state and place in the kernel, with the main one's kernel stack if readable."""
    task = "/proc/{}/task".format(pid)
    try:
        threads = os.listdir(task)
    except OSError:
        return ["process {} is gone".format(pid)]
    kinds = collections.Counter(
        _describe_thread(os.path.join(task, thread)) for thread in threads if thread != str(pid)
    )
    lines = ["main thread: {}".format(_describe_thread(os.path.join(task, str(pid))))]
    lines += ["{} more: {}".format(count, kind) for kind, count in kinds.most_common(THREAD_KINDS)]
    kernel = _text_of_file("/proc/{}/stack".format(pid)).splitlines()  # root only
    return lines + ["kernel stack of the main thread:"] * bool(kernel) + kernel


def _describe_thread(directory: str) -> str:
    """Return `python3, S (sleeping), in futex_wait_queue`."""
    state = next(
        (line for line in _text_of_file(directory + "/status").splitlines() if line.startswith("State:")), "State: ?"
    )
    name, place = _text_of_file(directory + "/comm").strip(), _text_of_file(directory + "/wchan").strip("\0\n ")
    where = ", in {}".format(place) if place not in ("", "0") else ""
    return "{}, {}{}".format(name, state.partition(":")[2].strip(), where)


def _text_of_file(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20).decode("utf-8", "replace")
    except OSError:
        return ""


def _size_of_file(path: str) -> int:
    try:
        return os.path.getsize(path) if path else 0
    except OSError:
        return 0


def written_lines(path: str, offset: int) -> List[str]:
    """Return the lines from `offset` on; faulthandler writes the main thread last."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return innermost_last(file.read().decode("utf-8", "replace"))
    except OSError as problem:
        return ["what it wrote cannot be read: {}".format(problem)]
