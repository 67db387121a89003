"""`init()` in the scheduler's role: listen where the variables say. The workers of the toy trainer do not call it."""

from __future__ import annotations

import os
import threading

from e2e.trainer.store import serve


def init() -> None:
    """Serve in a thread. RuntimeError: the process has another role."""
    role = os.environ.get("MS_ROLE")
    if role != "MS_SCHED":
        raise RuntimeError(f"MS_ROLE is {role}: only the scheduler is simulated")
    where = os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"])
    threading.Thread(target=serve, args=where, name="scheduler", daemon=True).start()
