"""One start of the whole job: how far it is. Only this module changes it; start.py and takeover.py lead it on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class AttemptPhase(StrEnum):
    """How far a start is."""

    IDLE = "idle"  # no order has come, or every rank was told to end
    OPENING = "opening"  # controller, store and launchers are being waited for
    RUNNING = "running"


@dataclass(slots=True)
class Attempt:
    """`number` is the operator's, `incarnation` that of its START order."""

    number: int = -1
    incarnation: int = 0
    phase: AttemptPhase = AttemptPhase.IDLE
    since: float = 0.0
    linked: bool = False  # every rank has been linked once
    stepped: bool = False  # all ranks have finished the first step after the start
    done: bool = False
    alone: bool = False  # no process of an older attempt is left that could write a checkpoint
    finished: set[int] = field(default_factory=set)
    first_finish: float | None = None
    sign: float = 0.0  # when the start was last seen to go on
    late_told: bool = False  # that ranks have not ended long after the first one

    def goes_on(self, at: float) -> None:
        """A sign that the start goes on: another phase of a rank, something computed or printed."""
        self.sign = max(self.sign, at)

    def wait_since(self, now: float) -> float:
        """When it was first looked for what runs already."""
        self.since = self.since or now
        return self.since

    def run(self, now: float) -> None:
        """Its ranks have been ordered."""
        self.phase, self.since = AttemptPhase.RUNNING, now

    def take_up(self, now: float) -> None:
        """Its ranks run already, started by a coordinator before this one."""
        self.run(now)
        self.linked = self.stepped = True

    def end(self) -> None:
        """Every rank was told to end."""
        self.phase = AttemptPhase.IDLE

    def is_alone(self) -> bool:
        """Note that no older process is left; whether that is new."""
        new, self.alone = not self.alone, True
        return new

    def has_linked(self) -> None:
        """Every rank has reached MindIO."""
        self.linked = True

    def has_stepped(self) -> None:
        """Every rank has finished the first step."""
        self.stepped = True

    def finish(self, rank: int, now: float) -> bool:
        """A rank left in order; whether it is the first one."""
        self.finished.add(rank)
        if self.first_finish is not None:
            return False
        self.first_finish = now
        return True

    def is_late(self) -> bool:
        """Note that ranks have not ended long after the first one; whether that is new."""
        new, self.late_told = not self.late_told, True
        return new

    def has_finished(self) -> None:
        """Every rank has left."""
        self.done = True
