"""Find and name a launcher of the image that runs below the start script, past the shims.

The agent could not restart its ranks, so this is a failure of the start, reported with the line of the script that
called it. Only the script's own family is searched; ranks are the launcher's children, not the script's.
"""

from __future__ import annotations

import os
import re
from typing import Dict, Iterable, List, NamedTuple, Set

NAMES = ("torchrun", "msrun", "torch_npu_run", "mpirun", "mpiexec", "orterun", "deepspeed", "accelerate")
MODULES = re.compile(r"(?:torch|torch_npu)\.distributed\.(?:run|launch)$|(?:deepspeed|accelerate)(?:\.|$)")
_FILE = re.compile(r"/(?:torch|torch_npu)/distributed/(?:run|launch)\.py$")
FOUND = (
    "a launcher of the image runs below the start script, past Hajob's: {}{}; "
    "call torchrun or msrun by its name alone, so that Hajob's is found on PATH"
)
ASKS = ("-h", "--help", "--version")
SHELLS = ("bash", "sh", "dash", "zsh", "ksh")


class ScriptProcess(NamedTuple):
    """A process of the script's family."""

    pid: int
    parent: int
    argv: List[str]


class ForeignLauncher(NamedTuple):
    """A launcher that is not Hajob's, and where the script starts it, if that is known."""

    pid: int
    command: str
    line: str


class ForeignLauncherWatch:
    """Watch that looks repeatedly and reports a launcher seen twice: one seen once may only print its help."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._let_go: Set[int] = set()
        self._suspect = 0

    def allow_process(self, pid: int) -> None:
        """Let this process, and all below it, run as it is."""
        self._let_go.add(pid)

    def describe_foreign_launcher(self, script: int) -> str:
        """Describe the foreign launcher below the script with this process ID; empty while there is none."""
        found = find_foreign_launcher(process_family(script), self._directory, self._let_go)
        if found is None or found.pid != self._suspect:
            self._suspect = found.pid if found is not None else 0
            return ""
        return FOUND.format(found.line or found.command, " ({})".format(found.command) if found.line else "")


def launcher_name(argv: List[str], directory: str) -> str:
    """Return the kind of launcher of a command line; "" for none, for Hajob's own, and for a call of its help."""
    words = list(argv)
    if _is_python(argv) or _is_shell(argv):
        words = argv[1:]
        while words and words[0].startswith("-") and words[0] not in ("-m", "-c"):
            words = words[1:]
    if not words or any(word in ASKS for word in words[:2]):
        return ""
    if words[0] == "-m" and _is_python(argv):
        return words[1] if len(words) > 1 and MODULES.match(words[1]) else ""
    if os.path.realpath(words[0]).startswith(os.path.realpath(directory) + os.sep):
        return ""
    name = os.path.basename(words[0])
    return name if name in NAMES or _FILE.search(words[0]) else ""


def _is_python(argv: List[str]) -> bool:
    return bool(argv) and os.path.basename(argv[0]).startswith(("python", "pypy"))


def _is_shell(argv: List[str]) -> bool:
    return bool(argv) and os.path.basename(argv[0]).lstrip("-") in SHELLS


def find_foreign_launcher(family: Iterable[ScriptProcess], directory: str, allowed: Set[int]) -> ForeignLauncher | None:
    """Return the first launcher in the script's family; `allowed`: processes that may run, with all below them."""
    known = {process.pid: process for process in family}
    for process in known.values():
        name = launcher_name(process.argv, directory)
        if name and not _is_below_allowed(process, known, allowed):
            return ForeignLauncher(process.pid, " ".join(process.argv)[:500], _line_of_call(process, known, name))
    return None


def _is_below_allowed(process: ScriptProcess | None, known: Dict[int, ScriptProcess], allowed: Set[int]) -> bool:
    while process is not None:
        if process.pid in allowed:
            return True
        process = known.get(process.parent)
    return False


def _line_of_call(process: ScriptProcess, known: Dict[int, ScriptProcess], name: str) -> str:
    """Return `train.sh:12: torchrun ...`: the line of the nearest shell script with this launcher; "" if none."""
    parent = known.get(process.parent)
    while parent is not None:
        script = _script_of_shell(parent)
        for number, text in enumerate(_lines_of_script(script, parent.pid), 1):
            if name in text and not text.lstrip().startswith("#"):
                return "{}:{}: {}".format(script, number, text.strip()[:300])
        parent = known.get(parent.parent)
    return ""


def _script_of_shell(process: ScriptProcess) -> str:
    """Return the script that a shell runs, "" for anything else."""
    if not _is_shell(process.argv):
        return ""
    return next((word for word in process.argv[1:] if not word.startswith(("-", "+"))), "")


def _lines_of_script(script: str, pid: int) -> List[str]:
    try:
        with open(os.path.join(os.readlink("/proc/{}/cwd".format(pid)), script), errors="replace") as file:
            return file.read(1 << 20).splitlines()
    except (OSError, ValueError):
        return []


def process_family(root: int) -> List[ScriptProcess]:
    """Return a process and all below it; skip processes that end meanwhile."""
    found: List[ScriptProcess] = []
    waiting = [(root, 0)]
    while waiting:
        pid, parent = waiting.pop()
        found.append(ScriptProcess(pid, parent, arguments_of_process(pid)))
        waiting += [(child, pid) for child in child_processes(pid)]
    return found


def child_processes(pid: int) -> List[int]:
    """Return the children of all threads of a process; empty if the kernel doesn't tell."""
    found: List[int] = []
    try:
        for thread in os.listdir("/proc/{}/task".format(pid)):
            with open("/proc/{}/task/{}/children".format(pid, thread)) as listing:
                found += [int(word) for word in listing.read().split()]
    except (OSError, ValueError):
        pass
    return found


def processes_below(pid: int) -> List[int]:
    """Return all processes below one; skip processes that end meanwhile."""
    return [each.pid for each in process_family(pid)[1:]]


def arguments_of_process(pid: int) -> List[str]:
    """Return the command line of a process; empty if it is gone."""
    try:
        with open("/proc/{}/cmdline".format(pid), "rb") as file:
            return [word.decode("utf-8", "replace") for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def environment_of_process(pid: int) -> List[bytes]:
    """Return the variables with which a process was started, each as `NAME=value`; empty if the kernel doesn't tell."""
    try:
        with open("/proc/{}/environ".format(pid), "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def fields_of_process(pid: int) -> List[bytes]:
    """Return the fields of a process's `stat` from its state on; empty: it is gone."""
    try:
        with open("/proc/{}/stat".format(pid), "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []
