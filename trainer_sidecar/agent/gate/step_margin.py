"""Time for MindIO to stop the ranks for a move: it is told that they are some steps further than they are.

For a move MindIO asks every rank how far it is, has them stop one step later, and fails for good where they have passed
that step by the time it says so (docs/protocols/mindio.md §7.7). It goes by the furthest rank, so the steps that are
added here are steps that the ranks still make. What MindIO does after a fault begins with the same question, and then
locks the step, which nobody would reach: such a lock is refused with the truth, as a rank does that has run past it,
and MindIO locks again. docs/protocols/launcher.md#steps-ahead
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from trainer_sidecar.agent.gate import frames
from trainer_sidecar.agent.gate.dead_rank_replies import reply_to_action
from trainer_sidecar.agent.gate.frames import Message, Piece

ELSEWHERE: Final = 5
"""The result of an answer: the rank is at another step than it is to be locked at."""
STEP_AT: Final = frames.HEADER.size + frames.STATUS_OFFSETS[frames.COLLECTED] + frames.STEP_OFFSET

log = logging.getLogger(__name__)


class StepMargin:
    """The steps that one rank's link has told the controller beyond those that the rank has made."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._truth = b""  # the heartbeat of the rank's answer, where the controller was told another step

    def with_steps_ahead(self, piece: Piece, steps_ahead: int) -> Piece:
        """Return a piece of what the rank says, with another step where it answers how far it is."""
        message = piece.message
        if message is None or message.kind != frames.COLLECTED:
            return piece
        self._truth = b""
        status, is_whole = message.rank_status(), piece.begins and len(piece.data) == len(message.content)
        if not steps_ahead or not is_whole or status is None or status.step is None or not status.is_well:
            return piece
        self._truth = message.heartbeat_bytes()
        said = bytearray(piece.data)
        frames.STEP.pack_into(said, STEP_AT, status.step + steps_ahead)
        log.info("rank %d is at step %d; MindIO is told %d more", self._rank, status.step, steps_ahead)
        return replace(piece, data=bytes(said))

    def refusal_of_lock(self, action: Message) -> bytes:
        """Return the answer to a lock at a step that the rank was never near; empty: the rank gets the action."""
        if action.kind not in (frames.LOCK, frames.PAUSE):
            return b""
        truth, self._truth = self._truth, b""
        if not truth or action.kind != frames.LOCK:
            return b""
        log.warning("rank %d is to be locked at a step that MindIO was told for a move: it hears the truth", self._rank)
        return reply_to_action(action.kind, frames.serial_of_action(action), ELSEWHERE, self._rank, truth)
