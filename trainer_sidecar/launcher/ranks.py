"""The rank processes of this pod, as a table: which run, which ended and how.

A process is named by (rank, incarnation, start) and a name is used once: a repeated start changes nothing, an older one
is refused. SIGKILL to the whole group ends a rank, since it ignores SIGTERM once MindIO runs; only an orderly
end sends SIGTERM first and waits shortly.
"""

from __future__ import annotations

import os
import signal
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from . import endings, foreign_launchers, helpers, kept, memory, output, plogs, process, program, progress, stacks
from .limits import ProcessLimits
from .loop import Loop
from .protocol import ProcessName, boottime_nanoseconds
from .variables import TOKEN

GENTLE_SECONDS = 2.0  # short: MindIO makes ranks ignore SIGTERM, and a restart of the job waits for it


class Rank:
    """One process of a rank: running, or ended with a code."""

    def __init__(
        self, rank: int, name: ProcessName, spawned: process.Spawned, environment: Dict[str, str], token: str
    ) -> None:
        self.rank = rank
        self.token = token
        self.name = name
        self.pid = spawned.pid
        self.environment = environment
        self.streams: Dict[int, output.Pipe] = {}  # open output, by descriptor
        self.running = True
        self.exit_code = 0
        self.changed = boottime_nanoseconds()
        self.ordered = False  # the agent asked for its end
        self.asked = False  # SIGTERM was sent
        self.killed = False  # SIGKILL was sent by this launcher
        self.step = -1
        self.step_time = 0
        self.last_step = 0  # the step it is to reach, as it prints it; 0 unknown
        self.notices: Dict[str, str] = {}
        self.kept_in = ""  # the file with its output
        self.last_lines = output.LastLines()
        self.add_line: Callable[[bytes], None] = lambda _: None  # adds to its output, as if it had printed it

    @property
    def is_finished(self) -> bool:
        """Whether it ended with code 0."""
        return not self.running and self.exit_code == 0

    def message_to_agent(self) -> Dict[str, Any]:
        """Return the message about this process as it is now."""
        return {
            "kind": "rank",
            "rank": self.rank,
            "incarnation": self.name.incarnation,
            "start": self.name.start,
            "pid": self.pid,
            "running": self.running,
            "exit_code": self.exit_code,
            "ordered": self.ordered,
            "changed": self.changed,
            "step": self.step,
            "step_time": self.step_time,
            "last_step": self.last_step,
            "notices": self.notices,
            "last_lines": [] if self.running and endings.FAULT not in self.notices else self.last_lines.as_texts(),
        }


class Target(NamedTuple):
    """Where a call's ranks print: the shim's own stdout and stderr."""

    stdout: Callable[[bytes], None]
    stderr: Callable[[bytes], None]


class OutputSettings(NamedTuple):
    """Where output is kept and how much of it."""

    output_directory: str
    file_bytes: int
    attempt_limit: int
    chips: Tuple[str, ...] = helpers.CHIPS
    memory_files: Tuple[str, ...] = memory.FILES


