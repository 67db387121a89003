"""The newest line about a fault that a rank has printed, as long as it may explain the fault that MindIO reports.

A rank whose fault is repaired trains on in the same process: an old line does not explain a later fault.
"""

from __future__ import annotations

from trainer_sidecar.agent.ranks import RankProcess
from trainer_sidecar.launcher import endings

STEPS_VALID = 1
"""A step that had ended when the line was printed may be told after it; two steps later the rank has trained on."""


class ErrorLines:
    """The newest line of each rank, and the step that was known when it came."""

    def __init__(self) -> None:
        self._lines: dict[int, tuple[RankProcess, str, int]] = {}

    def take(self, process: RankProcess, step: int | None) -> None:
        """Take the launcher's news of a rank's process; `step`: its last known one."""
        line = process.notices.get(endings.FAULT, "")
        known = self._lines.get(process.rank)
        if known is None or known[0].name != process.name or known[1] != line:
            self._lines[process.rank] = (process, line, step or 0)

    def of(self, rank: int, step: int | None) -> str:
        """Return the rank's line; empty: it printed none, or has trained on since. `step`: its last known one."""
        process, line, before = self._lines.get(rank, (None, "", 0))
        return line if process is not None and (step or 0) <= before + STEPS_VALID else ""
