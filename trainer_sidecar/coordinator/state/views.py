"""What others said of themselves last: the controller host, and the agent that looks at the checkpoints.

Only this module changes it. attempt/start.py asks for controllers; watch/checkpoints.py asks for checkpoints, and tells
of saves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.state.attempt import Attempt
from trainer_sidecar.coordinator.state.incidents import OpenIncident


@dataclass(slots=True)
class ControllerView:
    """What is known of the controller host."""

    connected: bool = False
    attempt: int = 0
    controller: str = "none"
    store: str = "none"
    problem: str = ""
    kind: str = ""
    instance: str = ""  # which controller process it is
    takes_over: bool = False  # it took the place of another one, and no coordinator has said that it knows all ranks
    unfilled: bool = False  # the store took the place of another one since then
    refusal: str = ""  # why the host's socket may not be opened
    requested: int = -1  # the attempt a start was asked for
    wanted: tuple[str, Mapping[str, object]] | None = None  # the call, and its arguments
    requested_at: float = 0.0
    starts: int = 0  # so often for this attempt
    log: list[Mapping[str, Any]] = field(default_factory=list)  # since MindIO last was at rest

    @property
    def has_failed(self) -> bool:
        """Whether controller or store could not be started."""
        return "failed" in (self.controller, self.store)

    def is_serving(self, attempt: int) -> bool:
        """Return whether the controller of this attempt is up."""
        return self.connected and self.attempt == attempt and self.controller == "serving"

    def is_ready(self, attempt: int) -> bool:
        """Return whether controller and store of this attempt are up."""
        return self.is_serving(attempt) and self.has_store(attempt)

    def has_store(self, attempt: int) -> bool:
        """Return whether the store of this attempt is up."""
        return self.connected and self.attempt == attempt and self.store == "listening"

    def apply_hello(self, log: Sequence[Mapping[str, Any]]) -> None:
        """Take in the hello of the host, and what it has written down."""
        self.connected, self.log = True, list(log)

    def note_refusal(self, why: str) -> None:
        """Note why the host is there and may not be spoken to; empty: it may again."""
        self.refusal = why

    def note_disconnected(self) -> bool:
        """Note that the host does not answer; return whether it did before."""
        before, self.connected = self.connected, False
        return before

    def apply_state(self, state: Mapping[str, Any]) -> None:
        """Take in how controller and store are, as the host says."""
        self.attempt = int(state.get("attempt", 0))
        self.controller, self.store = str(state.get("controller")), str(state.get("store"))
        self.problem, self.kind = str(state.get("problem", "")), str(state.get("kind", ""))
        self.instance = str(state.get("instance", ""))
        self.takes_over, self.unfilled = bool(state.get("takes_over")), bool(state.get("unfilled"))

    def append_to_log(self, entry: Mapping[str, Any]) -> None:
        """Add to the log what is said before the conversation was taken up."""
        self.log.append(entry)

    def note_requested_start(self, attempt: int, call: str, arguments: Mapping[str, object], now: float) -> None:
        """Note that a start was asked for."""
        self.starts = self.starts + 1 if self.requested == attempt else 1
        self.requested, self.requested_at, self.wanted = attempt, now, (call, arguments)

    def forget_request(self) -> None:
        """Forget what was asked for: it has been ended."""
        self.requested = -1


@dataclass(frozen=True, slots=True)
class ReportedSave:
    """A save that MindIO has reported: the milestone to tell, as part of what, and since when it is looked for."""

    milestone: pb.Milestone
    of: OpenIncident | Attempt
    since: float


@dataclass(slots=True)
class CheckpointView:
    """What an agent has found, and the pod of the one that is asked.

    Attributes:
        look: how often it was asked to look at once, for each of these triggers once: the newest incident,
            and whether its strategy was sent; and when MindIO has reported a save.
        step_before_save: of the newest complete checkpoint when MindIO was told to save, -1: there was none; None: not
            known, as to a coordinator that came afterwards.
        save: that MindIO has reported, and the operator has not been told of.
    """

    found: pb.CheckpointState | None = None
    pod_uid: str = ""
    look: int = 0
    trigger: tuple[int, bool] = (0, False)
    step_before_save: int | None = None
    save: ReportedSave | None = None

    def set_asked_pod(self, pod_uid: str) -> None:
        """Make it another agent's turn."""
        self.pod_uid = pod_uid

    def is_new_trigger(self, trigger: tuple[int, bool]) -> bool:
        """Return whether the agent is to look at once, for this trigger."""
        before, self.trigger = self.trigger, trigger
        self.look += trigger != before
        return trigger != before

    def note_step_before_save(self) -> None:
        """Note the newest step before MindIO is told to save."""
        self.step_before_save = self.found.step if self.found is not None else None

    def note_reported_save(self, save: ReportedSave) -> None:
        """Note that MindIO has reported a save, which is looked for at once."""
        self.save = save
        self.look += 1

    def forget_reported_save(self) -> None:
        """Forget the reported save: nobody waits for it."""
        self.save = None

    def apply_findings(self, said: pb.CheckpointState) -> None:
        """Take in what an agent has found; what an attempt was given to load stays known when another agent looks."""
        found, before = pb.CheckpointState(), self.found
        found.CopyFrom(said)
        if before is not None and found.attempt < before.attempt:
            found.attempt, found.loaded_step = before.attempt, before.loaded_step
            found.num_refused = before.num_refused
            del found.refused[:]
            found.refused.extend(before.refused)
        self.found = found