class Ranks:
    """Table that starts, ends and watches the processes; `tell` gets a message for the agent at every change.

    Attributes:
        loop: of the launcher.
        terminal: the container's output, in which lines of the ranks and of the launcher stand in their order.
        follow_lines: tell the agent every line.
        lines: printed by all of them.
    """

    def __init__(
        self,
        loop: Loop,
        settings: OutputSettings,
        terminal: output.Terminal,
        tell: Callable[[Dict[str, Any], bool], None],
        spawn: Callable[[List[str], Dict[str, str], str, ProcessLimits], process.Spawned],
    ) -> None:
        self.loop = loop
        self._spawn = spawn
        self._settings = settings
        self.terminal = terminal
        self._tell = tell
        self._files = output.Writer("hajob-files")
        self._newest: Dict[int, Rank] = {}
        self._by_pid: Dict[int, Rank] = {}
        self._untold = progress.Untold()
        self._memory = memory.Kills(settings.memory_files)
        self.follow_lines = False
        self.lines = 0
        self._own = "{}.{}".format(os.getpid(), boottime_nanoseconds())  # unique among the launchers of all pods

    def keep_output(self, directory: str, attempt_limit: int) -> None:
        """Keep output of later starts in the agent's directory and limit; empty and 0: as before."""
        if directory:
            self._settings = self._settings._replace(output_directory=directory)
        if attempt_limit > 0:
            self._settings = self._settings._replace(attempt_limit=attempt_limit)

    def newest_processes(self) -> List[Rank]:
        """Return the newest process of every rank that was ever started here."""
        return [self._newest[rank] for rank in sorted(self._newest)]

    def running_processes(self) -> List[Rank]:
        """Return the processes that have not ended."""
        return [rank for rank in self.newest_processes() if rank.running]

    def start_process(
        self, rank: int, name: ProcessName, what: program.Program, environment: Dict[str, str], target: Target
    ) -> str | None:
        """Start a process; return the reason of a refusal, None also when it is running already."""
        before = self._newest.get(rank)
        if before is not None and name <= before.name:
            return None if name == before.name else "{} was started after it".format(before.name)
        if before is not None and before.running:
            return "its predecessor, process {}, has not ended".format(before.pid)
        token = "{}/{}.{}.{}".format(self._own, rank, *name)
        try:
            placed = plogs.add_variable(environment, self._settings.output_directory)
            if placed is not environment:  # in the files' thread: the volume may hang, the start must not
                self._files.call_in_order(lambda: plogs.make_directory(placed[plogs.VARIABLE]))
            own = dict(placed, **{TOKEN: token})
            spawned = self._spawn(what.argv, own, what.cwd, what.limits)
        except OSError as problem:
            return "no process could be made: {}".format(problem)
        started = Rank(rank, name, spawned, environment, spawned.token or token)
        self._newest[rank] = self._by_pid[started.pid] = started
        log = self._new_log_file(rank, name, environment)
        started.kept_in = log.path
        started.add_line = lambda line: self._keep_line(started, line, target.stderr, log)
        self._read_stream(started, spawned.stdout, target.stdout, log)
        self._read_stream(started, spawned.stderr, target.stderr, log)
        self._tell(started.message_to_agent(), False)
        return None

    def _new_log_file(self, rank: int, name: ProcessName, environment: Dict[str, str]) -> output.LogFile:
        attempt = environment.get("HAJOB_ATTEMPT", "0")
        directory, limit = self._settings.output_directory, self._settings.attempt_limit
        if attempt.isdigit():
            node = environment.get("HAJOB_NODE_RANK", "0")
            self._files.call_in_order(lambda: kept.delete_beyond_limits(directory, rank, int(attempt), limit, node))
        path = os.path.join(directory, attempt, kept.file_name(kept.KeptProcess(rank, name.incarnation, name.start)))
        return output.LogFile(path, self._settings.file_bytes, self.terminal.print_message)

    def _read_stream(self, rank: Rank, descriptor: int, write: Callable[[bytes], None], log: output.LogFile) -> None:
        def ended() -> None:
            del rank.streams[descriptor]
            if not rank.streams:
                self._files.call_in_order(log.close_file)

        rank.streams[descriptor] = output.Pipe(
            self.loop, descriptor, lambda line: self._handle_line(rank, line, write, log), ended
        )

    def _handle_line(self, rank: Rank, line: bytes, write: Callable[[bytes], None], log: output.LogFile) -> None:
        now = boottime_nanoseconds()
        self.lines += 1
        found = progress.parse_step_line(line)
        if found is not None:
            step, rank.last_step = found
            waits = bool(self._untold.steps)
            self._untold.add_step(rank.rank, step, now, rank.step_time)
            rank.step, rank.step_time = step, now
            if not waits:
                self._tell_steps_later(now)
        rank.last_lines.add_line(line)
        if found is None and endings.note_telling_line(rank.notices, line) in endings.TOLD_AT_ONCE and rank.running:
            self._tell(rank.message_to_agent(), False)  # of one that has ended it is told with its end
        if self.follow_lines:
            text = line.decode("utf-8", "replace")
            self._tell({"kind": "line", "rank": rank.rank, "text": text, "time": now}, True)
        self._keep_line(rank, line, write, log)

    def _keep_line(self, rank: Rank, line: bytes, write: Callable[[bytes], None], log: output.LogFile) -> None:
        self._files.queue_output(log.append_output, line + b"\n")
        self.terminal.queue_output(write, b"[rank %d] %s\n" % (rank.rank, line))

    def take_stack(self, rank: int, name: ProcessName) -> None:
        """Take the stack of a process, into its output and to the agent. A process that has ended has none."""
        found = self._newest.get(rank)
        if found is not None and found.running and found.name == name:
            stacks.Taker(
                self.loop, found.pid, found.environment, lambda lines: self._report_stack(found, lines)
            ).request_stack()

    def _report_stack(self, rank: Rank, lines: List[str]) -> None:
        if not rank.running:  # its output is closed
            return
        rank.add_line("hajob: where rank {}, process {}, stands:".format(rank.rank, rank.pid).encode())
        for line in lines:
            rank.add_line(line.encode("utf-8", "replace"))
        newest = [line[: output.KEPT_LINE_CHARACTERS] for line in lines[-output.KEPT_LINES :]]
        told = {"kind": "stack", "rank": rank.rank, "incarnation": rank.name.incarnation, "start": rank.name.start}
        self._tell(dict(told, lines=newest), False)

    def _tell_steps_later(self, now: int) -> None:
        """Send gathered steps when due: each carries its time; an exit is sent after them."""
        if not self._untold.steps:
            return
        left = self._untold.next_send_time() - now
        if left > 0:
            self.loop.call_after(left / progress.SECOND, lambda: self._tell_steps_later(boottime_nanoseconds()))
        else:
            self._tell_steps()

    def _tell_steps(self) -> None:
        if self._untold.steps:
            self._tell({"kind": "steps", "steps": self._untold.take_steps()}, True)

    def handle_ended_process(self, pid: int, code: int) -> bool:
        """Take in that a process was reaped; False: it is not one of the ranks."""
        rank = self._by_pid.pop(pid, None)
        if rank is None:
            return False
        rank.running, rank.changed = False, boottime_nanoseconds()
        rank.exit_code = code
        self._end_helpers(rank)
        for pipe in list(rank.streams.values()):
            pipe.read_rest()
        if code == -signal.SIGKILL:
            words = memory.WORDS if self._memory.has_risen() else "" if rank.killed else memory.FOREIGN_KILL
            rank.last_lines.add_line(words.encode())
        self._tell_steps()
        self._tell(rank.message_to_agent(), False)
        return True

    def _end_helpers(self, rank: Rank) -> None:
        """End its processes in other sessions: all of them after a failure, else those that hold a chip."""
        known = [each.pid for each in self.running_processes()]
        roots = [pid for pid in foreign_launchers.child_processes(os.getpid()) if pid not in known]
        ended = helpers.end_helpers(rank.token, roots, only_with_chip=rank.is_finished, chips=self._settings.chips)
        if ended:
            self.terminal.print_message(
                "rank {} left processes {} behind, they are ended with it".format(rank.rank, ended)
            )

    def show_output_in(self, directory: str, rank: int) -> None:
        """Link `worker_<rank>.log`, where msrun would have written it, to the kept file."""
        path, kept_in = os.path.join(directory, "worker_{}.log".format(rank)), self._newest[rank].kept_in
        self._files.call_in_order(lambda: kept.link_to_file(path, kept_in))

    def has_run_before(self, rank: int) -> bool:
        """Return whether a process of this rank was started here before."""
        return rank in self._newest

    def end_process(self, rank: int, up_to: ProcessName, gently: bool) -> None:
        """End a rank's process as the agent ordered, unless it is newer than `up_to`."""
        found = self._newest.get(rank)
        if found is not None and found.running and found.name <= up_to:
            found.ordered = True
            self._end_rank(found, gently)

    def end_all_processes(self, gently: bool, ordered: bool) -> None:
        """End every process; `ordered` by the agent, else each is reported like any other exit."""
        for rank in self.running_processes():
            rank.ordered = rank.ordered or ordered
            self._end_rank(rank, gently)

    def _end_rank(self, rank: Rank, gently: bool) -> None:
        """Send SIGKILL; gently: SIGTERM first, SIGKILL 2 s later."""
        if not gently:
            self._kill_group(rank)
        elif not rank.asked:
            rank.asked = True
            process.signal_group(rank.pid, signal.SIGTERM)
            self.loop.call_after(GENTLE_SECONDS, lambda: self._kill_if_running(rank))

    def _kill_if_running(self, rank: Rank) -> None:
        if rank.running:
            self._kill_group(rank)

    @staticmethod
    def _kill_group(rank: Rank) -> None:
        rank.killed = True
        process.signal_group(rank.pid, signal.SIGKILL)

    def forget_processes(self) -> None:
        """Free the names: every process has ended and none belonged to the training."""
        self._newest.clear()

    def wait_until_written(self, seconds: float) -> bool:
        """Give each target the time to write the last output; False: some is still queued."""
        written = self.terminal.wait_until_written(seconds)
        return self._files.wait_until_written(seconds) and written
