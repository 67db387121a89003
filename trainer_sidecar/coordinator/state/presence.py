"""Whether the operator is there: while it is, it decides, and the coordinator only obeys."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class OperatorPresence:
    """Whether a leader has its stream open, and since when it is so. Only the events of the stream change it.

    Attributes:
        fence: highest of all leaders so far; agents refuse a coordinator with a lower one than they have met.
    """

    since: float
    here: bool = False
    fence: int = 0

    def note_operator(self, fence: int, now: float) -> None:
        """Note that a leader has opened its stream, perhaps in place of another one."""
        self.here, self.since, self.fence = True, now, max(self.fence, fence)

    def note_operator_left(self, now: float) -> None:
        """Note that the stream of the leader is over."""
        self.here, self.since = False, now

    def away_seconds(self, now: float) -> float:
        """Return for how long no leader has been there; 0 while one is."""
        return 0.0 if self.here else now - self.since
