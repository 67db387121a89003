"""Containers as processes: start, watch, stop, freeze and find them.

A container runtime has PID namespaces and cgroups; an ordinary user on an ordinary machine has neither. What is needed
of them is made from what there is: every container is a session of its own, the node process adopts what its
containers leave behind (``PR_SET_CHILD_SUBREAPER``), so that the whole tree of a container always hangs below this
process, and a marker in the environment says whose an adopted process was. When the first process of a container
ends, everything else in it is killed, as the kernel does at the end of a PID namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from e2e.nodes.plan import ContainerPlan

CONTAINER_MARKER = "PROCESS_NODE_CONTAINER"
_PR_SET_CHILD_SUBREAPER = 36
STOPPED = "T"
_GONE = {"Z", "X"}


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """One line of the machine's process table. ``state`` is the letter of /proc (``T`` is stopped)."""

    pid: int
    parent: int
    state: str
    name: str


@dataclass
class Process:
    """A process of a container that this node started: the first one, or a probe's.

    ``exited`` becomes its exit code (128 + n for signal n).
    """

    pid: int
    marker: str
    first: bool
    exited: asyncio.Future[int]
    popen: subprocess.Popen[bytes] = field(repr=False)

    @property
    def alive(self) -> bool:
        """Whether it has not been reaped yet."""
        return not self.exited.done()


@dataclass(frozen=True)
class Streams:
    """Standard input, output and error of a process, as ``subprocess`` takes them (file descriptors)."""

    stdin: int
    stdout: int
    stderr: int


class StartError(Exception):
    """The process could not be started; the message is for the container's status."""


