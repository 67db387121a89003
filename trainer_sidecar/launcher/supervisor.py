"""The launcher itself: the user's command, the calls of its shims, the agent's orders, and the ranks between them.

One thread decides everything, so there is no order of events in which a rank could be started after the end was
decided. What the agent is told is a level: on each connection the whole state, then every change.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any, Callable, Dict, List, NamedTuple

from trainer_sidecar import prctl, signals

from . import output, process, program, protocol, ranks, stacks
from .loop import Loop

REFUSED = 64
DROPPABLE_ABOVE_BYTES = 1024 * 1024
AGENT_WAIT_SECONDS = 3.0
OUTPUT_WAIT_SECONDS = 0.005
OUTPUT_WAITS = 400
NO_CALL_NOTE_SECONDS = 60.0
NO_CALL_NOTE = (
    "the command has run for {:.0f} s and called neither torchrun nor msrun from PATH; Hajob starts ranks only through "
    "them (python -m torch.distributed.run: write torchrun instead)"
)


class Settings(NamedTuple):
    """What the launcher was told by its environment (docs/protocols/launcher.md)."""

    directory: str
    size: program.Size
    ranks: ranks.Settings
    finish_seconds: float
    ordered_end_seconds: float
    grace_seconds: float


class Supervisor:
    """Runs the command to its end; `run` returns the container's exit code."""

    def __init__(self, settings: Settings, command: List[str], environment: Dict[str, str]) -> None:
        self._settings = settings
        self._command = command
        self._environment = program.script_environment(environment, settings.directory)
        self._loop = Loop()
        self._ranks = ranks.Ranks(self._loop, settings.ranks, self._tell)
        self._server = protocol.listen(settings.directory)
        self._script_pid = 0
        self._script_lines = output.LastLines()
        self._script_exit: int | None = None
        self._script_pipes: Dict[int, Callable[[], None]] = {}
        self._agent: protocol.Connection | None = None
        self._shim: protocol.Connection | None = None
        self._program: program.Program | None = None
        self._call_tool = ""
        self._target: ranks.Target | None = None
        self._passed: List[output.Descriptor] = []
        self._over = False
        self._concluded = False
        self._late: List[ranks.Rank] = []  # had not ended when the first rank had finished
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
        self._loop.run()
        for child in process.children():
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        self._ranks.flush(2.0)
        return self._exit_code()

    def _exit_code(self) -> int:
        if self._stop_signal:
            return 128 + self._stop_signal
        code = self._script_exit or 0
        return code if code >= 0 else 128 - code

    def _read_script(self, descriptor: int, target: output.Descriptor) -> None:
        lines = output.Lines()

        def readable() -> None:
            try:
                data = os.read(descriptor, 65536)
            except BlockingIOError:
                return
            for line in lines.feed(data) if data else lines.end():
                self._script_lines.add(line)
            if data:
                self._ranks.pass_on(target.write, data)
                return
            self._loop.forget(descriptor)
            os.close(descriptor)
            del self._script_pipes[descriptor]

        self._script_pipes[descriptor] = readable
        self._loop.watch(descriptor, readable)

    def _note_missing_call(self) -> None:
        if self._program is None and self._script_exit is None:
            self._ranks.say(NO_CALL_NOTE.format(NO_CALL_NOTE_SECONDS))

    def _reap(self) -> None:
        for pid, code in process.reap():
            if pid == self._script_pid:
                self._script_ended(code)
            elif self._ranks.ended(pid, code):
                self._look_for_the_end()
                if self._stop_signal and not self._ranks.running():
                    self._stop_script()
                self._stop_when_all_is_told()

    def _stop_when_all_is_told(self) -> None:
        if self._end_seen and self._script_exit is not None and not self._ranks.running():
            self._loop.stop()

    def _script_ended(self, code: int) -> None:
        for drain in list(self._script_pipes.values()):
            drain()
        self._script_exit = code
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
        if connection is self._shim:
            self._shim = None
            self._shim_gone()
            for passed in self._passed:  # whoever reads the shim's output waits for its end
                self._ranks.after_output(passed.close)
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
        return {
            "kind": "script",
            "ready": self._program is not None and not self._concluded and not self._over,
            "finished": self._concluded,
            "ended": self._script_exit is not None,
            "exit_code": self._script_exit or 0,
            "last_lines": [] if self._script_exit is None else self._script_lines.text(),
            "tool": self._call_tool,
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
        reason = self._refusal()
        if reason is None and self._program is not None and self._target is not None:
            environment = dict(self._program.environment)
            environment.update({str(key): str(value) for key, value in message["environment"].items()})
            if self._call_tool == program.MSRUN:
                environment.update(program.mindspore_environment(environment))
            directory = self._settings.directory
            environment.update(stacks.variables(directory, "rank-{}.{}.{}".format(rank, *name)))
            armed = self._program._replace(argv=program.armed(self._program, directory))
            reason = self._ranks.start(rank, name, armed, environment, self._target)
        if reason is not None:
            refused = {"kind": "refused", "rank": rank, "incarnation": name.incarnation, "start": name.start}
            self._tell(dict(refused, reason=reason), False)

    def _refusal(self) -> str | None:
        if self._over or self._stop_signal:
            return "this pod's incarnation is over"
        if self._program is None:
            return "the start script has not called torchrun or msrun yet"
        if self._concluded or self._script_exit is not None:
            return "the start script has gone on after its ranks"
        return None

    # ---- the shims

    def _called(self, connection: protocol.Connection, message: Dict[str, Any]) -> None:
        call = program.Call(
            str(message["tool"]),
            [str(argument) for argument in message["arguments"]],
            str(message["cwd"]),
            {str(key): str(value) for key, value in message["environment"].items()},
            str(message["python"]),
        )
        try:
            self._program = self._accepted(call)
        except program.ProgramError as problem:
            self._send(connection, {"kind": "say", "text": str(problem)})
            self._send(connection, {"kind": "outcome", "exit_code": REFUSED})
            return
        self._shim, self._call_tool = connection, call.tool
        self._target = self._targets(connection.take_descriptors())
        for note in self._program.notes:
            self._send(connection, {"kind": "say", "text": note})
        self._tell(self._script_record(), False)

    def _accepted(self, call: program.Call) -> program.Program:
        if self._program is not None:
            raise program.ProgramError(
                "{}: this pod's ranks were already asked for; one call of torchrun or msrun per job".format(call.tool)
            )
        return program.parse(call, self._settings.size)

    def _targets(self, descriptors: List[int]) -> ranks.Target:
        """The shim's stdout and stderr, unless they are the script's own, which are passed on anyway."""
        ours = [os.fstat(descriptor).st_ino for descriptor in self._script_pipes]
        targets = [output.Descriptor(1), output.Descriptor(2)]
        for index, passed in enumerate(descriptors[:2]):
            self._passed.append(output.Descriptor(passed, targets[index]))
            if os.fstat(passed).st_ino not in ours:
                targets[index] = self._passed[-1]
        return ranks.Target(targets[0].write, targets[1].write)

    def _shim_gone(self) -> None:
        if not self._concluded and self._script_exit is None and not self._stop_signal:
            self._ranks.say("{} was ended by the script; its ranks are ended, too".format(self._call_tool))
            self._concluded = True
            self._ranks.end_all(gently=False, ordered=False)
            self._tell(self._script_record(), False)

    def _look_for_the_end(self) -> None:
        """All ranks of this pod finished: the script goes on. Some: the others get a deadline."""
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
        if not self._concluded:
            self._concluded = True
            self._tell(self._script_record(), False)
            self._let_script_go_on(OUTPUT_WAITS)

    def _let_script_go_on(self, waits: int) -> None:
        """Tell the shim, after what the ranks printed has been written: a script may read it next."""
        if waits > 0 and not self._ranks.flush(0.0):
            self._loop.later(OUTPUT_WAIT_SECONDS, lambda: self._let_script_go_on(waits - 1))
        elif self._shim is not None:
            self._send(self._shim, {"kind": "outcome", "exit_code": 0})

    def _end_late_ranks(self) -> None:
        late, self._late = self._late, []
        for rank in late:
            if not rank.running:
                continue
            self._ranks.say(
                "rank {} has not ended {:.0f} s after another rank had finished; it is ended and counted as "
                "finished".format(rank.rank, self._settings.finish_seconds)
            )
            self._ranks.count_as_finished(rank)
