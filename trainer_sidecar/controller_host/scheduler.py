"""MindSpore's scheduler: the process at which its workers meet, as the TCPStore is for PyTorch.

msrun starts it on the first node; here it lives beside the MindIO controller, so that no rank is special. It is a
process of its own, because MindSpore's native part knows one role per process and may end the process it is in. It
computes nothing: its device is the CPU, whatever the image is made for. docs/protocols/launcher.md#mindspore
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Callable, Dict

from trainer_sidecar import prctl

START_SECONDS = 180.0
"""Until it listens: the import of MindSpore alone takes tens of seconds."""

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


def is_wanted(environment: Dict[str, str]) -> bool:
    """Return whether the job trains with MindSpore; the variable is MindIO's own."""
    return environment.get("MINDIO_FOR_MINDSPORE", "").lower() in ("1", "true")


def variables(environment: Dict[str, str], host: str, port: int) -> Dict[str, str]:
    """Return the scheduler's variables: those of the workers, but for role and address."""
    return dict(environment, MS_ROLE="MS_SCHED", MS_SCHED_HOST=host, MS_SCHED_PORT=str(port))


def run(environment: Dict[str, str], host: str, port: int) -> None:
    """Start the scheduler and wait until it ends, which is always a failure: RuntimeError says how it ended.

    The kernel ends it with the thread that calls this, so it never outlives the controller's process.
    """
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", PROGRAM],
        env=variables(environment, host, port),
        stdin=subprocess.DEVNULL,
        preexec_fn=_die_with_starter(),  # noqa: PLW1509  makes system calls only
    )
    code = process.wait()
    how = "was ended by signal %d" % -code if code < 0 else "ended with code %d" % code
    raise RuntimeError("MindSpore's scheduler %s; what it printed is in the log of container controller" % how)


def _die_with_starter() -> Callable[[], None]:
    """Prepare the child's set-up before the fork: there are threads, so only a system call is made after it."""
    starter = os.getpid()

    def ask() -> None:
        prctl.die_with_parent()
        if os.getppid() != starter:
            os._exit(1)

    return ask
