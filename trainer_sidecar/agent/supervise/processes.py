"""The ranks' processes: the newest of each, its steps, its error in its own words, and the launcher's refusals."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hajob.domain.text import last_lines
from trainer_sidecar.agent.supervise.ranks import RankProcess, Wanted, runs_as_ordered
from trainer_sidecar.launcher import endings
from trainer_sidecar.launcher.protocol import ProcessName

STEPS_VALID = 1
"""A step that had ended when the line was printed may be told after it; two steps later the rank has trained on."""
TRACEBACK = "Traceback (most recent call last)"
# A traceback that is longer than this is shown from its middle: the frames next to the error say most.
NUM_LINES = 20
MESSAGE_CHARACTERS = 1000
"""As much as an incident keeps of its cause: the text is part of each report until the rank has trained on."""

log = logging.getLogger(__name__)


class Processes:
    """The processes of this pod.

    Attributes:
        newest: by rank, as the launcher last described it.
        refused: why the launcher did not start a rank.
    """

    def __init__(self) -> None:
        self.newest: dict[int, RankProcess] = {}
        self.refused: dict[int, str] = {}
        self._printed: dict[int, int] = {}  # the newest step that a rank's present process has printed
        self._beaten: dict[int, int] = {}  # … and that its heartbeats have told
        self._error_lines = ErrorLines()
        self._stacks: dict[tuple[int, ProcessName], int] = {}  # how often the launcher was asked for a process's stack

    def running_processes(self) -> list[RankProcess]:
        """Return the processes that have not ended."""
        return [process for process in self.newest.values() if process.running]

    def update_process(self, process: RankProcess) -> bool:
        """Take over a process as it is now; False: the rank has a newer one."""
        before = self.newest.get(process.rank)
        if before is not None and process.name < before.name:
            return False
        if before is not None and before.name != process.name:
            self._printed.pop(process.rank, None)
            self._beaten.pop(process.rank, None)
        self.newest[process.rank] = process
        self._error_lines.note_process(process, self.last_finished_step(process.rank))
        self.refused.pop(process.rank, None)
        return True

    def begin_launch(self) -> None:
        """Forget the processes of the launch before, which was not the training; their names are free again."""
        for known in (self.newest, self.refused, self._printed, self._beaten):
            known.clear()

    def note_refused_start(self, rank: int, reason: str) -> None:
        """Note why the launcher does not start a rank."""
        if self.refused.get(rank) != reason:
            log.error("the launcher refuses to start rank %d, it is asked again: %s", rank, reason)
        self.refused[rank] = reason

    def has_printed_step(self, rank: int) -> bool:
        """Return whether the rank's process has printed a step."""
        return rank in self._printed

    def note_printed_step(self, rank: int, step: int) -> None:
        """Note a step that a rank has printed."""
        self._printed[rank] = step

    def note_heartbeat_step(self, rank: int, step: int) -> bool:
        """Note a step from a rank's heartbeat; return whether it is another than before."""
        known = self._beaten.get(rank) == step
        self._beaten[rank] = step
        return not known

    def has_trained(self) -> bool:
        """Return whether any rank has reported a step."""
        return bool(self._printed or self._beaten)

    def last_finished_step(self, rank: int) -> int | None:
        """Return the last step that the rank's process has finished, None: unknown."""
        return max((told[rank] for told in (self._printed, self._beaten) if rank in told), default=None)

    def error_line(self, rank: int) -> str:
        """Return the error that the rank's process has printed at its step, empty for none."""
        return self._error_lines.error_of_rank(rank, self.last_finished_step(rank))

    def is_stack_due(self, wanted: Wanted) -> bool:
        """Return whether to ask the launcher now for a process's stack; each one ordered is asked for once."""
        process = (wanted.rank, wanted.name)
        if wanted.stacks <= self._stacks.get(process, 0) or not runs_as_ordered(wanted, self.newest.get(wanted.rank)):
            return False
        self._stacks[process] = wanted.stacks
        return True

    def stack_number(self, rank: int, name: ProcessName) -> int:
        """Return the number of the last stack requested of a process."""
        return self._stacks.get((rank, name), 0)


class ErrorLines:
    """The newest fault of each rank in its own words, as long as it may explain the fault that MindIO reports.

    The launcher tells the line of the fault with the lines before it: those of an exception say where it was raised. A
    rank whose fault is repaired trains on in the same process: an old line does not explain a later fault.
    """

    def __init__(self) -> None:
        self._lines: dict[int, tuple[RankProcess, str, str, int]] = {}  # … and the step that was known when it came

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
