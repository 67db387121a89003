#!/usr/bin/env python3
"""`torchrun`, `msrun` and their likes as seen by a start script in a rank pod: the launcher starts the ranks.

Copied as it is to `$HAJOB_DIR/bin/torchrun`, `bin/msrun`, `bin/torch_npu_run` and `$HAJOB_DIR/shim.py`, so it stands
alone. It sends its arguments, directory, environment and its own stdout and stderr to the launcher, and ends with the
outcome, so that the rest of the script (and `torchrun ... | tee log`) works as before. As `shim.py` it is what
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
import subprocess
import sys
from typing import Any, Dict, List, NoReturn, Tuple

REFUSED = 64  # EX_USAGE of sysexits.h
ASKS = ("-h", "--help", "--version")
"""Answered by the image's own tool."""
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "launch",
    "torch_npu.distributed.run": "torch_npu_run",
}
FILES = {module.replace(".", "/") + ".py": tool for module, tool in MODULES.items()}


CONFIG_SECONDS = 30.0
"""For reading a configuration from a slow volume; one that stands still costs only what it would have told."""
READ_CONFIG = """
import json, os, sys, yaml
def merge(whole, more):
    for name, value in more.items():
        if isinstance(value, dict) and isinstance(whole.get(name), dict):
            merge(whole[name], value)
        else:
            whole[name] = value
def load(path):
    own = yaml.safe_load(open(path, encoding="utf-8")) or {}
    bases, whole = own.pop("base_config", []), {}
    for base in [bases] if isinstance(bases, str) else bases:
        merge(whole, load(os.path.join(os.path.dirname(path), base)))
    merge(whole, own)
    return whole
whole = load(sys.argv[1])
names = sys.argv[2:]
print(json.dumps({name: whole[name] for name in names if name in whole}, default=str))
"""
"""Run by the image's Python, which has MindFormers' own reader of YAML; `base_config` is followed as there."""
CONFIG_FIELDS = (
    *("runner_config", "context", "callbacks", "resume_training", "load_checkpoint", "output_dir"),
    *("src_strategy_path_or_dir", "use_legacy_format", "remove_redundancy"),
)


def main() -> int:
    """Send the call to the launcher and wait; return the exit code for the script."""
    open_outputs()
    name = os.path.basename(sys.argv[0])
    if name != "shim.py":
        return send_call(name, sys.argv[1:], tool_python(name), own_command(name))
    command = [sys.executable, *sys.argv[2:]]  # shim.py python -m torch.distributed.run ...
    tool, arguments = launched_module(sys.argv[2:])
    if not tool:
        become_command(command, dict(os.environ))
    return send_call(tool, arguments, sys.executable, command)


def launched_module(arguments: List[str]) -> Tuple[str, List[str]]:
    """Return the launcher that the interpreter is to run, by module or file, and its arguments; else ""."""
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
    """Return the interpreter of the image's own tool, which is that of its ranks; else the first one on PATH."""
    real = os.environ.get("HAJOB_TOOL") or find_image_tool(name)
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


def find_image_tool(name: str) -> str:
    """Return the first program of this name on PATH that is not Hajob's; "" when there is none."""
    ours = os.path.dirname(os.path.abspath(sys.argv[0]))
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory, name)
        if os.path.isfile(path) and os.access(path, os.X_OK) and os.path.realpath(directory) != os.path.realpath(ours):
            return path
    return ""


def own_command(name: str) -> List[str]:
    """Return the command that would run without Hajob."""
    return [os.environ.get("HAJOB_TOOL") or find_image_tool(name) or name, *sys.argv[1:]]


def send_call(tool: str, arguments: List[str], python: str, command: List[str]) -> int:
    """Send the call to the launcher and wait for the outcome; run `command` instead when the launcher says so."""
    if arguments[:1] and arguments[0] in ASKS:
        become_command(command, dict(os.environ))
    directory = own_directory()
    message = {
        "kind": "call",
        "version": 2,
        "tool": tool,
        "arguments": arguments,
        "cwd": os.getcwd(),
        "environment": dict(os.environ),
        "python": python,
        "limits": inherited_limits(),
        "configuration": read_configuration(tool, arguments, python),
    }
    try:
        launcher = connect_to_launcher(directory)
    except OSError as problem:
        sys.stderr.write("hajob: {} found no launcher at {}/launcher.sock: {}\n".format(tool, directory, problem))
        return REFUSED
    output = array.array("i", [1, 2]).tobytes()
    first = b'{"kind":"output"}\n'
    launcher.sendmsg([first], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, output)])
    launcher.sendall(json.dumps(message).encode("ascii") + b"\n")
    return wait_for_outcome(launcher, tool, command)


def read_configuration(tool: str, arguments: List[str], python: str) -> Dict[str, Any]:
    """Return what the launcher asks of the configuration that msrun's script is given by `--config`; {}: nothing."""
    if tool != "msrun":
        return {}
    words = [word for given in arguments for word in given.split("=", 1 if given.startswith("--config=") else 0)]
    path = words[words.index("--config") + 1] if "--config" in words[:-1] else ""
    if not path:
        return {}
    # In a process of its own: this file stands alone, and the YAML package may be broken or of another Python.
    command = [python, "-c", READ_CONFIG, path, *CONFIG_FIELDS]
    try:
        told = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=CONFIG_SECONDS, check=True
        )
        found = json.loads(told.stdout.decode())
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    return found if isinstance(found, dict) else {}


def own_directory() -> str:
    """Return the directory of this file; a script may have emptied its environment."""
    own = os.path.dirname(os.path.realpath(sys.argv[0]))
    return os.path.dirname(own) if os.path.basename(own) == "bin" else own


def open_outputs() -> None:
    """Open stdout and stderr if the script has closed them (`>&-`): the launcher needs two descriptors."""
    for descriptor in (1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def inherited_limits() -> Dict[str, Any]:
    """Return what a child of this process would inherit and a child of the launcher would not."""
    numbers = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})
    mask = os.umask(0)
    os.umask(mask)
    return {
        "resources": [[number, *resource.getrlimit(number)] for number in numbers],
        "umask": mask,
        "processors": sorted(os.sched_getaffinity(0)),
    }


def connect_to_launcher(directory: str) -> socket.socket:
    """Connect to the launcher's socket by its directory's descriptor: a unix path may have no more than 107 bytes."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        launcher = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        launcher.connect("/proc/self/fd/{}/launcher.sock".format(descriptor))
        return launcher
    finally:
        os.close(descriptor)


def wait_for_outcome(launcher: socket.socket, tool: str, command: List[str]) -> int:
    """Print the launcher's messages until it sends the outcome."""
    for line in launcher.makefile("r", encoding="utf-8"):
        message = json.loads(line)
        if message["kind"] == "say":
            sys.stderr.write("hajob: {}\n".format(message["text"]))
            sys.stderr.flush()
        elif message["kind"] == "run":
            become_command(command, message["environment"])
        elif message["kind"] == "outcome":
            return int(message["exit_code"])
    sys.stderr.write("hajob: the launcher has ended before the ranks of this {} did\n".format(tool))
    return 1


def become_command(command: List[str], environment: Dict[str, str]) -> NoReturn:
    """Become the command itself; 127 when it isn't there."""
    try:
        os.execvpe(command[0], command, environment)
    except OSError as problem:
        sys.stderr.write("hajob: {} cannot be run: {}\n".format(command[0], problem))
    raise SystemExit(127)


if __name__ == "__main__":
    raise SystemExit(main())
