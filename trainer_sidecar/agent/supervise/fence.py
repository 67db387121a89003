"""When this pod ends its ranks by itself: after `fence_after` without a coordinator's message or a sign of a rank.

A rank that trains, saves or waits for the others has a heartbeat every 2 s, even without coordinator or controller.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from trainer_sidecar.agent.clock import SECOND
from trainer_sidecar.agent.supervise.ranks import RankProcess
from trainer_sidecar.launcher.protocol import ProcessName

log = logging.getLogger(__name__)


class Fence:
    """The last signs of coordinator and ranks, and the ended processes. Times are nanoseconds of the agent's clock."""

    def __init__(self, after_seconds: int, now: int) -> None:
        self._after_seconds = after_seconds
        self._last_word = now
        self._last_sign = 0
        self._ended: set[tuple[int, ProcessName]] = set()

    def note_coordinator_message(self, now: int) -> None:
        """Note a message of a coordinator."""
        self._last_word = now

    def note_rank_sign(self, time: int) -> None:
        """Note a sign of a rank: a heartbeat, a finished step."""
        self._last_sign = max(self._last_sign, time)

    def has_ended_process(self, process: RankProcess) -> bool:
        """Return whether the fence ended this process."""
        return (process.rank, process.name) in self._ended

    def processes_to_end(self, now: int, running: Iterable[RankProcess]) -> list[RankProcess]:
        """Return the running processes to end now, each once."""
        if now - max(self._last_word, self._last_sign) <= self._after_seconds * SECOND:
            return []
        ended = [process for process in running if not self.has_ended_process(process)]
        for process in ended:
            text = "rank %d is ended: no coordinator, no heartbeat and no step for %d s"
            log.error(text, process.rank, self._after_seconds)
            self._ended.add((process.rank, process.name))
        return ended
