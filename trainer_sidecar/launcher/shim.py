#!/usr/bin/env python3
"""`torchrun`, `msrun` and their likes as a start script sees them inside a rank pod: the ranks are the launcher's.

Copied as it is to `$HAJOB_DIR/bin/torchrun`, `bin/msrun`, `bin/torch_npu_run` and `$HAJOB_DIR/shim.py`, so it stands
alone. It hands its arguments, directory, environment and its own stdout and stderr to the launcher, and ends with the
outcome, so that what the script does afterwards (and `torchrun ... | tee log`) works as before. As `shim.py` it is what
`bin/python` (interpreter.sh) starts for `python -m torch.distributed.run`. docs/protocols/launcher.md
"""

from __future__ import annotations

import array
import json
import os
import re
import resource
import shlex
import socket
import sys
from typing import Any, Dict, List, NoReturn, Tuple

REFUSED = 64
ASKS = ("-h", "--help", "--version")
"""Answered by the image's own tool."""
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "launch",
    "torch_npu.distributed.run": "torch_npu_run",
}
FILES = {module.replace(".", "/") + ".py": tool for module, tool in MODULES.items()}


def main() -> int:
    """Hand the call over and wait; the exit code for the script."""
    open_outputs()
    name = os.path.basename(sys.argv[0])
    if name != "shim.py":
        return call(name, sys.argv[1:], tool_python(name), own_command(name))
    command = [sys.executable, *sys.argv[2:]]  # shim.py python -m torch.distributed.run ...
    tool, arguments = launched_module(sys.argv[2:])
    if not tool:
        run(command, dict(os.environ))
    return call(tool, arguments, sys.executable, command)


def launched_module(arguments: List[str]) -> Tuple[str, List[str]]:
    """Which launcher the interpreter is told to run, by module or by file, and its arguments; "" for anything else."""
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            tool = next((FILES[file] for file in FILES if word.endswith("/" + file)), "")
            return tool, rest
        if word.startswith("--"):
            if word == "--check-hash-based-pycs":
                rest = rest[1:]
            continue
        option = re.search("[cmWX]", word[1:])
        if option is None:
            continue
        value = word[1 + option.end() :] or (rest.pop(0) if rest else "")
        if option.group() in "cm":
            return (MODULES.get(value, "") if option.group() == "m" else ""), rest
    return "", []


def tool_python(name: str) -> str:
    """The interpreter that the image's own tool runs in, which is that of its ranks; else the first one on PATH."""
    real = os.environ.get("HAJOB_TOOL") or find(name)
    try:
        with open(real, "rb") as file:
            first, second = file.readline(256).decode(), file.readline(4096).decode()
        words = shlex.split(first[2:]) if first.startswith("#!") else []
        if words and words[0] == "/bin/sh" and second.startswith("'''exec'"):  # pip, where the path is long
            words = shlex.split(second[len("'''exec'") :])
        if words and "python" in os.path.basename(words[0]) and os.access(words[0], os.X_OK):
            return words[0]
    except (OSError, ValueError):
        pass
    return sys.executable or "python3"


def find(name: str) -> str:
    """The first program of this name on PATH that is not Hajob's; "" when there is none."""
    ours = os.path.dirname(os.path.abspath(sys.argv[0]))
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory, name)
        if os.path.isfile(path) and os.access(path, os.X_OK) and os.path.realpath(directory) != os.path.realpath(ours):
            return path
    return ""


def own_command(name: str) -> List[str]:
    """What would run if Hajob were not there."""
    return [os.environ.get("HAJOB_TOOL") or find(name) or name, *sys.argv[1:]]


def call(tool: str, arguments: List[str], python: str, command: List[str]) -> int:
    """Tell the launcher and wait for the outcome; `command` is run instead when the launcher says so."""
    if arguments[:1] and arguments[0] in ASKS:
        run(command, dict(os.environ))
    directory = own_directory()
    message = {
        "kind": "call",
        "version": 2,
        "tool": tool,
        "arguments": arguments,
        "cwd": os.getcwd(),
        "environment": dict(os.environ),
        "python": python,
        "limits": limits(),
    }
    try:
        launcher = connect(directory)
    except OSError as problem:
        sys.stderr.write("hajob: {} found no launcher at {}/launcher.sock: {}\n".format(tool, directory, problem))
        return REFUSED
    output = array.array("i", [1, 2]).tobytes()
    first = b'{"kind":"output"}\n'
    launcher.sendmsg([first], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, output)])
    launcher.sendall(json.dumps(message).encode("ascii") + b"\n")
    return wait(launcher, tool, command)


def own_directory() -> str:
    """Where this file was installed; a script may have emptied its environment."""
    own = os.path.dirname(os.path.realpath(sys.argv[0]))
    return os.path.dirname(own) if os.path.basename(own) == "bin" else own


def open_outputs() -> None:
    """A script may have closed them (`>&-`), and the launcher is to get two."""
    for descriptor in (1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def limits() -> Dict[str, Any]:
    """What a child of this process would inherit, and the launcher's does not by itself."""
    numbers = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})
    mask = os.umask(0)
    os.umask(mask)
    return {
        "resources": [[number, *resource.getrlimit(number)] for number in numbers],
        "umask": mask,
        "processors": sorted(os.sched_getaffinity(0)),
    }


def connect(directory: str) -> socket.socket:
    """The launcher's socket, by its directory's descriptor: a unix path may have no more than 107 bytes."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        launcher = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        launcher.connect("/proc/self/fd/{}/launcher.sock".format(descriptor))
        return launcher
    finally:
        os.close(descriptor)


def wait(launcher: socket.socket, tool: str, command: List[str]) -> int:
    """Print what the launcher says until it tells the outcome."""
    for line in launcher.makefile("r", encoding="utf-8"):
        message = json.loads(line)
        if message["kind"] == "say":
            sys.stderr.write("hajob: {}\n".format(message["text"]))
            sys.stderr.flush()
        elif message["kind"] == "run":
            run(command, message["environment"])
        elif message["kind"] == "outcome":
            return int(message["exit_code"])
    sys.stderr.write("hajob: the launcher has ended before the ranks of this {} did\n".format(tool))
    return 1


def run(command: List[str], environment: Dict[str, str]) -> NoReturn:
    """Become the command itself; 127 when it isn't there."""
    try:
        os.execvpe(command[0], command, environment)
    except OSError as problem:
        sys.stderr.write("hajob: {} cannot be run: {}\n".format(command[0], problem))
    raise SystemExit(127)


if __name__ == "__main__":
    raise SystemExit(main())
