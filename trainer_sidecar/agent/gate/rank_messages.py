"""What a rank says on its link to MindIO: cut into messages, read, and missed when it stops.

Whatever goes wrong with reading, the bytes pass. docs/protocols/launcher.md#the-gate
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from trainer_sidecar.agent.clock import SECOND
from trainer_sidecar.agent.gate import frames
from trainer_sidecar.agent.gate.passage import Passage

# MindIO misses the heartbeats of a rank after 8 to 12 s: no earlier alarm than its own, and hardly a later one.
SILENT_SECONDS = 8
# Before its first heartbeat a rank registers, and a controller answers thousands of ranks one after the other.
NEVER_SPOKE_SECONDS = 30

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LinkedRank:
    """Whose link it is. The process is named once it is known; a link may be there before the launcher tells of it."""

    rank: int
    process: str


class RankMessages:
    """One link's messages."""

    def __init__(self, whose: LinkedRank, passage: Passage) -> None:
        self._whose, self._passage = whose, passage
        self._frames = frames.FrameReader()
        self._registered = self._told_copies = False
        self._beats = False
        self._spoke = 0  # when it last said something, or could not
        self._is_missed = False

    @property
    def is_unreadable(self) -> bool:
        """Whether its bytes don't look like messages any more."""
        return self._frames.lost

    @property
    def is_at_boundary(self) -> bool:
        """Whether the next byte begins a message."""
        return self._frames.is_at_boundary

    def begin_watching_silence(self) -> None:
        """Start to watch for the rank's silence: the controller can hear it from now on."""
        self._spoke = self._passage.clock.now()

    def cut_pieces(self, data: bytes) -> Iterable[frames.Piece]:
        """Split these bytes into messages."""
        was_lost = self._frames.lost
        try:
            pieces = self._frames.cut_pieces(data)
        except Exception:
            log.exception("the messages of rank %s cannot be read", self._whose.rank)
            self._frames.lost = True
            pieces = [frames.Piece(data)]
        if self._frames.lost and not was_lost:
            self._passage.count_unreadable(self._whose.rank, "its bytes do not look like MindIO's messages")
        return pieces

    def apply_message(self, message: frames.Message) -> None:
        """Tell the rules what a message says of the rank."""
        rank = self._whose.rank
        if message.kind == frames.REGISTER:
            self._registered = True
        elif message.kind == frames.COPIES:
            self._told_copies = True
        if message.kind not in frames.STATUS_OFFSETS:
            return
        status = message.rank_status()
        if status is None or status.rank != rank:
            self._passage.count_unreadable(rank, f"a message of type {message.kind} has another size or rank")
            return
        is_beat = message.kind == frames.HEARTBEAT
        self._beats = self._beats or is_beat
        self._spoke, self._is_missed = self._passage.clock.now(), False
        self._passage.rules.apply_heartbeat(rank, status.step, asked=not is_beat)
        if self._registered:
            self._passage.rules.note_optimizer_copies(rank, told=self._told_copies)

    def check_silence(self, now: int, *, could_speak: bool) -> None:
        """Report the rank when it could speak, and has not for 8 s (30 s when it never has)."""
        if self.is_unreadable:
            return
        if not could_speak:
            self._spoke = now
            return
        limit = (SILENT_SECONDS if self._beats else NEVER_SPOKE_SECONDS) * SECOND
        if now - self._spoke > limit and not self._is_missed:
            self._is_missed = True
            self._passage.rules.report_silent_rank(self._whose.rank, self._spoke)
