"""Entry of a rank's Python program: start it as the interpreter would, with stack dumps enabled.

Copied as it is to `$HAJOB_DIR/entry.py`, so it stands alone; standard library, Python >= 3.7. A rank that hangs holds
the interpreter's lock or sits in a library, so Python code in it cannot report its stack; `faulthandler` can, from a
signal handler. It must be armed before the program begins, without a line in the user's code and without the one
`sitecustomize` that an environment has. docs/protocols/launcher.md#stacks
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List

Namespace = Dict[str, Any]


def arm_stack_dump() -> None:
    """Have HAJOB_STACK_SIGNAL write every thread's stack to HAJOB_STACK_FILE; do nothing unless both are set."""
    path, number = os.environ.get("HAJOB_STACK_FILE"), os.environ.get("HAJOB_STACK_SIGNAL", "")
    if not path or not number.isdigit():
        return
    try:
        import faulthandler

        file = open(path, "ab", 0)  # noqa: SIM115  as long as the process lives
        faulthandler.register(int(number), file=file, all_threads=True, chain=False)
    except Exception as problem:  # a rank without stacks trains as well
        sys.stderr.write("hajob: stacks of this rank cannot be taken: {}\n".format(problem))


def wait_for_identity(number: int) -> None:
    """Import the heavy packages, then wait for variables and arguments; exit if the pipe ends without them.

    The program itself handles what cannot be imported here.
    """
    import importlib
    import json
    import time

    for name in os.environ.get("HAJOB_WARM_IMPORTS", "").split():
        try:
            importlib.import_module(name)
        except Exception:
            continue
    with os.fdopen(number, "rb") as pipe:
        told = json.loads(pipe.readline() or b"{}")
    if not told:
        os._exit(0)
    os.environ.clear()
    os.environ.update(told["environment"], HAJOB_EXEC_TIME=str(time.time_ns()))
    sys.argv[1:] = told["argv"]


def run_module(name: str, arguments: List[str]) -> None:
    """Run a module as `python -m NAME` does, by the same function of runpy."""
    import runpy

    _set_program_path(os.getcwd(), ["-m", *arguments])
    run = getattr(runpy, "_run_module_as_main")  # noqa: B009  no stub knows it; the interpreter calls it by this name
    _clear_namespace(sys.modules["__main__"].__dict__)
    run(name)


def run_script(path: str, arguments: List[str]) -> None:
    """Run a script as `python PATH` does."""
    from importlib.machinery import SourceFileLoader

    _set_program_path(os.path.dirname(os.path.realpath(path)), [path, *arguments])
    file = os.path.abspath(path) if sys.version_info >= (3, 9) else path
    with open(file, "rb") as source:
        code = compile(source.read(), file, "exec", dont_inherit=True)
    namespace = sys.modules["__main__"].__dict__
    loader = SourceFileLoader("__main__", file)
    _clear_namespace(namespace)
    namespace.update(__file__=file, __cached__=None, __loader__=loader)
    exec(code, namespace)


def _set_program_path(directory: str, arguments: List[str]) -> None:
    """Set `sys.argv` and import path as they would be without this file."""
    sys.argv[:] = arguments
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = directory


def _clear_namespace(namespace: Namespace) -> None:
    """Remove every trace of this file from `__main__`, so that it is as a program finds it."""
    fresh: Namespace = dict.fromkeys(("__doc__", "__package__", "__spec__", "__loader__"))
    fresh.update(__name__="__main__", __builtins__=namespace["__builtins__"])
    if "__annotations__" in namespace:  # until 3.13
        fresh["__annotations__"] = {}
    namespace.clear()
    namespace.update(fresh)


if __name__ == "__main__":
    if "HAJOB_WARM_FD" in os.environ:
        wait_for_identity(int(os.environ["HAJOB_WARM_FD"]))
    arm_stack_dump()
    if sys.argv[1] == "-m":
        run_module(sys.argv[2], sys.argv[3:])
    else:
        run_script(sys.argv[1], sys.argv[2:])
