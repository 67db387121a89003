"""The launcher of a pod whose start script starts TaskD and its own torchrun (`spec.launcher: TaskD`).

It starts the script when the agent orders the first rank, because only then the address of node rank 0 is known, and
follows the processes that TaskD starts: it tells of them as the launcher of Hajob's own ranks does, and an order to
start a rank is the name of the next process that TaskD makes. A process is ended here; another one comes from TaskD.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any, Dict, List

from trainer_sidecar import prctl, signals

from . import (
    arguments,
    clients,
    followed,
    foreign_launchers,
    output,
    process,
    progress,
    protocol,
    script,
    signs,
    user_files,
)
from .loop import Loop
from .supervisor import AGENT_WAIT_SECONDS, FILES_SECONDS, LauncherSettings

# A rank that was started again trains only after its name is known. Reading the tree of processes costs little, and is
# done only while a process is awaited.
LOOK_SECONDS = 0.1
TOOL = "torchrun"


class Follower:
    """Supervisor of the script; `run_command` returns the container's exit code."""

    def __init__(self, settings: LauncherSettings, command: List[str], environment: Dict[str, str]) -> None:
        self._command, self._environment, self._grace_seconds = command, environment, settings.grace_seconds
        self._loop = Loop()
        self._terminal = output.Terminal()
        self._clients = clients.Clients(
            self._loop, settings.directory, self._terminal, self._apply_message, lambda _connection: None
        )
        self._script = script.StartScript(self._loop, self._terminal, self._tell_script, self._hear_line)
        self._ranks = followed.FollowedRanks(self._loop, self._clients.tell_agent, lambda: self._script.last_lines)
        self._files = user_files.UserFiles(self._loop, settings.checkpoint_directory, self._clients.tell_agent)
        self._signs = signs.Signs()
        self._launched: List[str] = []
        self._is_training = False
        self._is_without_mindio = False
        self._is_looking = False
        self._stop_signal = 0
        self._is_over = False

    # ---- life

    def run_command(self) -> int:
        """Wait for the agent's order, run the script, follow its ranks until its end."""
        prctl.become_subreaper()
        self._loop.catch_signals([signal.SIGCHLD], lambda _: self._reap_children())
        self._loop.catch_signals([signal.SIGTERM, signal.SIGINT, signal.SIGHUP], self._stop_pod)
        signals.unblock_signals()
        self._clients.open_socket()
        self._look_for_signs()
        self._loop.run_until_stopped()
        for each in foreign_launchers.processes_below(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL)
        self._files.finish_orders(FILES_SECONDS)
        self._terminal.wait_until_written(1.0)
        return self._exit_code()

    def _exit_code(self) -> int:
        if self._stop_signal:
            return 128 + self._stop_signal
        code = self._script.exit_code or 0
        return code if code >= 0 else 128 - code

    def _begin_looking(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._loop.call_after(LOOK_SECONDS, self._look_for_processes)

    def _look_for_processes(self) -> None:
        self._is_looking = False
        if self._script.exit_code is None:
            self._ranks.look_for_processes(self._script.pid)
            self._note_arguments()
            if self._ranks.is_expecting:
                self._begin_looking()

    def _note_arguments(self) -> None:
        running = self._ranks.running_processes()
        if running and not self._launched:
            self._launched = followed.arguments_of_worker(running[0].pid)
            self._tell_script()

    def _look_for_signs(self) -> None:
        below = foreign_launchers.processes_below(os.getpid())
        if self._signs.has_new_sign(below, 0):
            self._clients.tell_agent({"kind": "sign", "time": protocol.boottime_nanoseconds()})
        self._loop.call_after(signs.LOOK_SECONDS, self._look_for_signs)

    def _hear_line(self, line: bytes) -> None:
        """Tell a printed step where no heartbeat tells any; whose it is torchrun does not say, and one is enough."""
        running = self._ranks.running_processes() if self._is_without_mindio else []
        found = progress.parse_step_line(line) if running else None
        if found is not None:
            now = protocol.boottime_nanoseconds()
            self._clients.tell_agent({"kind": "steps", "steps": [[running[-1].rank, found[0], now]]}, droppable=True)

    def _reap_children(self) -> None:
        for pid, code in process.reap_children(spared=self._script.pid):
            if pid == self._script.pid:
                self._script.handle_end(code)
                self._tell_script()
                self._stop_soon()

    def _stop_pod(self, number: int) -> None:
        """Stop, because the pod is being deleted."""
        if self._stop_signal:
            return
        self._stop_signal = number
        self._tell_script()
        if self._script.pid and self._script.exit_code is None:
            self._script.stop_command(self._grace_seconds, self._stop_soon)
        else:
            self._loop.stop_loop()

    def _stop_soon(self) -> None:
        self._loop.call_after(AGENT_WAIT_SECONDS, self._loop.stop_loop)

    # ---- the agent

    def _apply_message(self, connection: protocol.Connection, message: Dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "agent":
            self._welcome_agent(connection)
        elif connection is self._clients.agent:
            self._apply_order(kind, message)
        else:
            raise protocol.ProtocolError("{!r} from somebody who is not the agent".format(kind))

    def _welcome_agent(self, connection: protocol.Connection) -> None:
        self._clients.set_agent(connection)
        self._clients.tell_agent({"kind": "launcher", "version": protocol.VERSION, "pid": os.getpid()})
        self._tell_script()
        for each in self._ranks.newest_processes():
            self._clients.tell_agent(each.message_to_agent())
        self._clients.tell_agent({"kind": "complete"})

    def _tell_script(self) -> None:
        code = self._script.exit_code
        ended = code is not None
        self._clients.tell_agent(
            {
                "kind": "script",
                "ready": not (ended or self._is_over or self._stop_signal),
                "launch": 1 if self._script.pid else 0,
                "training": self._is_training,
                "finished": ended and code == 0,
                "without_mindio": self._is_without_mindio,
                "entry": self._launched[0] if self._launched else "",
                "arguments": self._launched[1:],
                "lost_log": self._script.lost_log,
                "ended": ended,
                "exit_code": code or 0,
                "last_lines": self._script.last_lines if ended else [],
                "tool": TOOL,
                "problem": "",
                "stopped": bool(self._stop_signal),
            }
        )

    def _apply_order(self, kind: str, message: Dict[str, Any]) -> None:
        if kind == "start":
            self._start_script(message)
        elif kind == "end":
            self._ranks.end_process(int(message["rank"]), protocol.read_process_name(message), bool(message["gently"]))
        elif kind == "registered":
            self._is_training = True
            self._tell_script()
        elif kind == "over":
            self._end_script()
        elif kind == "files":
            self._change_files(message)
        elif kind == "seen_end" and self._script.exit_code is not None:
            self._loop.stop_loop()

    def _start_script(self, message: Dict[str, Any]) -> None:
        """Start the script with the environment of the first order; every order names the rank's next process."""
        rank, name = int(message["rank"]), protocol.read_process_name(message)
        if self._script.exit_code is not None or self._is_over or self._stop_signal:
            refused = {"kind": "refused", "rank": rank, "incarnation": name.incarnation, "start": name.start}
            self._clients.tell_agent(dict(refused, reason="the start script has ended, and TaskD with it"))
            return
        self._ranks.expect_process_of_rank(rank, name)
        if not self._script.pid:
            ordered = {str(key): str(value) for key, value in message["environment"].items()}
            self._is_without_mindio = arguments.WITHOUT_MINDIO in ordered
            self._script.start_command(self._command, dict(self._environment, **ordered))
            self._tell_script()
        self._begin_looking()

    def _end_script(self) -> None:
        """End everything: this pod's incarnation is over."""
        if self._is_over:
            return
        self._is_over = True
        self._ranks.mark_all_ordered()
        if self._script.pid and self._script.exit_code is None:
            self._script.kill_family()

    def _change_files(self, message: Dict[str, Any]) -> None:
        if self._stop_signal or self._script.exit_code is not None:
            self._files.refuse_order(message, "this pod is ending")
        else:
            self._files.begin_order(message)
