"""Detects a leader that is cut off: are the coordinators silent, or does this process receive nothing?

Checked twice a second. While this process is the suspect, silence leads to nothing, and once that has lasted a while
the Lease is offered to a standby that reaches the coordinators (docs/decisions/0021-an-operator-cut-off.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from hajob import metrics
from hajob.clock import Clock
from hajob.leader.reachability import Reach, Suspicion

log = logging.getLogger(__name__)

# A coordinator counts as silent after 2.5 s (coordinator_link/channel.py); a few looks fit in between.
LOOK_SECONDS: Final = 0.5


class PartitionDetector:
    """The periodic check.

    Args:
        clock: its monotonic side counts.
        count: how many coordinators should answer, and how many do not.
        tell: called with why this operator is the suspect, once that has lasted; empty when it no longer is.
    """

    def __init__(self, clock: Clock, count: Callable[[], Reach], tell: Callable[[str], None]) -> None:
        self._clock, self._count, self._tell = clock, count, tell
        self._suspicion = Suspicion()
        self.offers = ""
        """Why somebody else should lead; empty while that is not so."""

    @property
    def why_cut_off(self) -> str:
        """Return why it is the suspect, from the first moment on; empty while it is not."""
        return self._suspicion.why_suspect

    async def check_for_ever(self) -> None:
        """Check until cancelled."""
        while True:
            self.check_once()
            await self._clock.sleep(LOOK_SECONDS)

    def check_once(self) -> None:
        """Check once."""
        before, now = self.why_cut_off, self._clock.monotonic()
        self._suspicion.update_suspicion(self._count(), now)
        if before and not self.why_cut_off:
            self._report_suspicion("", "enough coordinators are reached: this operator is not cut off")
        elif self._suspicion.has_lasted(now) and not self.offers:
            self._report_suspicion(self.why_cut_off, self.why_cut_off)

    def _report_suspicion(self, offers: str, words: str) -> None:
        if offers or self.offers:
            log.warning(words)
        self.offers = offers
        metrics.CUT_OFF.set(1 if offers else 0)
        self._tell(offers)