def become_subreaper() -> None:
    """Make the kernel give orphans of our containers to this process instead of init."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


class ProcessHost:
    """All processes of all containers of this node process.

    Args:
        adopt: this process is the subreaper and may reap every child, also those it did not start itself.
    """

    def __init__(self, *, adopt: bool) -> None:
        self._adopt = adopt
        self._children: dict[int, Process] = {}

    def install(self) -> None:
        """Start to notice ends of processes; call once, in the main thread, with the loop running."""
        if self._adopt:
            become_subreaper()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def start(self, plan: ContainerPlan, output: Path, marker: str, *, first: bool = True) -> Process:
        """Start a process in a session of its own, its output appended to the file ``output``.

        Args:
            plan: what to start.
            output: where its output goes.
            marker: the container it belongs to.
            first: the container ends with it.

        Raises:
            StartError: the program or the working directory is not there, or may not be executed.
        """
        try:
            with output.open("ab") as log:
                streams = Streams(subprocess.DEVNULL, log.fileno(), subprocess.STDOUT)
                return self.launch(plan, streams, marker, first=first)
        except OSError as error:
            raise StartError(_why(plan, error)) from error

    def launch(self, plan: ContainerPlan, streams: Streams, marker: str, *, first: bool) -> Process:
        """Start a process with its standard streams given; else like :meth:`start`."""
        if not plan.arguments:
            raise StartError("no command specified")
        try:
            Path(plan.working_directory).mkdir(parents=True, exist_ok=True)
            popen = subprocess.Popen(
                plan.arguments,
                env=dict(plan.environment),
                cwd=plan.working_directory,
                stdin=streams.stdin,
                stdout=streams.stdout,
                stderr=streams.stderr,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise StartError(_why(plan, error)) from error
        process = Process(popen.pid, marker, first, asyncio.get_running_loop().create_future(), popen)
        self._children[popen.pid] = process
        return process

    def members(self, markers: Iterable[str]) -> dict[str, list[ProcessEntry]]:
        """The live processes of each container, parents before their children."""
        wanted = set(markers)
        trees = process_trees(self._roots(), process_table())
        return {marker: trees.get(marker, []) for marker in wanted}

    def _roots(self) -> Callable[[ProcessEntry], str | None]:
        """Which container a direct child of this process belongs to."""
        own = os.getpid()

        def marker_of(entry: ProcessEntry) -> str | None:
            if entry.parent != own:
                return None
            known = self._children.get(entry.pid)
            return known.marker if known else read_environment(entry.pid).get(CONTAINER_MARKER)

        return marker_of

    def markers(self) -> set[str]:
        """The containers that have processes."""
        return {process.marker for process in self._children.values()}

    def signal(self, markers: Iterable[str], number: int) -> list[int]:
        """Send a signal to every process of these containers, until no new one appears; returns the pids reached."""
        markers = list(markers)
        reached: set[int] = set()
        while True:
            fresh = [e.pid for es in self.members(markers).values() for e in es if e.pid not in reached]
            if not fresh:
                return sorted(reached)
            for pid in fresh:
                reached.add(pid)
                send_signal(pid, number)

    def _has_orphans(self) -> bool:
        """Whether this process has children it did not start: cheap to ask, where all of /proc is not."""
        try:
            lists = [(task / "children").read_text() for task in Path("/proc/self/task").iterdir()]
        except OSError:
            return True
        return not self._adopt or any(int(pid) not in self._children for text in lists for pid in text.split())

    def _reap(self) -> None:
        if not self._adopt:
            for pid in list(self._children):
                self._wait(pid)
            return
        while self._wait(-1):
            pass

    def _wait(self, pid: int) -> bool:
        try:
            reaped, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return False
        if reaped == 0:
            return False
        process = self._children.pop(reaped, None)
        if process:
            code = os.waitstatus_to_exitcode(status)
            process.popen.returncode = code
            if process.first and self._has_orphans():
                self.signal([process.marker], signal.SIGKILL)
            process.exited.set_result(code if code >= 0 else 128 - code)
        return True


def process_trees(
    root_of: Callable[[ProcessEntry], str | None], table: Mapping[int, ProcessEntry]
) -> dict[str, list[ProcessEntry]]:
    """Group a process table by container: each root with everything below it, breadth first."""
    children: dict[int, list[ProcessEntry]] = defaultdict(list)
    for entry in table.values():
        children[entry.parent].append(entry)
    trees: dict[str, list[ProcessEntry]] = defaultdict(list)
    for entry in table.values():
        marker = root_of(entry)
        if marker is None:
            continue
        level = [entry]
        while level:
            trees[marker] += level
            level = [child for parent in level for child in children[parent.pid]]
    return {marker: [e for e in entries if e.state not in _GONE] for marker, entries in trees.items()}


def process_table(root: str = "/proc") -> dict[int, ProcessEntry]:
    """Every process of the machine by pid."""
    table: dict[int, ProcessEntry] = {}
    for name in os.listdir(root):  # noqa: PTH208 - called on every fault, pathlib triples its time
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"{root}/{name}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123
            line = stat.read()
            before, _, after = line.rpartition(")")
            state, parent = after.split(maxsplit=2)[:2]
            table[int(name)] = ProcessEntry(int(name), int(parent), state, before.partition("(")[2])
    return table


def read_environment(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty when it has gone."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if b"=" in entry)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def read_command(pid: int) -> list[str]:
    """The arguments of a process; empty when it has gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [word.decode(errors="replace") for word in raw.split(b"\0")[:-1]]


async def until_stopped(pids: Iterable[int], seconds: float = 2.0) -> None:
    """Wait until SIGSTOP has reached these processes; a process that sleeps in the kernel may take its time."""
    waiting = set(pids)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while waiting := {pid for pid in waiting if read_state(pid) not in {STOPPED, *_GONE, ""}}:  # noqa: ASYNC110
                await asyncio.sleep(0.002)


def read_state(pid: int) -> str:
    """The letter of /proc for a process; empty when it has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal; the first one of a PID namespace gets no other."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    caught = next(line for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def send_signal(pid: int, number: int) -> bool:
    """Send a signal; False when the process has gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _why(plan: ContainerPlan, error: Exception) -> str:
    program = plan.arguments[0]
    if isinstance(error, FileNotFoundError):
        what = "no such file or directory" if "/" in program else "executable file not found in $PATH"
    else:
        what = str(getattr(error, "strerror", None) or error).lower()
    return f'failed to start container process: exec: "{program}": {what}'
