"""The controller's messages on their way to a rank: whole ones, without those that a change of controller makes wrong.

docs/protocols/launcher.md#another-controller
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from trainer_sidecar.agent.gate import frames
from trainer_sidecar.agent.gate.dead_rank_replies import reply_to_action
from trainer_sidecar.agent.gate.outward import Outward
from trainer_sidecar.agent.gate.passage import Passage
from trainer_sidecar.agent.gate.step_margin import StepMargin

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Between:
    """The two ends of a link: a process of a rank, and a controller."""

    rank: int
    process: str
    controller: str


class Downward:
    """One connection to a controller, for one process of a rank."""

    def __init__(self, link: Between, passage: Passage, outward: Outward, margin: StepMargin) -> None:
        self._margin = margin
        self._rank, self._process, self._controller = link.rank, link.process, link.controller
        self._rules, self._registrations, self._outward = passage.rules, passage.registrations, outward
        self._inward = frames.Inward()

    @property
    def is_unreadable(self) -> bool:
        """Whether its bytes don't look like messages any more."""
        return self._inward.lost

    def bytes_for_rank(self, data: bytes) -> bytes:
        """Return the part of these bytes that the rank gets."""
        return b"".join(map(self._filter_action, self._inward.cut_messages(data)))

    def _filter_action(self, action: frames.Message) -> bytes:
        if action.kind == frames.DESTROY and not self._rules.is_incarnation_over():
            log.warning("rank %d is not told that its controller goes: it would never beat for another", self._rank)
            return b""
        if refusal := self._margin.refusal_of_lock(action):
            self._outward.insert_message(refusal)
            return b""
        if self._has_done_before(action):
            return b""
        was_known = self._is_known_to_controller()
        self._registrations.note_passed_action(self._rank, self._process, self._controller, action)
        if self._is_known_to_controller() and not was_known:
            self._rules.note_link_change(self._rank)
        return action.content

    def _has_done_before(self, action: frames.Message) -> bool:
        """Whether the rank has done this for the controller before; then the gate replies."""
        kept = self._registrations.registration_of(self._rank, self._process)
        if kept is None or not kept.has_done_action(action.kind, repairs=self._rules.is_already_repaired()):
            return False
        heartbeat = kept.heartbeat[frames.HEADER.size :]
        self._outward.insert_message(
            reply_to_action(action.kind, frames.serial_of_action(action), 0, self._rank, heartbeat)
        )
        log.info("rank %d has done action %d for the controller before: answered here", self._rank, action.kind)
        return True

    def _is_known_to_controller(self) -> bool:
        kept = self._registrations.registration_of(self._rank, self._process)
        return kept is not None and kept.controller == self._controller
