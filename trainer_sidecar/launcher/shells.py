"""Keep the shims first on PATH, whatever a start script does to it.

Three ways, since each shell rules some out: the shims' directory first on PATH; a file that every bash reads
(BASH_ENV), which puts it there again after a login shell, a virtual environment or the script has changed PATH, and
catches calls of the image's own launchers by absolute path; functions in the environment for a bash that reads no
BASH_ENV (`sh`, `bash -p`, `bash -i`). Other shells have PATH alone: a launcher that slips through is found among the
processes (foreign_launchers.py). docs/protocols/launcher.md#reached
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from typing import Dict, List

TOOLS = ("torchrun", "msrun", "torch_npu_run")
USUAL = ("/usr/local/bin", "/usr/bin", "/opt/conda/bin", "/opt/venv/bin")
BASH_FILE = "bash_env.sh"
SHELL = "/bin/sh"
NO_SHELL = (
    "the training image has no {}, which Hajob's wrapper of `python` asks for: "
    "add one to the image, a link to its shell will do"
)
USER_FILE = "HAJOB_USER_BASH_ENV"
OWN_TOOL = "HAJOB_TOOL"
_VERSION = re.compile(r"python3\.\d+$")

# The DEBUG trap runs before each simple command, inside functions and subshells too (set -T); the group keeps it out
# of the trace of a script with `set -x`. A function named torchrun would be simpler, but `torchrun ... & kill $!`
# would then end a shell instead of it.
_BASH = """\
# Read by every bash below Hajob's launcher (trainer_sidecar/launcher/shells.py).
unset -f torchrun msrun torch_npu_run
if [ -n "${{{user}-}}" ] && [ -r "${{{user}}}" ]; then . "${{{user}}}"; fi
{absolute}set -T
trap '{{ case $PATH in {shims}:*) ;; *) PATH={shims}:$PATH ;; esac; }} 2>/dev/null' DEBUG
"""
_ABSOLUTE = '{path}() {{ {tool}={path} {shim} "$@"; }}\n'


def environment_with_shims(given: Dict[str, str], directory: str) -> Dict[str, str]:
    """Return the environment of the user's command, with the shims first."""
    shims = os.path.join(directory, "bin")
    made = dict(given, PATH=shims + os.pathsep + (given.get("PATH") or os.defpath), HAJOB_DIR=directory)
    if given.get("BASH_ENV"):
        made[USER_FILE] = given["BASH_ENV"]
    made["BASH_ENV"] = os.path.join(directory, BASH_FILE)
    for tool in TOOLS:
        made[_name_of_exported_function(tool)] = '() {{  {} "$@"; }}'.format(shlex.quote(os.path.join(shims, tool)))
    return made


def environment_without_shims(given: Dict[str, str], directory: str) -> Dict[str, str]:
    """Return the environment as without Hajob: for a rank, and for a launcher that runs unchanged."""
    shims = os.path.realpath(os.path.join(directory, "bin"))
    ours = [_name_of_exported_function(tool) for tool in TOOLS] + ["BASH_ENV", USER_FILE, OWN_TOOL]
    made = {name: value for name, value in given.items() if name not in ours}
    if given.get(USER_FILE):
        made["BASH_ENV"] = given[USER_FILE]
    path = given.get("PATH", os.defpath).split(os.pathsep)
    made["PATH"] = os.pathsep.join(each for each in path if os.path.realpath(each) != shims)
    return made


def _name_of_exported_function(tool: str) -> str:
    """Return the name under which bash exports a function."""
    return "BASH_FUNC_{}%%".format(tool)


def content_of_bash_file(directory: str, installed: List[str]) -> str:
    """Return the file that every bash reads; `installed`: the image's own launchers, which may be called by path."""
    shims = os.path.join(directory, "bin")
    absolute = "".join(
        _ABSOLUTE.format(path=path, tool=OWN_TOOL, shim=shlex.quote(os.path.join(shims, os.path.basename(path))))
        for path in installed
    )
    return _BASH.format(user=USER_FILE, absolute=absolute, shims=_quote_in_trap(shims))


def _quote_in_trap(path: str) -> str:
    """Quote for a word within single quotes."""
    return shlex.quote(path).replace("'", "'\\''")


def installed_launchers(path: str) -> List[str]:
    """Return paths of the launchers on PATH and in the usual directories, if bash can have functions so named."""
    found = []
    for directory in [*path.split(os.pathsep), *USUAL]:
        for tool in TOOLS:
            candidate = os.path.join(directory, tool)
            plain = shlex.quote(candidate) == candidate and candidate.startswith("/")
            if plain and candidate not in found and os.access(candidate, os.X_OK):
                found.append(candidate)
    return found


def wrap_interpreters(directory: str, path: str) -> None:
    """Put the wrapper of `python3` also before each `python3.N` that the image has on PATH."""
    for place in path.split(os.pathsep):
        for name in _versioned_interpreters(place):
            with contextlib.suppress(OSError):  # it exists, or the directory is another user's
                os.symlink("python3", os.path.join(directory, "bin", name))


def _versioned_interpreters(directory: str) -> List[str]:
    try:
        return [name for name in os.listdir(directory) if _VERSION.match(name)]
    except OSError:
        return []


def why_no_shell() -> str:
    """Return what the image lacks: bash says of the wrapper only that a file is not there."""
    return "" if os.access(SHELL, os.X_OK) else NO_SHELL.format(SHELL)


def write_bash_file(directory: str, path: str) -> None:
    """Write the file that BASH_ENV names. OSError: the directory can't be written to."""
    target = os.path.join(directory, BASH_FILE)
    with open(target + ".new", "w") as file:
        file.write(content_of_bash_file(directory, installed_launchers(path)))
    os.chmod(target + ".new", 0o644)
    os.replace(target + ".new", target)
