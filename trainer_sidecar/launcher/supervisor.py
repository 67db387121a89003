"""The launcher itself: it connects the user's command, the calls of its shims, the agent's orders, and the ranks.

One thread decides everything, so no order of events can start a rank after the end was decided. The agent gets a level:
on each connection the whole state, then every change.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any, Dict, List, NamedTuple

from trainer_sidecar import prctl, signals

from . import (
    arguments,
    clients,
    foreign_launchers,
    launches,
    limits,
    output,
    process,
    program,
    protocol,
    ranks,
    script,
    shells,
    signs,
    starts,
    user_files,
    variables,
    warm,
)
from .loop import Loop

REFUSED = 64  # EX_USAGE of sysexits.h
# For an agent that is being restarted: it has to hear how ranks and script ended, or the end has no reason.
AGENT_WAIT_SECONDS = 3.0
# The end of the pod waits for it: a share that hangs must not use up the grace period.
FILES_SECONDS = 1.0
# A script may prepare data for minutes before it launches its ranks; a note after one minute disturbs nobody.
NO_CALL_NOTE_SECONDS = 60.0
NO_CALL_NOTE = "the command has run for {:.0f} s and launched no ranks yet (torchrun, msrun, torch.distributed.launch)"
# Reading the script's process tree costs little; ranks that a foreign launcher has started must not train for long.
FOREIGN_LAUNCHERS_SECONDS = 1.0
# EX_DATAERR of sysexits.h: a script that ended with 0 has not done what it was started for.
UNFINISHED = 65


class LauncherSettings(NamedTuple):
    """The launcher's settings from its environment (docs/protocols/launcher.md)."""

    directory: str
    size: program.Size
    ranks: ranks.OutputSettings
    limits: launches.LaunchLimits
    grace_seconds: float
    termination_log: str
    checkpoint_directory: str


