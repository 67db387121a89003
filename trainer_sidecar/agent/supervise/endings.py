"""Whether a rank that ended with 0 has finished its training: the exit code does not tell.

Megatron ends with 0 when a checkpoint can't be loaded, after an orderly early end, and at the last step. What tells
them apart: the steps of this process, the last one it was to reach, and a few lines. On all ranks but the one that
prints, steps come from heartbeats, every two seconds and once more when the training function returns: that one has
the last step. A rank without MindIO at its end has no such one, and may have ended a few steps later than is known.
docs/protocols/launcher.md#ends
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_sidecar.agent.clock import SECOND
from trainer_sidecar.launcher import endings
from trainer_sidecar.launcher.protocol import ProcessName

HEARTBEATS = 3 * SECOND
"""What may have been trained since the newest heartbeat that told a step: one interval, and the way here."""

LOG_INTERVAL = 100
"""Megatron's default."""

_REASONS = (endings.NOT_LOADED, endings.LAYOUT)


@dataclass
class ProcessSteps:
    """The steps that one process has reported."""

    first: int
    first_time: int
    newest: int
    newest_time: int

    def highest_possible_step(self) -> int:
        """Return the highest step it may have finished by now."""
        steps, time = self.newest - self.first, self.newest_time - self.first_time
        return self.newest + 1 + (steps * HEARTBEATS // time if steps > 0 and time > 0 else 0)


@dataclass(frozen=True, slots=True)
class Training:
    """What the arguments of the training say about its end, and how often it prints a step."""

    last_step: int | None = None
    exit_interval: int | None = None
    log_interval: int = 1
    ends: bool = False
    may_stop_early: bool = False  # by time or by signal, which only one rank tells

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Training:
        """Read Megatron's options, by name without dashes."""
        ends = "train-iters" in options or "train-samples" in options
        early = "exit-duration-in-mins" in options or "exit-signal-handler" in options
        return cls(
            _positive_number(options, "train-iters"),
            _positive_number(options, "exit-interval"),
            _positive_number(options, "log-interval") or (LOG_INTERVAL if ends else 1),
            ends,
            early,
        )

    def is_early_end(self, progress: ProcessSteps) -> bool:
        """Return whether the arguments ask for an end after these steps."""
        if self.may_stop_early:
            return True
        interval = self.exit_interval
        return bool(interval) and progress.highest_possible_step() // (interval or 1) > (progress.newest - 1) // (
            interval or 1
        )


def _positive_number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name, "")
    return int(text) if text.isdecimal() and int(text) > 0 else None


@dataclass
class Endings:
    """The progress of every process, and the verdict on its end."""

    training: Training = field(default_factory=Training)
    _progress: dict[tuple[int, ProcessName], ProcessSteps] = field(default_factory=dict)

    def note_step(self, rank: int, name: ProcessName, step: int, time: int) -> bool:
        """Take a process's step, from a line or a heartbeat; return whether it is its first."""
        known = self._progress.get((rank, name))
        if known is None:
            self._progress[rank, name] = ProcessSteps(step, time, step, time)
            return True
        if step > known.newest:
            known.newest, known.newest_time = step, time
        return False

    def has_stepped(self, rank: int, name: ProcessName) -> bool:
        """Return whether the process has told of a step."""
        return (rank, name) in self._progress

    def may_be_explained(self, rank: int, name: ProcessName, notices: Mapping[str, str]) -> bool:
        """Return whether another rank's output may explain an end before the first step.

        Megatron prints the reason on rank 0.
        """
        return (rank, name) not in self._progress and not any(kind in notices for kind in _REASONS)

    def why_unfinished(
        self,
        rank: int,
        name: ProcessName,
        notices: Mapping[str, str],
        target: int | None,
        *,
        loads: int | None = None,
        untold: float = 0,
    ) -> str:
        """Return why an end with 0 is no finish, as a sentence; empty when it is one.

        Args:
            rank: that has ended.
            name: of its process.
            notices: lines that it printed, by kind.
            target: the last step, as printed.
            loads: step of the checkpoint that this attempt was given to load; only one rank prints it.
            untold: so many steps more than is known it may have trained without a word.
        """
        progress, last = self._progress.get((rank, name)), self.training.last_step or target
        loaded = max(_step_of_loaded_notice(notices) or 0, loads or 0)
        for kind in _REASONS:
            if kind in notices:
                return f"rank {rank} ended with 0 and did not train: {notices[kind]}"
        known = progress.newest if progress is not None else loaded
        if untold and self._may_have_finished(known, last, untold):
            return ""
        if progress is None:
            if last is not None and loaded >= last:
                return ""  # it was told to train to a step that its checkpoint has
            return f"rank {rank} ended with 0 and has trained no step"
        if last is None or progress.highest_possible_step() >= last or endings.EARLY_END in notices:
            return ""
        if self.training.is_early_end(progress):
            return ""
        return f"rank {rank} ended with 0 at step {progress.newest} of {last}"

    def _may_have_finished(self, known: int, last: int | None, untold: float) -> bool:
        """Whether the end lies within the steps of which no line tells."""
        early = self.training.may_stop_early or (self.training.exit_interval or untold + 1) <= untold
        return last is None or known + untold >= last or early


def _step_of_loaded_notice(notices: Mapping[str, str]) -> int | None:
    words = notices.get(endings.LOADED, "").split()
    return int(words[-1]) if words and words[-1].isdecimal() else None
