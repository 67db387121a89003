"""MindSpore's scheduler: the process at which its workers meet, as the TCPStore is for PyTorch.

msrun starts it on the first node; here it lives beside the MindIO controller, so that no rank is special. It is a
process of its own, because MindSpore's native part knows one role per process and may end the process it is in. It
computes nothing: its device is the CPU, whatever the image is made for. docs/protocols/launcher.md#mindspore
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from typing import IO, Callable, Dict, Iterable

from trainer_sidecar import prctl

START_SECONDS = 180.0
"""Until it listens: the import of MindSpore alone takes tens of seconds."""

REPEATED_SECONDS = 60.0
"""A line that differs from an earlier one by its time, or the number of a try, is printed again after this long. Of
each dead node the scheduler says so twice a second, for ever, and every five seconds how many live."""
KNOWN_LINES = 8192
"""So many lines are told apart: one for each dead worker of the largest jobs, and a bound."""

PROGRAM = """
import threading
import mindspore
if hasattr(mindspore, "set_device"):
    mindspore.set_device("CPU")
else:
    mindspore.set_context(device_target="CPU")
from mindspore.communication import init
init()
threading.Event().wait()
"""
"""`init()` of MindSpore 2.10 serves until every worker has unregistered, and ends the process with 0."""

_CHANGING = re.compile(rb"\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d[.\d]*|retry\(\d+")
"""The time of a line, and the number of a try: while it waits for workers it tells of one twice a second."""


def is_scheduler_wanted(environment: Dict[str, str]) -> bool:
    """Return whether the job trains with MindSpore; the variable is MindIO's own."""
    return environment.get("MINDIO_FOR_MINDSPORE", "").lower() in ("1", "true")


def scheduler_variables(environment: Dict[str, str], host: str, port: int) -> Dict[str, str]:
    """Return the scheduler's variables: those of the workers, but for role and address."""
    return dict(environment, MS_ROLE="MS_SCHED", MS_SCHED_HOST=host, MS_SCHED_PORT=str(port))


def run_scheduler(environment: Dict[str, str], host: str, port: int) -> None:
    """Keep a scheduler until one fails: RuntimeError says how it ended.

    One that ends with 0 has seen all its workers unregister: the launch is over, and another one (a conversion comes
    before the training, say) finds another scheduler. The kernel ends it with the thread that calls this, so it never
    outlives the controller's process.
    """
    while True:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", PROGRAM],
            env=scheduler_variables(environment, host, port),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_starter(),  # noqa: PLW1509  makes system calls only
        )
        assert process.stdout is not None
        pass_lines(process.stdout, sys.stderr.buffer)
        code = process.wait()
        if code != 0:
            break
    how = "was ended by signal %d" % -code if code < 0 else "ended with code %d" % code
    raise RuntimeError("MindSpore's scheduler %s; what it printed is in the log of container controller" % how)


def pass_lines(source: Iterable[bytes], target: IO[bytes], clock: Callable[[], float] = time.monotonic) -> None:
    """Write the lines of the source until it ends, each that repeats itself once in `REPEATED_SECONDS`."""
    printed: Dict[bytes, float] = {}
    for line in source:
        text, now = _CHANGING.sub(b"", line), clock()
        if now - printed.get(text, -REPEATED_SECONDS) < REPEATED_SECONDS:
            continue
        printed.pop(text, None)
        printed[text] = now
        if len(printed) > KNOWN_LINES:
            del printed[next(iter(printed))]
        target.write(line)
        target.flush()


def _die_with_starter() -> Callable[[], None]:
    """Prepare the child's set-up before the fork: there are threads, so only a system call is made after it."""
    starter = os.getpid()

    def die_with_starter() -> None:
        prctl.die_with_parent()
        if os.getppid() != starter:
            os._exit(1)

    return die_with_starter
