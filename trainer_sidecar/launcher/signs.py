"""Whether a start makes progress although no rank has trained yet: importing, building, compiling, converting.

MindIO's heartbeats come from a thread that does not see this, and most of it prints nothing for many minutes. But it
uses processor time or prints; processes that only wait for each other do neither. docs/protocols/launcher.md#signs
"""

from __future__ import annotations

import os
from typing import Dict, Iterable

from .foreign_launchers import fields_of_process

# A start may take half an hour; that it goes on need not be known more exactly.
LOOK_SECONDS = 10.0
SHARE = 0.1
"""Share of a core that one process must have used since the last look: threads that only wait use less."""

_TICKS = float(os.sysconf("SC_CLK_TCK"))


class Signs:
    """Comparison of processor time and printed lines with the last look."""

    def __init__(self) -> None:
        self._seconds: Dict[int, float] = {}
        self._lines = 0

    def has_new_sign(self, pids: Iterable[int], lines: int, elapsed: float = LOOK_SECONDS) -> bool:
        """Return whether a process has worked or printed in the `elapsed` seconds since the last look."""
        seconds = {pid: used_processor_seconds(pid) for pid in pids}
        worked = any(now - self._seconds.get(pid, 0.0) >= SHARE * elapsed for pid, now in seconds.items())
        printed = lines > self._lines
        self._seconds, self._lines = seconds, lines
        return worked or printed


def used_processor_seconds(pid: int) -> float:
    """Return the processor seconds that a process and its ended children have used; 0 when it has ended."""
    try:
        return sum(int(field) for field in fields_of_process(pid)[11:15]) / _TICKS
    except ValueError:
        return 0.0
