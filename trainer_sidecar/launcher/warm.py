"""Warm processes of a spare: the interpreter runs and the framework is imported before their ranks are known.

One for each rank of the pod, each started as a rank is, with everything but its identity: it imports, then waits at a
pipe for variables and arguments, and goes on as the program (`entry.py`). None is forked from another one, so whatever
an import has started (threads, allocators, a runtime) is its own. Before a process is taken, everything that could make
an early import differ from a late one is compared; if it differs, or the process has died, the rank starts cold, and
the output says so. docs/decisions/0031-warm-spares.md
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from typing import Dict, List, NamedTuple

from . import plogs, process, program
from .limits import ProcessLimits
from .output import Terminal
from .protocol import boottime_nanoseconds
from .variables import TOKEN

IMPORTS = "HAJOB_WARM_IMPORTS"
COLD = "this spare's ranks will be started cold: {}"
SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ, which Python names from 3.10 on
PIPE_BYTES = 65536  # a pipe's usual size
DEFAULT_IMPORTS = {program.MSRUN: "numpy mindspore"}
TORCH_IMPORTS = "numpy torch torch_npu"
READ_AT_IMPORT = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "ASCEND_", "TORCH_", "NPU_")
"""Beginnings of variables that an interpreter, a library or a framework reads when it is loaded."""


class _Waiting(NamedTuple):
    spawned: process.Spawned
    pipe: int
    argv: List[str]
    environment: Dict[str, str]
    cwd: str
    limits: ProcessLimits


class WarmProcesses:
    """Warm processes of one pod; `take_or_spawn` takes one if it can, else starts a new process."""

    def __init__(self, directory: str, terminal: Terminal) -> None:
        self._entry = os.path.join(directory, program.ENTRY)
        self._terminal = terminal
        self._waiting: List[_Waiting] = []

    def start_warm_processes(
        self, tool: str, what: program.Program, argv: List[str], environment: Dict[str, str], count: int
    ) -> None:
        """Start `count` processes that wait to be ranks of this program; `argv`: the command line of one."""
        self.end_warm_processes()
        if self._entry not in argv[:3]:
            self._terminal.print_message(COLD.format("{} is no Python program that is known here".format(argv[0])))
            return
        imports = environment.get(IMPORTS) or DEFAULT_IMPORTS.get(tool, TORCH_IMPORTS)
        early = dict(environment, **{IMPORTS: imports})
        try:
            for number in range(count):
                self._waiting.append(self._start_warm_process(argv[:3], early, what.cwd, what.limits, number))
        except OSError as problem:
            self._terminal.print_message(COLD.format(problem))
            self.end_warm_processes()

    @staticmethod
    def _start_warm_process(
        argv: List[str], environment: Dict[str, str], cwd: str, limits: ProcessLimits, number: int
    ) -> _Waiting:
        reading, writing = os.pipe()
        try:
            os.set_inheritable(reading, True)
            token = "{}.{}/warm.{}".format(os.getpid(), boottime_nanoseconds(), number)
            own = dict(environment, **{TOKEN: token, "HAJOB_WARM_FD": str(reading)})
            spawned = process.spawn_process(argv, own, cwd, stamp=True, inherits=limits)
        except OSError:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        return _Waiting(spawned._replace(token=token), writing, argv, environment, cwd, limits)

    def take_or_spawn(
        self, argv: List[str], environment: Dict[str, str], cwd: str, limits: ProcessLimits
    ) -> process.Spawned:
        """Return a process of this program: a warm one, else a new one. OSError: none could be made."""
        while self._waiting:
            taken = self._waiting.pop(0)
            why = self._why_unfit(taken, argv, environment, cwd, limits)
            if not why and self._send_identity(taken, argv, environment):
                return taken.spawned
            if why:
                os.close(taken.pipe)
            self._terminal.print_message(
                "a rank of this spare is started cold: {}".format(why or "its process has ended")
            )
            self._end_warm_process(taken)
        return process.spawn_process(argv, environment, cwd, stamp=True, inherits=limits)

    @staticmethod
    def _why_unfit(
        taken: _Waiting, argv: List[str], environment: Dict[str, str], cwd: str, limits: ProcessLimits
    ) -> str:
        """Return why the warm process is unfit for this start; empty if it fits."""
        if argv[: len(taken.argv)] != taken.argv or cwd != taken.cwd:
            return "another program, or in another directory, than the script had launched"
        if limits != taken.limits:
            return "limits, umask or processors are others than when it was started"
        # A spare has no node rank when CANN is loaded, so its first processes keep their plogs where CANN would.
        named = {*taken.environment, *environment} - {plogs.VARIABLE}
        read = [name for name in named if name.startswith(READ_AT_IMPORT)]
        other = sorted(name for name in read if taken.environment.get(name) != environment.get(name))
        return "{} is another than when it was imported".format(", ".join(other)) if other else ""

    @staticmethod
    def _send_identity(taken: _Waiting, argv: List[str], environment: Dict[str, str]) -> bool:
        """Send the process its identity; return whether it reads it."""
        told = dict(environment, **{TOKEN: taken.spawned.token})  # what it was started with: the kernel shows that
        message = json.dumps({"argv": argv[len(taken.argv) :], "environment": told}).encode() + b"\n"
        try:
            with contextlib.suppress(OSError):  # a process that still imports reads it later
                fcntl.fcntl(taken.pipe, SET_PIPE_SIZE, max(len(message), PIPE_BYTES))
            os.write(taken.pipe, message)
        except OSError:
            return False
        finally:
            os.close(taken.pipe)
        return True

    def end_warm_processes(self) -> None:
        """End the warm processes: no rank will need them."""
        for taken in self._waiting:
            os.close(taken.pipe)
            self._end_warm_process(taken)
        self._waiting = []

    @staticmethod
    def _end_warm_process(taken: _Waiting) -> None:
        process.signal_group(taken.spawned.pid, signal.SIGKILL)
        os.close(taken.spawned.stdout)
        os.close(taken.spawned.stderr)
