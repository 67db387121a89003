"""Starting and ending processes so that none outlives the launcher.

`subprocess` is not used: the start needs a process group, a parent-death signal and a time stamp between fork and exec,
in this order, and the launcher itself must do all waiting, since as first process of the container (or as a subreaper)
it also inherits others' children. Between fork and exec only system calls are made: the launcher has threads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Dict, List, NamedTuple, Set, Tuple

from trainer_sidecar import prctl

from .limits import ProcessLimits

CANNOT_EXECUTE = 127  # as a shell tells it
RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
"""Signals that Python or the launcher handles in its own way; a started program gets the kernel's defaults."""

_leaders: Set[int] = set()  # started here and not reaped: until then no other process can get the number


class Spawned(NamedTuple):
    """A started process and the reading ends of its output."""

    pid: int
    stdout: int
    stderr: int
    token: str = ""  # identifies the processes that it leaves behind, where it is not that of its rank


class Ended(NamedTuple):
    """A reaped process; `exit_code` negative: minus the signal."""

    pid: int
    exit_code: int


def spawn_process(
    argv: List[str], environment: Dict[str, str], cwd: str, stamp: bool = False, inherits: ProcessLimits | None = None
) -> Spawned:
    """Start `argv` as leader of a new process group that dies with this process; with `stamp` of a new session.

    `stamp` adds HAJOB_EXEC_TIME, the wall clock in nanoseconds right before exec. A program that can't be executed
    says so on its stderr and ends with code 127. OSError: no pipe or no process could be made.
    """
    parent = os.getpid()
    ends: List[int] = []
    # until the child has reset its handlers, a signal that is meant for it would be written into the launcher's loop
    signal.pthread_sigmask(signal.SIG_BLOCK, RESET)
    try:
        ends += os.pipe()
        ends += os.pipe()
        pid = os.fork()
        if pid == 0:
            inherits = inherits or ProcessLimits()
            _become_program(argv, environment, cwd, parent, (ends[1], ends[3]), stamp=stamp, inherits=inherits)
    except OSError:  # too many processes or descriptors now; a later start must find no fewer
        for end in ends:
            os.close(end)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, RESET)
    _leaders.add(pid)
    stdout_read, stdout_write, stderr_read, stderr_write = ends
    if not stamp:  # of a group's leader no session can be made
        with contextlib.suppress(OSError):  # the child does it, too: whoever is first
            os.setpgid(pid, pid)
    os.close(stdout_write)
    os.close(stderr_write)
    os.set_blocking(stdout_read, False)
    os.set_blocking(stderr_read, False)
    return Spawned(pid, stdout_read, stderr_read)


def _become_program(
    argv: List[str],
    environment: Dict[str, str],
    cwd: str,
    parent: int,
    outputs: Tuple[int, int],
    *,
    stamp: bool,
    inherits: ProcessLimits,
) -> None:
    """The child's side of `spawn_process`; never returns."""
    try:
        if stamp:
            os.setsid()
        else:
            os.setpgid(0, 0)
        prctl.die_with_parent()
        if os.getppid() != parent:  # it died before the request was made
            os._exit(CANNOT_EXECUTE)
        # The descriptor is shared with the launcher: a signal that comes before exec would wake its loop.
        signal.set_wakeup_fd(-1)
        for number in RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, RESET)
        # Nobody types into a rank: a program that reads its stdin shall see its end, and not wait for ever.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(outputs[0], 1)
        os.dup2(outputs[1], 2)
        for problem in inherits.adopt_limits():
            os.write(2, "hajob: {}\n".format(problem).encode("utf-8", "backslashreplace"))
        os.chdir(cwd)
        if stamp:
            environment = dict(environment, HAJOB_EXEC_TIME=str(time.time_ns()))
        os.execvpe(argv[0], argv, environment)
    except BaseException as problem:  # nothing may escape into the parent's code
        text = "hajob: cannot execute {} in {}: {}\n".format(argv[:1], cwd, problem)
        os.write(2, text.encode("utf-8", "backslashreplace"))
    finally:
        os._exit(CANNOT_EXECUTE)


def signal_group(leader: int, number: int) -> None:
    """Signal the process group of a process from `spawn_process`; once that is reaped, the number may be another's."""
    if leader not in _leaders:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            os.killpg(leader, number)
        except ProcessLookupError:  # it has only just been forked
            os.kill(leader, number)


def reap_children(spared: int = 0) -> List[Ended]:
    """Reap every child that has ended, without waiting; kill the rest of its group if it was started here.

    The group is signalled before the leader is reaped: until then no other process can get its number. Groups not
    started here, such as daemons of the start script, are left alone; that of `spared`, the script, goes on: it may
    hold a launch in its background.
    """
    ended: List[Ended] = []
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return ended
        if found is None or found.si_pid == 0:
            return ended
        if found.si_pid != spared:
            signal_group(found.si_pid, signal.SIGKILL)
        pid, status = os.waitpid(found.si_pid, 0)
        _leaders.discard(pid)
        ended.append(Ended(pid, exit_code_of_status(status)))


def exit_code_of_status(status: int) -> int:
    """Return the exit code of a wait status, minus the signal for a process that a signal ended."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
