"""When the training last went on, told although everything is ended at once. Only this module changes it.

An account of an outage begins with the last step that all ranks had in common. A restart or a save can be ordered a
few milliseconds after a fault, when agents have not told of that step yet; so what they say is gathered for a moment
longer, beside the steps of an attempt that begins meanwhile. Where processes had to be started it has been told before
MindIO is given its strategy.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from trainer_sidecar.coordinator.state.attempt import Attempt
from trainer_sidecar.coordinator.state.incidents import OpenIncident
from trainer_sidecar.coordinator.state.steps import Steps

GATHER_SECONDS = 0.2  # launchers keep the last quick steps for 0.1 s (docs/protocols/launcher.md)
StepReport = tuple[OpenIncident | Attempt, int, float]
"""As part of what, which step, and when it ended."""


@dataclass(slots=True)
class _Gathered:
    steps: Steps
    due: float
    num_ranks: int
    of: OpenIncident | Attempt
    ends: bool  # the attempt; the job's own steps begin again


class LastStep:
    """Steps of an attempt that is being ended or saved, when they are told, and as part of what."""

    def __init__(self) -> None:
        self._gathered: _Gathered | None = None

    @property
    def is_attempt_ending(self) -> bool:
        """Whether steps that are told now are of an attempt that is being ended."""
        return self._gathered is not None and self._gathered.ends

    @property
    def is_step_untold(self) -> bool:
        """Whether a step is still to be told."""
        return self._gathered is not None

    def gather_before_end(self, steps: Steps, now: float, num_ranks: int, of: OpenIncident | Attempt | None) -> None:
        """Collect the last step, because every rank is about to be ended.

        `of`: None where the step was told already, or there was none.
        """
        last = self._gathered
        if last is not None:
            last.steps, last.ends = copy.deepcopy(last.steps), True
        elif of is not None:
            self._gathered = _Gathered(copy.deepcopy(steps), now + GATHER_SECONDS, num_ranks, of, ends=True)

    def gather_before_save(self, steps: Steps, now: float, num_ranks: int, of: OpenIncident) -> None:
        """Collect the last step, because MindIO saves it at once: no step will be repeated."""
        self._gathered = _Gathered(steps, now + GATHER_SECONDS, num_ranks, of, ends=False)

    def note_printed_step(self, rank: int, step: int, at: float) -> bool:
        """Note a step that a rank has printed; return whether it was of an attempt that is being ended."""
        last = self._gathered
        if last is None or not last.ends:
            return False
        last.steps.note_printed_step(rank, step, at, last.num_ranks)
        return True

    def note_heartbeat_step(self, rank: int, step: int, at: float) -> bool:
        """Note a step of a heartbeat; return whether it was of an attempt that is being ended."""
        last = self._gathered
        if last is None or not last.ends:
            return False
        last.steps.note_heartbeat_step(rank, step, at, last.num_ranks)
        return True

    def take_due_step(self, now: float) -> StepReport | None:
        """Return the last common step, once it is time, and only once."""
        last = self._gathered
        if last is None or now < last.due:
            return None
        self._gathered = None
        common = last.steps.last_common_step()
        return (last.of, *common) if common is not None else None
