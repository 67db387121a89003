#!/usr/bin/env python3
"""`torchrun` and `msrun` as a start script sees them inside a rank pod: the ranks are the launcher's.

Copied as it is to `$HAJOB_DIR/bin/torchrun` and `bin/msrun`, so it stands alone. It hands its arguments, directory,
environment and its own stdout and stderr to the launcher, and ends with the outcome, so that what the script does
afterwards (and `torchrun ... | tee log`) works as before. docs/protocols/launcher.md
"""

from __future__ import annotations

import array
import json
import os
import socket
import sys

REFUSED = 64


def main() -> int:
    """Hand the call over and wait; the exit code for the script."""
    tool = os.path.basename(sys.argv[0])
    directory = os.environ.get("HAJOB_DIR")
    if not directory:
        sys.stderr.write("hajob: this {} belongs to Hajob's launcher, but HAJOB_DIR is not set\n".format(tool))
        return REFUSED
    call = {
        "kind": "call",
        "version": 1,
        "tool": tool,
        "arguments": sys.argv[1:],
        "cwd": os.getcwd(),
        "environment": dict(os.environ),
        "python": sys.executable or "python3",
    }
    try:
        launcher = connect(directory)
    except OSError as problem:
        sys.stderr.write("hajob: {} found no launcher at {}/launcher.sock: {}\n".format(tool, directory, problem))
        return REFUSED
    output = array.array("i", [1, 2]).tobytes()
    first = b'{"kind":"output"}\n'
    launcher.sendmsg([first], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, output)])
    launcher.sendall(json.dumps(call).encode("ascii") + b"\n")
    return wait(launcher, tool)


def connect(directory: str) -> socket.socket:
    """The launcher's socket, by its directory's descriptor: a unix path may have no more than 107 bytes."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        launcher = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        launcher.connect("/proc/self/fd/{}/launcher.sock".format(descriptor))
        return launcher
    finally:
        os.close(descriptor)


def wait(launcher: socket.socket, tool: str) -> int:
    """Print what the launcher says until it tells the outcome."""
    for line in launcher.makefile("r", encoding="utf-8"):
        message = json.loads(line)
        if message["kind"] == "say":
            sys.stderr.write("hajob: {}\n".format(message["text"]))
            sys.stderr.flush()
        elif message["kind"] == "outcome":
            return int(message["exit_code"])
    sys.stderr.write("hajob: the launcher has ended before the ranks of this {} did\n".format(tool))
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
