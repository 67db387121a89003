"""The state of one start of the whole job.

Only this module changes it, called by attempt/start.py and takeover/takeover.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class AttemptPhase(StrEnum):
    """Phases of an attempt."""

    IDLE = "idle"  # no order has come, or every rank was ordered to end
    OPENING = "opening"  # waiting for controller, store and launchers
    RUNNING = "running"


@dataclass(slots=True)
class Attempt:
    """One start of the whole job: `number` is the operator's, `incarnation` that of its START order."""

    number: int = -1
    incarnation: int = 0
    phase: AttemptPhase = AttemptPhase.IDLE
    since: float = 0.0
    linked: bool = False  # every rank has been linked once
    stepped: bool = False  # all ranks have finished the first step after the start
    done: bool = False
    alone: bool = False  # no process of an older attempt is left to write a checkpoint
    finished: set[int] = field(default_factory=set)
    last_step: int = 0  # that the training is to reach, 0: not known
    over_since: float | None = None  # when the last step had ended on every rank, or the first rank had ended in order
    sign: float = 0.0  # time of the last sign of progress of the start
    complete_since: float | None = None  # when the agents of all its pods had said how their ranks are

    def note_progress(self, at: float) -> None:
        """Note progress of the start: a new phase of a rank, a finished computation or output."""
        self.sign = max(self.sign, at)

    def first_check_time(self, now: float) -> float:
        """Return the time of the first check for ranks that run already."""
        self.since = self.since or now
        return self.since

    def note_pods(self, now: float, *, complete: bool) -> None:
        """Note whether the agents of all its pods have said how their ranks are."""
        if not complete:
            self.complete_since = None
        elif self.complete_since is None:
            self.complete_since = now

    def note_running(self, now: float) -> None:
        """Note that its ranks were ordered."""
        self.phase, self.since = AttemptPhase.RUNNING, now

    def adopt_running(self, now: float) -> None:
        """Adopt ranks that an earlier coordinator started."""
        self.note_running(now)
        self.linked = self.stepped = True

    def note_end(self) -> None:
        """Note that every rank was ordered to end."""
        self.phase = AttemptPhase.IDLE

    def mark_alone(self) -> bool:
        """Note that no older process is left; return whether that is new."""
        new, self.alone = not self.alone, True
        return new

    def note_all_linked(self) -> None:
        """Note that every rank is linked to MindIO."""
        self.linked = True

    def note_first_step(self) -> None:
        """Note that every rank has finished the first step."""
        self.stepped = True

    def note_finished_rank(self, rank: int, now: float) -> None:
        """Note a rank's orderly exit."""
        self.finished.add(rank)
        self.note_last_step_over(now)

    def set_last_step(self, last_step: int) -> None:
        """Note the step that the training is to reach."""
        self.last_step = last_step

    def note_last_step_over(self, now: float) -> None:
        """Note that no rank is going to train another step."""
        if self.over_since is None:
            self.over_since = now

    def note_all_finished(self) -> None:
        """Note that every rank has ended in order."""
        self.done = True