class Supervisor:
    """Supervisor of the command until its end; `run_command` returns the container's exit code."""

    def __init__(self, settings: LauncherSettings, command: List[str], environment: Dict[str, str]) -> None:
        self._settings = settings
        self._command = command
        self._environment = shells.environment_with_shims(environment, settings.directory)
        self._loop = Loop()
        terminal = self._terminal = output.Terminal()
        self._warm = warm.WarmProcesses(settings.directory, terminal)
        self._ranks = ranks.Ranks(self._loop, settings.ranks, terminal, self._tell_agent, self._warm.take_or_spawn)
        self._clients = clients.Clients(
            self._loop, settings.directory, terminal, self._apply_message, self._handle_lost_client
        )
        path = environment.get("PATH") or os.defpath
        shells.write_bash_file(settings.directory, path)
        shells.wrap_interpreters(settings.directory, path)
        self._script = script.StartScript(self._loop, terminal, self._tell_script)
        self._launches = launches.Launches(
            self._ranks,
            self._clients,
            settings.limits,
            changed=self._tell_script,
            goes_on=self._go_on_after_launch,
        )
        self._starts = starts.Starts(settings.directory, terminal)
        self._foreign = foreign_launchers.ForeignLauncherWatch(settings.directory)
        self._signs = signs.Signs()
        self._files = user_files.UserFiles(self._loop, settings.checkpoint_directory, self._tell_agent)
        self._problem = ""
        self._over = False
        self._script_over = False  # it has ended, and there is nothing left to wait for
        self._end_seen = False
        self._stop_signal = 0

    # ---- life

    def run_command(self) -> int:
        """Run the command and its ranks until the command has ended and the agent has been told."""
        prctl.become_subreaper()
        self._loop.catch_signals([signal.SIGCHLD], lambda _: self._reap_children())
        self._loop.catch_signals([signal.SIGTERM, signal.SIGINT, signal.SIGHUP], self._stop_pod)
        signals.unblock_signals()
        self._clients.open_socket()
        self._script.start_command(self._command, self._environment)
        self._loop.call_after(NO_CALL_NOTE_SECONDS, self._note_missing_call)
        self._loop.call_after(FOREIGN_LAUNCHERS_SECONDS, self._look_for_foreign_launchers)
        self._loop.call_after(signs.LOOK_SECONDS, self._look_for_signs)
        self._loop.run_until_stopped()
        for child in foreign_launchers.child_processes(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        self._files.finish_orders(FILES_SECONDS)
        self._ranks.wait_until_written(2.0)
        return self._exit_code()

    def _exit_code(self) -> int:
        if self._stop_signal:
            return 128 + self._stop_signal
        if self._problem:
            return REFUSED
        code = self._script.exit_code or 0
        code = code if code >= 0 else 128 - code
        if self._launches.was_last_in_order and not code:
            return 0
        if self._launches.is_finished:
            if code:
                self._report_end_reason(
                    "the training has finished; the start script ended with {} after it".format(code)
                )
            return 0
        if code:
            return code
        called = self._launches.number > 0
        why = "but no training of it has finished" if called else "without calling torchrun or msrun"
        self._report_end_reason("the start script ended with 0, {}".format(why))
        return UNFINISHED

    def _report_end_reason(self, text: str) -> None:
        """Write the reason of the end to the container's output and as its termination message."""
        lost_log = self._script.lost_log
        lines = [text, *([lost_log] if lost_log else []), *self._script.last_lines[-5:]]
        self._terminal.print_message(text)
        self._ranks.wait_until_written(1.0)
        if os.path.isfile(self._settings.termination_log):
            with contextlib.suppress(OSError), open(self._settings.termination_log, "w") as file:
                file.write("\n".join(lines)[:4000])

    def _note_missing_call(self) -> None:
        if not self._launches.number and self._script.exit_code is None:
            self._terminal.print_message(NO_CALL_NOTE.format(NO_CALL_NOTE_SECONDS))

    def _look_for_foreign_launchers(self) -> None:
        """End the script when it runs a launcher past Hajob's; after the training every launcher may run."""
        if self._script.exit_code is not None or self._stop_signal or self._launches.is_training:
            return
        self._tell_problem(self._foreign.describe_foreign_launcher(self._script.pid))
        if self._problem:
            self._script.kill_family()
        else:
            self._loop.call_after(FOREIGN_LAUNCHERS_SECONDS, self._look_for_foreign_launchers)

    def _tell_problem(self, problem: str) -> None:
        """Report why no training of the script can begin; empty: no problem."""
        self._problem = problem
        if problem:
            self._terminal.print_message(problem)

    def _look_for_signs(self) -> None:
        """Look for processes that work below this one: of interest until the ranks train."""
        below = foreign_launchers.processes_below(os.getpid())
        if self._signs.has_new_sign(below, self._ranks.lines):
            self._clients.tell_agent({"kind": "sign", "time": protocol.boottime_nanoseconds()})
        self._loop.call_after(signs.LOOK_SECONDS, self._look_for_signs)

    def _reap_children(self) -> None:
        for pid, code in process.reap_children(spared=self._script.pid):
            if pid == self._script.pid:
                self._handle_ended_script(code)
            elif self._ranks.handle_ended_process(pid, code):
                self._launches.handle_ended_rank()
                if self._stop_signal and not self._ranks.running_processes():
                    self._stop_script()
                self._stop_when_all_is_told()

    def _stop_when_all_is_told(self) -> None:
        if self._end_seen and self._script_over and not self._ranks.running_processes():
            self._loop.stop_loop()

    def _handle_ended_script(self, code: int) -> None:
        """Handle the script's end: a script that ended with 0 and left its ranks running is waited out."""
        self._script.handle_end(code)
        if code and not (self._launches.number or self._stop_signal or self._problem):
            self._tell_problem(shells.why_no_shell())
        if code == 0 and self._launches.goes_on_alone and not self._stop_signal:
            self._terminal.print_message("the start script has ended with 0, its ranks go on")
        else:
            self._end_script_for_good()

    def _go_on_after_launch(self) -> None:
        """Go on after a launch; if the script has ended before, stop waiting."""
        if self._script.exit_code is not None:
            self._end_script_for_good()

    def _end_script_for_good(self) -> None:
        if self._script_over:
            return
        self._warm.end_warm_processes()
        self._script_over = True
        self._tell_script()
        self._ranks.end_all_processes(gently=False, ordered=False)
        self._loop.call_after(AGENT_WAIT_SECONDS, self._loop.stop_loop)

    def _stop_pod(self, number: int) -> None:
        """Stop, because the pod is being deleted: SIGTERM to all, then SIGKILL."""
        if self._stop_signal:
            return
        self._stop_signal = number
        self._over = True
        # The agent has to know of the end before the exits of the ranks reach it, which it would take for faults.
        self._tell_script()  # first: processes that end from now on end with the pod
        self._ranks.end_all_processes(gently=True, ordered=False)
        if not self._ranks.running_processes():
            self._stop_script()

    def _stop_script(self) -> None:
        """Stop the script after its ranks: a torchrun that ended first would end them at once."""
        if self._script.exit_code is not None:
            self._end_script_for_good()
        else:
            self._script.stop_command(
                self._settings.grace_seconds, lambda: self._loop.call_after(AGENT_WAIT_SECONDS, self._loop.stop_loop)
            )

    # ---- the agent

    def _apply_message(self, connection: protocol.Connection, message: Dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "agent":
            self._welcome_agent(connection, message)
        elif kind == "output":
            pass  # carries the descriptors only
        elif kind == "call":
            self._handle_shim_call(connection, message)
        elif connection is self._clients.agent:
            self._apply_order(message)
        else:
            raise protocol.ProtocolError("{!r} from somebody who is not the agent".format(kind))

    def _welcome_agent(self, connection: protocol.Connection, message: Dict[str, Any]) -> None:
        self._clients.set_agent(connection)
        self._ranks.follow_lines = False
        self._ranks.keep_output(str(message.get("output_directory", "")), int(message.get("attempt_limit", 0)))
        self._tell_agent({"kind": "launcher", "version": protocol.VERSION, "pid": os.getpid()})
        self._tell_script()
        for rank in self._ranks.newest_processes():
            self._tell_agent(rank.message_to_agent())
        self._tell_agent({"kind": "complete"})
        self._launches.repeat_question()

    def _tell_agent(self, message: Dict[str, Any], droppable: bool = False) -> None:
        self._clients.tell_agent(message, droppable)

    def _tell_script(self) -> None:
        """Send the agent the state of the command and its newest launch."""
        launch = self._launches.current
        self._tell_agent(
            {
                "kind": "script",
                "ready": self._launches.is_open and not self._over,
                "launch": self._launches.number,
                "training": self._launches.is_training,
                "finished": self._launches.is_finished,
                "without_mindio": self._launches.is_without_mindio,
                "entry": launch.program.script if launch is not None else "",
                "arguments": launch.program.arguments if launch is not None else [],
                "lost_log": self._script.lost_log,
                "ended": self._script_over,
                "exit_code": self._script.exit_code or 0,
                "last_lines": self._script.last_lines if self._script_over else [],
                "tool": launch.tool if launch is not None else "",
                "problem": self._problem,
                "stopped": bool(self._stop_signal),
            }
        )

    def _apply_order(self, message: Dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "start":
            self._start_rank(message)
        elif kind == "end":
            self._ranks.end_process(int(message["rank"]), protocol.read_process_name(message), bool(message["gently"]))
        elif kind == "stack":
            self._ranks.take_stack(int(message["rank"]), protocol.read_process_name(message))
        elif kind == "registered":
            self._launches.mark_as_training(int(message["launch"]))
        elif kind == "verdict":
            training = bool(message.get("training", True))
            self._launches.apply_verdict(int(message["launch"]), str(message["problem"]), training=training)
        elif kind == "over":
            self._over = True
            self._ranks.end_all_processes(gently=False, ordered=True)
        elif kind == "follow":
            self._ranks.follow_lines = bool(message["lines"])
        elif kind == "files":
            self._change_files(message)
        elif kind == "seen_end":
            self._end_seen = True
            self._stop_when_all_is_told()
        else:
            self._terminal.print_message("the agent ordered {!r}, which this launcher does not know".format(kind))

    def _change_files(self, message: Dict[str, Any]) -> None:
        if self._stop_signal or self._script_over:
            self._files.refuse_order(message, "this pod is ending")
        else:
            self._files.begin_order(message)

    def _start_rank(self, message: Dict[str, Any]) -> None:
        rank, name = int(message["rank"]), protocol.read_process_name(message)
        reason, launch = self._refusal_of_start(), self._launches.current
        if reason is None and launch is not None:
            ordered = {str(key): str(value) for key, value in message["environment"].items()}
            launch.without_mindio = arguments.WITHOUT_MINDIO in ordered
            reason = self._start_rank_process(launch, rank, name, ordered)
        if reason is not None:
            refused = {"kind": "refused", "rank": rank, "incarnation": name.incarnation, "start": name.start}
            self._tell_agent(dict(refused, reason=reason))

    def _start_rank_process(
        self, launch: launches.Launch, rank: int, name: protocol.ProcessName, ordered: Dict[str, str]
    ) -> str | None:
        """Start the rank's process; return why there is none."""
        try:
            what, environment = self._starts.program_for_rank(
                launch, rank, name, ordered, self._ranks.has_run_before(rank)
            )
        except program.ProgramError as problem:
            return str(problem)
        reason = self._ranks.start_process(rank, name, what, environment, launch.target)
        if reason is None and what.log_directory is not None:
            self._ranks.show_output_in(what.log_directory, rank)
        return reason

    def _refusal_of_start(self) -> str | None:
        if self._over or self._stop_signal:
            return "this pod's incarnation is over"
        if self._script_over or (self._launches.current is not None and not self._launches.is_open):
            return "the start script has gone on after its ranks"
        if self._launches.current is None:
            return "the start script has not called torchrun or msrun yet"
        return None

    # ---- the shims

    def _handle_shim_call(self, connection: protocol.Connection, message: Dict[str, Any]) -> None:
        call = program.ShimCall(
            str(message["tool"]),
            [str(argument) for argument in message["arguments"]],
            str(message["cwd"]),
            {str(key): str(value) for key, value in message["environment"].items()},
            str(message["python"]),
            limits.read_limits(message["limits"]),
            message.get("configuration", {}),
        )
        mindio = self._environment.get(variables.MINDSPORE_WORDS, "")
        try:
            decision = launches.decide_on_call(call, self._settings.size, self._launches.current, mindio)
        except program.ProgramError as problem:
            self._clients.send_message(connection, {"kind": "say", "text": str(problem)})
            self._clients.send_message(connection, {"kind": "outcome", "exit_code": REFUSED})
            return
        if decision.program is None:
            self._run_image_launcher(connection, call, decision.note)
        else:
            self._launches.begin_launch(call, decision.program, connection, self._script.is_own_output)
            self._prepare_warm_ranks()

    def _prepare_warm_ranks(self) -> None:
        """In a spare, start the processes of its future ranks as far as possible."""
        launch, spare = self._launches.current, bool(self._environment.get("HAJOB_SPARE"))
        if launch is not None and spare and not self._ranks.newest_processes():
            argv, environment = self._starts.program_before_rank(launch)
            self._warm.start_warm_processes(
                launch.tool, launch.program, argv, environment, self._settings.size.ranks_per_node
            )

    def _run_image_launcher(self, connection: protocol.Connection, call: program.ShimCall, note: str) -> None:
        """Have the shim become the image's own launcher."""
        self._foreign.allow_process(connection.process_of_peer())
        self._clients.send_message(connection, {"kind": "say", "text": note})
        environment = shells.environment_without_shims(call.environment, self._settings.directory)
        self._clients.send_message(connection, {"kind": "run", "environment": environment})

    def _handle_lost_client(self, connection: protocol.Connection) -> None:
        self._launches.handle_closed_shim(connection, expected=self._script_over or bool(self._stop_signal))
