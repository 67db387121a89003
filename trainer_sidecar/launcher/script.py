"""The user's command: its output, its processes, its end."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Callable, Dict, List

from . import endings, foreign_launchers, output, process
from .loop import Loop

LOST_LOG = "its log is lost and the start script will end with an error, the training goes on: make the directory"


class StartScript:
    """The process of the command; calls `changed` when the agent must be told, `hear` with each line it prints."""

    def __init__(
        self,
        loop: Loop,
        terminal: output.Terminal,
        changed: Callable[[], None],
        hear: Callable[[bytes], None] = lambda _line: None,
    ) -> None:
        self._loop, self._terminal, self._changed, self._hear = loop, terminal, changed, hear
        self.pid = 0  # before its start
        self.exit_code: int | None = None  # minus the signal if one ended it
        self.lost_log = ""  # the line in which its `tee` says that it cannot write
        self._lines = output.LastLines()
        self._pipes: Dict[int, output.Pipe] = {}

    @property
    def last_lines(self) -> List[str]:
        """Return its last lines of output, oldest first."""
        return self._lines.as_texts()

    def start_command(self, command: List[str], environment: Dict[str, str]) -> None:
        """Start the command. OSError: no process could be made."""
        spawned = process.spawn_process(command, environment, os.getcwd())
        self.pid = spawned.pid
        self._read_stream(spawned.stdout, output.Descriptor(1))
        self._read_stream(spawned.stderr, output.Descriptor(2))

    def _read_stream(self, descriptor: int, target: output.Descriptor) -> None:
        self._pipes[descriptor] = output.Pipe(
            self._loop,
            descriptor,
            self._handle_line,
            lambda: self._pipes.pop(descriptor),
            lambda data: self._terminal.queue_output(target.write_all, data),
        )

    def _handle_line(self, line: bytes) -> None:
        self._lines.add_line(line)
        self._hear(line)
        if not self.lost_log and endings.is_lost_log_line(line):
            self.lost_log = line[:500].decode("utf-8", "replace")
            self._terminal.print_message("{}: {}".format(self.lost_log, LOST_LOG))
            self._changed()

    def is_own_output(self, descriptor: int) -> bool:
        """Return whether bytes written to the descriptor appear in the command's own output."""
        return os.fstat(descriptor).st_ino in [os.fstat(pipe).st_ino for pipe in self._pipes]

    def handle_end(self, code: int) -> None:
        """Note that it was reaped; read the rest of its output."""
        for pipe in list(self._pipes.values()):
            pipe.read_rest()
        self.exit_code = code

    def stop_command(self, seconds: float, then: Callable[[], None]) -> None:
        """Send SIGTERM; after `seconds` send SIGKILL and call `then`."""

        def insist() -> None:
            if self.exit_code is None:
                process.signal_group(self.pid, signal.SIGKILL)
                then()

        process.signal_group(self.pid, signal.SIGTERM)
        self._loop.call_after(seconds, insist)

    def kill_family(self) -> None:
        """Kill it at once, with every process below it, in whatever session."""
        for each in reversed(foreign_launchers.process_family(self.pid)):
            with contextlib.suppress(OSError):
                os.kill(each.pid, signal.SIGKILL)
