"""The launcher itself: the user's command, the calls of its shims, the agent's orders, and the ranks between them.

One thread decides everything, so there is no order of events in which a rank could be started after the end was
decided. What the agent is told is a level: on each connection the whole state, then every change.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any, Callable, Dict, List, NamedTuple, Set

from trainer_sidecar import prctl, signals

from . import (
    arguments,
    endings,
    launches,
    output,
    process,
    program,
    protocol,
    ranks,
    shells,
    stacks,
    strangers,
    variables,
)
from .loop import Loop

REFUSED = 64
DROPPABLE_ABOVE_BYTES = 1024 * 1024
AGENT_WAIT_SECONDS = 3.0
OUTPUT_WAIT_SECONDS = 0.005
OUTPUT_WAITS = 400
NO_CALL_NOTE_SECONDS = 60.0
NO_CALL_NOTE = "the command has run for {:.0f} s and launched no ranks yet (torchrun, msrun, torch.distributed.launch)"
STRANGERS_SECONDS = 1.0
VERDICT_SECONDS = 5.0
UNFINISHED = 65
LOST_LOG = "its log is lost and the start script will end with an error, the training goes on: make the directory"
STRANGER = (
    "a launcher of the image runs below the start script, past Hajob's: {}{}; call it by its name alone, "
    "so that Hajob's is found on PATH"
)


class LauncherSettings(NamedTuple):
    """What the launcher was told by its environment (docs/protocols/launcher.md)."""

    directory: str
    size: program.Size
    ranks: ranks.OutputSettings
    finish_seconds: float
    ordered_end_seconds: float
    grace_seconds: float
    termination_log: str


class Supervisor:
    """Runs the command to its end; `run` returns the container's exit code."""

    def __init__(self, settings: LauncherSettings, command: List[str], environment: Dict[str, str]) -> None:
        self._settings = settings
        self._command = command
        self._environment = shells.environment(environment, settings.directory)
        self._loop = Loop()
        self._ranks = ranks.Ranks(self._loop, settings.ranks, self._tell)
        self._server = protocol.listen(settings.directory)
        shells.write_bash_file(settings.directory, environment.get("PATH") or os.defpath)
        self._script_pid = 0
        self._script_lines = output.LastLines()
        self._script_exit: int | None = None
        self._script_pipes: Dict[int, Callable[[], None]] = {}
        self._agent: protocol.Connection | None = None
        self._launch: launches.Launch | None = None
        self._num_launches = 0
        self._as_they_are: Set[int] = set()  # launchers that were let go their own way
        self._suspect = 0  # a launcher of the image, seen once: it may only be looked at for help
        self._problem = ""
        self._lost_log = ""
        self._noted: List[str] = []
        self._over = False
        self._late: List[ranks.Rank] = []  # had not ended when the first rank had finished
        self._script_over = False  # it has ended, and nothing is waited for any more
        self._end_seen = False
        self._stop_signal = 0

    # ---- life

    def run(self) -> int:
        """Run the command and its ranks until the command has ended and the agent knows it."""
        prctl.become_subreaper()
        self._loop.catch([signal.SIGCHLD], lambda _: self._reap())
        self._loop.catch([signal.SIGTERM, signal.SIGINT, signal.SIGHUP], self._stop)
        signals.let_through()
        self._loop.watch(self._server.fileno(), self._accept)
        script = process.spawn(self._command, self._environment, os.getcwd())
        self._script_pid = script.pid
        self._read_script(script.stdout, output.Descriptor(1))
        self._read_script(script.stderr, output.Descriptor(2))
        self._loop.later(NO_CALL_NOTE_SECONDS, self._note_missing_call)
        self._loop.later(STRANGERS_SECONDS, self._look_for_strangers)
        self._loop.run()
        for child in process.children():
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        self._ranks.flush(2.0)
        return self._exit_code()

    def _exit_code(self) -> int:
        if self._stop_signal:
            return 128 + self._stop_signal
        if self._problem:
            return REFUSED
        code = self._script_exit or 0
        code = code if code >= 0 else 128 - code
        launch = self._launch
        if launch is not None and launch.finished:
            if code:
                self._last_word("the training has finished; the start script ended with {} after it".format(code))
            return 0
        if self._num_launches and not code:
            self._last_word("the start script ended with 0, but no training of it has finished")
            return UNFINISHED
        return code

    def _last_word(self, text: str) -> None:
        """For whoever looks at the container: in its output, and as its termination message."""
        lines = [text, *([self._lost_log] if self._lost_log else []), *self._script_lines.text()[-5:]]
        self._ranks.say(text)
        self._ranks.flush(1.0)
        if os.path.isfile(self._settings.termination_log):
            with contextlib.suppress(OSError), open(self._settings.termination_log, "w") as file:
                file.write("\n".join(lines)[:4000])

    def _read_script(self, descriptor: int, target: output.Descriptor) -> None:
        lines = output.Lines()

        def readable() -> None:
            try:
                data = os.read(descriptor, 65536)
            except BlockingIOError:
                return
            for line in lines.feed(data) if data else lines.end():
                self._script_lines.add(line)
                if not self._lost_log and endings.is_lost_log(line):
                    self._lost_log = line[:500].decode("utf-8", "replace")
                    self._ranks.say("{}: {}".format(self._lost_log, LOST_LOG))
                    self._tell(self._script_record(), False)
            if data:
                self._ranks.pass_on(target.write, data)
                return
            self._loop.forget(descriptor)
            os.close(descriptor)
            del self._script_pipes[descriptor]

        self._script_pipes[descriptor] = readable
        self._loop.watch(descriptor, readable)

    def _note_missing_call(self) -> None:
        if not self._num_launches and self._script_exit is None:
            self._ranks.say(NO_CALL_NOTE.format(NO_CALL_NOTE_SECONDS))

    def _look_for_strangers(self) -> None:
        """Seen twice, a second apart: end the script and name the line; after the training everything may run."""
        launch = self._launch
        if self._script_exit is not None or self._stop_signal or (launch is not None and launch.is_training):
            return
        found = strangers.find(strangers.family(self._script_pid), self._settings.directory, self._as_they_are)
        if found is not None and found.pid == self._suspect:
            command = " ({})".format(found.command) if found.line else ""
            self._problem = STRANGER.format(found.line or found.command, command)
            self._ranks.say(self._problem)
            self._end_script()
            return
        self._suspect = found.pid if found is not None else 0
        self._loop.later(STRANGERS_SECONDS, self._look_for_strangers)

    def _end_script(self) -> None:
        """At once, with everything below it, whatever sessions that has made."""
        for each in reversed(strangers.family(self._script_pid)):
            with contextlib.suppress(OSError):
                os.kill(each.pid, signal.SIGKILL)

    def _reap(self) -> None:
        for pid, code in process.reap(spared=self._script_pid):
            if pid == self._script_pid:
                self._script_ended(code)
            elif self._ranks.ended(pid, code):
                self._look_for_the_end()
                if self._stop_signal and not self._ranks.running():
                    self._stop_script()
                self._stop_when_all_is_told()

    def _stop_when_all_is_told(self) -> None:
        if self._end_seen and self._script_over and not self._ranks.running():
            self._loop.stop()

    def _script_ended(self, code: int) -> None:
        """The ranks tell the end: a script that ended with 0 and left them behind is waited out."""
        for drain in list(self._script_pipes.values()):
            drain()
        self._script_exit = code
        launch = self._launch
        goes_on = launch is not None and not launch.concluded and (launch.shim is not None or launch.program.detached)
        if code == 0 and goes_on and not self._stop_signal:
            self._ranks.say("the start script has ended with 0, its ranks go on")
        else:
            self._end_script_for_good()

    def _end_script_for_good(self) -> None:
        if self._script_over:
            return
        self._script_over = True
        self._tell(self._script_record(), False)
        self._ranks.end_all(gently=False, ordered=False)
        self._loop.later(AGENT_WAIT_SECONDS, self._loop.stop)

    def _stop(self, number: int) -> None:
        """The pod is being deleted: ask everybody, then insist."""
        if self._stop_signal:
            return
        self._stop_signal = number
        self._over = True
        self._ranks.end_all(gently=True, ordered=False)
        if not self._ranks.running():
            self._stop_script()

    def _stop_script(self) -> None:
        """After its ranks: a torchrun that was ended first would take them along at once."""
        if self._script_exit is not None:
            self._end_script_for_good()
            return
        process.signal_group(self._script_pid, signal.SIGTERM)
        self._loop.later(self._settings.grace_seconds, self._insist)

    def _insist(self) -> None:
        if self._script_exit is None:
            process.signal_group(self._script_pid, signal.SIGKILL)
            self._loop.later(AGENT_WAIT_SECONDS, self._loop.stop)

    # ---- connections

    def _accept(self) -> None:
        try:
            peer, _ = self._server.accept()
        except OSError:
            return
        connection = protocol.Connection(peer)
        self._loop.watch(peer.fileno(), lambda: self._receive(connection))

    def _receive(self, connection: protocol.Connection) -> None:
        try:
            messages, is_open = connection.receive()
            for message in messages:
                self._take(connection, message)
        except (protocol.ProtocolError, KeyError, TypeError, ValueError) as problem:
            self._ranks.say("a connection to the launcher is closed, it sent {!r}".format(problem))
            is_open = False
        if not is_open:
            self._drop(connection)

    def _drop(self, connection: protocol.Connection) -> None:
        if connection.socket.fileno() < 0:
            return
        self._loop.forget(connection.socket.fileno())
        if connection is self._agent:
            self._agent = None
        launch = self._launch
        if launch is not None and connection is launch.shim:
            launch.shim = None
            self._shim_gone(launch)
            self._close_output(launch)
        connection.close()

    def _send(self, connection: protocol.Connection, message: Dict[str, Any]) -> None:
        connection.send(message)
        self._watch_for_room(connection)

    def _watch_for_room(self, connection: protocol.Connection) -> None:
        if connection.socket.fileno() < 0:
            return

        def room() -> None:
            connection.flush()
            self._watch_for_room(connection)

        self._loop.watch(
            connection.socket.fileno(), lambda: self._receive(connection), room if connection.unsent else None
        )

    def _tell(self, message: Dict[str, Any], droppable: bool) -> None:
        """To the agent, if one is there; a later one gets the whole state."""
        if self._agent is None or (droppable and self._agent.unsent > DROPPABLE_ABOVE_BYTES):
            return
        self._send(self._agent, message)

    def _take(self, connection: protocol.Connection, message: Dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "agent":
            self._agent_arrived(connection, message)
        elif kind == "output":
            pass  # carries the descriptors only
        elif kind == "call":
            self._called(connection, message)
        elif connection is self._agent:
            self._order(message)
        else:
            raise protocol.ProtocolError("{!r} from somebody who is not the agent".format(kind))

    # ---- the agent

    def _agent_arrived(self, connection: protocol.Connection, message: Dict[str, Any]) -> None:
        former, self._agent = self._agent, connection
        if former is not None and former is not connection:
            self._send(former, {"kind": "replaced"})
            self._drop(former)
        self._ranks.follow_lines = False
        self._ranks.keep_output(str(message.get("output_directory", "")), int(message.get("attempt_limit", 0)))
        self._tell({"kind": "launcher", "version": protocol.VERSION, "pid": os.getpid()}, False)
        self._tell(self._script_record(), False)
        for rank in self._ranks.newest():
            self._tell(rank.record(), False)
        self._tell({"kind": "complete"}, False)

    def _script_record(self) -> Dict[str, Any]:
        launch = self._launch
        return {
            "kind": "script",
            "ready": launch is not None and not launch.concluded and not self._over,
            "launch": self._num_launches,
            "training": launch is not None and launch.is_training,
            "finished": launch is not None and launch.finished,
            "entry": launch.program.script if launch is not None else "",
            "arguments": launch.program.arguments if launch is not None else [],
            "lost_log": self._lost_log,
            "ended": self._script_over,
            "exit_code": self._script_exit or 0,
            "last_lines": self._script_lines.text() if self._script_over else [],
            "tool": launch.tool if launch is not None else "",
            "problem": self._problem,
            "stopped": bool(self._stop_signal),
        }

    def _order(self, message: Dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "start":
            self._start(message)
        elif kind == "end":
            name = ranks.Name(int(message["incarnation"]), int(message["start"]))
            self._ranks.end(int(message["rank"]), name, bool(message["gently"]))
        elif kind == "stack":
            name = ranks.Name(int(message["incarnation"]), int(message["start"]))
            self._ranks.take_stack(int(message["rank"]), name)
        elif kind == "registered":
            self._registered(int(message["launch"]))
        elif kind == "verdict":
            self._judged(int(message["launch"]), str(message["problem"]))
        elif kind == "over":
            self._over = True
            self._ranks.end_all(gently=False, ordered=True)
        elif kind == "follow":
            self._ranks.follow_lines = bool(message["lines"])
        elif kind == "seen_end":
            self._end_seen = True
            self._stop_when_all_is_told()
        else:
            self._ranks.say("the agent ordered {!r}, which this launcher does not know".format(kind))

    def _start(self, message: Dict[str, Any]) -> None:
        rank = int(message["rank"])
        name = ranks.Name(int(message["incarnation"]), int(message["start"]))
        reason, launch = self._refusal(), self._launch
        if reason is None and launch is not None:
            called = shells.without_shims(launch.program.environment, self._settings.directory)
            ordered = {str(key): str(value) for key, value in message["environment"].items()}
            environment, notes = variables.merged(called, ordered, is_restart=self._ranks.has_run(rank))
            for note in notes:
                if note not in self._noted:
                    self._noted.append(note)
                    self._ranks.say(note)
            if launch.tool == program.MSRUN:
                environment.update(program.mindspore_environment(environment))
            directory = self._settings.directory
            environment.update(stacks.variables(directory, "rank-{}.{}.{}".format(rank, *name)))
            own = program.of_rank(self._mended(launch, environment), environment.get("LOCAL_RANK", "0"))
            armed = own._replace(argv=program.armed(own, directory))
            reason = self._ranks.start(rank, name, armed, environment, launch.target)
            if reason is None and own.log_directory is not None:
                self._ranks.show_output_in(own.log_directory, rank)
        if reason is not None:
            refused = {"kind": "refused", "rank": rank, "incarnation": name.incarnation, "start": name.start}
            self._tell(dict(refused, reason=reason), False)

    def _mended(self, launch: launches.Launch, environment: Dict[str, str]) -> program.Program:
        """The program with arguments that load what it has saved, where the job asks for that."""
        if launch.tool == program.MSRUN or not arguments.resumes(environment, launch.program.arguments):
            return launch.program
        resumed = arguments.resumed(launch.program.arguments)
        attempt = environment.get("HAJOB_ATTEMPT", "")
        if resumed.changes and launch.mended_for != attempt:
            launch.mended_for = attempt
            self._ranks.say("start {}: {}".format(attempt, ", ".join(resumed.changes)))
        return program.with_arguments(launch.program, resumed.arguments)

    def _refusal(self) -> str | None:
        if self._over or self._stop_signal:
            return "this pod's incarnation is over"
        if self._script_over or (self._launch is not None and self._launch.concluded):
            return "the start script has gone on after its ranks"
        if self._launch is None:
            return "the start script has not called torchrun or msrun yet"
        return None

    def _registered(self, number: int) -> None:
        """A rank has reached MindIO: this launch is the training."""
        launch = self._launch
        if launch is not None and launch.number == number and not launch.is_training:
            launch.is_training = True
            self._tell(self._script_record(), False)

    # ---- the shims

    def _called(self, connection: protocol.Connection, message: Dict[str, Any]) -> None:
        call = program.ShimCall(
            str(message["tool"]),
            [str(argument) for argument in message["arguments"]],
            str(message["cwd"]),
            {str(key): str(value) for key, value in message["environment"].items()},
            str(message["python"]),
        )
        try:
            decision = launches.decide(call, self._settings.size, self._launch)
        except program.ProgramError as problem:
            self._send(connection, {"kind": "say", "text": str(problem)})
            self._send(connection, {"kind": "outcome", "exit_code": REFUSED})
            return
        if decision.program is None:
            self._let_go(connection, call, decision.note)
            return
        self._num_launches += 1
        launch = self._launch = launches.Launch(self._num_launches, call, decision.program, connection)
        ours = [os.fstat(descriptor).st_ino for descriptor in self._script_pipes]
        launch.print_to(connection.take_descriptors(), lambda passed: os.fstat(passed).st_ino in ours)
        for note in decision.program.notes:
            self._send(connection, {"kind": "say", "text": note})
        self._tell(self._script_record(), False)
        if decision.program.detached:
            launch.shim = None
            self._send(connection, {"kind": "outcome", "exit_code": 0})
            self._close_output(launch)

    def _let_go(self, connection: protocol.Connection, call: program.ShimCall, note: str) -> None:
        """The shim becomes the image's own launcher."""
        self._as_they_are.add(connection.peer_pid())
        self._send(connection, {"kind": "say", "text": note})
        environment = shells.without_shims(call.environment, self._settings.directory)
        self._send(connection, {"kind": "run", "environment": environment})

    def _close_output(self, launch: launches.Launch) -> None:
        """Whoever reads the shim's output waits for its end."""
        for passed in launch.passed:
            self._ranks.after_output(passed.close)

    def _shim_gone(self, launch: launches.Launch) -> None:
        if not launch.concluded and not self._script_over and not self._stop_signal:
            self._ranks.say("{} was ended by the script; its ranks are ended, too".format(launch.tool))
            launch.concluded = True
            self._ranks.end_all(gently=False, ordered=False)
            self._tell(self._script_record(), False)
            if self._script_exit is not None:
                self._end_script_for_good()

    def _look_for_the_end(self) -> None:
        """All ranks of this pod finished: the script goes on. Some: the others get a deadline."""
        if self._agent is not None:  # it may have told of a registration just now
            self._receive(self._agent)
        newest = self._ranks.newest()
        finished = [rank for rank in newest if rank.finished]
        if len(finished) == self._settings.size.ranks_per_node:
            self._conclude()
        elif finished and not self._ranks.running():
            if all(rank.finished or rank.ordered for rank in newest):
                self._loop.later(self._settings.ordered_end_seconds, lambda: self._conclude_unless_started(newest))
        elif finished and not self._late:
            self._late = self._ranks.running()
            self._loop.later(self._settings.finish_seconds, self._end_late_ranks)

    def _conclude_unless_started(self, newest: List[ranks.Rank]) -> None:
        """The last ranks were ended by order after others had finished, and no new start has come since."""
        if self._ranks.newest() == newest:
            self._conclude()

    def _conclude(self) -> None:
        launch = self._launch
        if launch is None or launch.concluded:
            return
        if launch.is_training:
            self._ask_for_verdict(launch)
            return
        text = "{} has ended with 0 and its ranks never registered with MindIO: it was not the training"
        self._ranks.say(text.format(launch.program.script))
        self._ranks.forget()
        self._launch, self._late = None, []
        self._tell(self._script_record(), False)
        self._let_script_go_on(launch, OUTPUT_WAITS)

    def _ask_for_verdict(self, launch: launches.Launch) -> None:
        """Whether they have trained to the end, which the agent knows from their heartbeats."""
        if self._agent is None:
            self._finish(launch)
        elif not launch.waits_for_verdict:
            launch.waits_for_verdict = True
            self._tell({"kind": "all_ended", "launch": launch.number}, False)
            self._loop.later(VERDICT_SECONDS, lambda: self._judged(launch.number, ""))

    def _judged(self, number: int, problem: str) -> None:
        launch = self._launch
        if launch is None or launch.number != number or not launch.waits_for_verdict:
            return
        launch.waits_for_verdict = False
        if problem:  # the ranks will be started again, or the pod is deleted
            self._ranks.say("the training has not finished: {}".format(problem))
        elif not self._ranks.running():
            self._finish(launch)

    def _finish(self, launch: launches.Launch) -> None:
        launch.concluded = launch.finished = True
        self._tell(self._script_record(), False)
        self._let_script_go_on(launch, OUTPUT_WAITS)

    def _let_script_go_on(self, launch: launches.Launch, waits: int) -> None:
        """Tell the shim, after what the ranks printed has been written: a script may read it next."""
        if waits > 0 and not self._ranks.flush(0.0):
            self._loop.later(OUTPUT_WAIT_SECONDS, lambda: self._let_script_go_on(launch, waits - 1))
            return
        if launch.shim is not None:
            shim, launch.shim = launch.shim, None
            self._send(shim, {"kind": "outcome", "exit_code": 0})
            self._close_output(launch)
        if self._script_exit is not None:
            self._end_script_for_good()

    def _end_late_ranks(self) -> None:
        late, self._late = self._late, []
        for rank in late:
            if not rank.running:
                continue
            text = "rank {} has not ended {:.0f} s after another rank had finished, and is ended"
            self._ranks.end_late(rank, text.format(rank.rank, self._settings.finish_seconds))
