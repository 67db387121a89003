"""What a rank has printed about its newest fault, as long as it may explain the fault that MindIO reports.

The launcher tells the line of the fault with the lines before it: those of an exception say where it was raised.

A rank whose fault is repaired trains on in the same process: an old line does not explain a later fault.
"""

from __future__ import annotations

from collections.abc import Sequence

from hajob.domain.text import last_lines
from trainer_sidecar.agent.supervise.ranks import RankProcess
from trainer_sidecar.launcher import endings

STEPS_VALID = 1
"""A step that had ended when the line was printed may be told after it; two steps later the rank has trained on."""
TRACEBACK = "Traceback (most recent call last)"
# A traceback that is longer than this is shown from its middle: the frames next to the error say most.
NUM_LINES = 20
MESSAGE_CHARACTERS = 1000
"""As much as an incident keeps of its cause: the text is part of each report until the rank has trained on."""


class ErrorLines:
    """The newest fault of each rank in its own words, and the step that was known when it came."""

    def __init__(self) -> None:
        self._lines: dict[int, tuple[RankProcess, str, str, int]] = {}

    def note_process(self, process: RankProcess, step: int | None) -> None:
        """Take the launcher's news of a rank's process; `step`: its last known one."""
        line = process.notices.get(endings.FAULT, "")
        known = self._lines.get(process.rank)
        if known is None or known[0].name != process.name or known[1] != line:
            self._lines[process.rank] = (process, line, _with_lines_before(line, process.last_lines), step or 0)

    def error_of_rank(self, rank: int, step: int | None) -> str:
        """Return the rank's words; empty: it printed none, or has trained on since. `step`: its last known one."""
        process, _, words, before = self._lines.get(rank, (None, "", "", 0))
        return words if process is not None and (step or 0) <= before + STEPS_VALID else ""


def _with_lines_before(line: str, lines: Sequence[str]) -> str:
    """Return the traceback that ends with this line, else the line alone."""
    place = next((number for number in range(len(lines) - 1, -1, -1) if lines[number].strip() == line), None)
    before = lines[max(0, place - NUM_LINES) : place] if line and place is not None else ()
    begin = next((number for number in range(len(before) - 1, -1, -1) if before[number].startswith(TRACEBACK)), None)
    return last_lines("\n".join([*(before[begin:] if begin is not None else ()), line]), MESSAGE_CHARACTERS)
