"""What the coordinator of one job has reported, and what follows from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hajob import metrics
from hajob.api.conditions import Reason
from hajob.domain.checkpoints import CheckpointRefusal
from hajob.domain.pace import StepTimes
from hajob.job.status.incidents import Loaded
from hajob.protocol import sidecar_pb2 as wire
from hajob.protocol.steps import known_step
from hajob.sources.observe import Heard

NANOSECONDS_PER_SECOND: Final = 1_000_000_000
_NOTHING_FOUND: Final = frozenset({"", "Offline"})
"""Words for its conversation with MindIO of a coordinator that has found nothing yet (docs/protocols/sidecar.md)."""


class CoordinatorReports:
    """The reports of one job's coordinator.

    Attributes:
        incarnation: of the pod to which the channel is; 0 without one.
        address: of that pod; empty without one.
        connected: the channel to its pod is up.
        conversation: number of the conversation with its pod: on each the reports are counted from one.
        sequence: number of the newest report of this conversation; 0 before the first.
        before: what was known before the newest report.
        now: what is known with it.
        problem: why the channel is down, or what the coordinator says of its MindIO controller; empty: nothing.
    """

    def __init__(self) -> None:
        self.incarnation, self.address = 0, ""
        self.connected = False
        self.conversation = self.sequence = 0
        self.problem = ""
        self.before = self.now = Heard()
        self._attempt_told = 0

    def store_report(self, report: wire.Report) -> None:
        """Store a report."""
        self.sequence = report.sequence
        self.before, self.now = self.now, self.now.after_report(report.state)
        self.problem = report.state.controller_problem
        _count_refusals(self.before.state, report.state)

    def note_connection_change(self, up: bool, reason: str) -> None:
        """Store that the channel came up or went down, and why."""
        if up and not self.connected:  # another process may answer now
            self._begin_conversation()
        self.connected = up
        self.now = self.now if up else self.now.after_loss()
        self.problem = reason

    def is_heard_from(self, incarnation: int) -> bool:
        """Return whether the channel is up, and to the pod of this incarnation."""
        return self.connected and self.incarnation == incarnation

    def note_dialled_pod(self, incarnation: int, address: str) -> None:
        """Store to which pod the channel is."""
        self.incarnation, self.address = incarnation, address

    def forget_pod(self) -> None:
        """Forget what only the pod knew to which the link was: its successor says it again. The step remains."""
        self.incarnation, self.address, self.connected, self.problem = 0, "", False, ""
        self._begin_conversation()
        self.now = replace(self.now, state=wire.CoordinatorState(step=known_step(self.now.state)), serving=False)

    def _begin_conversation(self) -> None:
        self.conversation, self.sequence = self.conversation + 1, 0

    @property
    def is_serving(self) -> bool:
        """Whether the channel is up and the MindIO controller serves."""
        return self.connected and self.now.state.controller_ready

    @property
    def is_taking_over(self) -> bool:
        """Whether the channel is up and the coordinator will soon have a MindIO controller in place of a lost one."""
        return self.connected and self.now.state.taking_over

    @property
    def has_spoken(self) -> bool:
        """Whether the channel is up, and the coordinator has said what it found of the job.

        One that has come back to a training says so when agents have told it of their ranks.
        """
        state = self.now.state
        return self.connected and (state.taking_over or state.conversation not in _NOTHING_FOUND)

    @property
    def newest_step(self) -> int:
        """Return the newest step that is known to be finished, -1 before the first."""
        found = known_step(self.now.state)
        return -1 if found is None else found

    @property
    def step_times(self) -> StepTimes | None:
        """Return how long the last steps took; None while the channel is down or too few were seen."""
        told = self.now.state.step_times
        if not self.connected or not self.now.state.HasField("step_times"):
            return None
        return StepTimes(
            told.median_nanoseconds / NANOSECONDS_PER_SECOND, told.slow_nanoseconds / NANOSECONDS_PER_SECOND
        )

    @property
    def checkpoint_step(self) -> int | None:
        """Return the step of the complete checkpoint that would be loaded now; -1: there is none, None: unknown."""
        found = self.now.state.checkpoint
        if not self.now.state.HasField("checkpoint") or found.problem:
            return None
        return found.step if found.tracked else -1

    def step_loaded_by(self, attempt: int) -> int:
        """Return the step of the checkpoint that this attempt was given to load, -1 for none or when unknown."""
        found = self.now.state.checkpoint
        return found.loaded_step if found.attempt and found.attempt == attempt else -1

    def take_newly_loaded(self, report: wire.Report, attempt: int) -> Loaded | None:
        """Return what the ranks of this attempt were given to load, the first time a report says so."""
        found = report.state.checkpoint
        if not found.attempt or found.attempt != attempt or found.attempt == self._attempt_told:
            return None
        self._attempt_told = found.attempt
        refused = tuple(CheckpointRefusal(one.name, one.reason, one.detail) for one in found.refused)
        return Loaded(found.loaded_step, refused, found.num_refused, found.problem)

    @property
    def copies_told(self) -> bool | None:
        """Whether MindIO knows the optimizer copies; None if unknown."""
        return False if Reason.COPIES_NOT_REGISTERED.word in self.problems_by_code else None

    @property
    def problems_by_code(self) -> dict[str, str]:
        """Return the problems that MindIO has with the job, by MindIO's word for each."""
        return {problem.code: problem.message for problem in self.now.state.problems}


def _count_refusals(before: wire.CoordinatorState, now: wire.CoordinatorState) -> None:
    """Count what coordinators refuse, and do without this operator. A lower number comes from a new process."""
    for what, known, number in (
        ("coordinator input", before.refused_inputs, now.refused_inputs),
        ("connection from outside a rank's pod", before.strangers, now.strangers),
    ):
        metrics.REFUSED.labels(what).inc(number - (known if known <= number else 0))
    if now.standing_action not in (wire.ACTION_UNSPECIFIED, before.standing_action):
        metrics.STANDING_ACTIONS.labels(wire.Action.Name(now.standing_action)).inc()
