"""What the controller knows of each rank, and the one rule by which a rank is bad (docs/protocols/mindio.md §3)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import _settings as settings
from ._names import FAULT_OF_STATE, FaultType, ReportState, Status
from ._wire import Heartbeat

if TYPE_CHECKING:
    from ._server import Link


@dataclass
class Rank:
    """One rank; times are seconds of the monotonic clock."""

    number: int
    registered: bool = False
    status: Status = Status.NORMAL
    state: ReportState = ReportState.RS_NORMAL
    step: int = 0
    backup_step: int = -1
    updating: bool = False
    copying: bool = False
    available: bool = False
    code: str = ""
    last_beat: float = field(default_factory=time.monotonic)
    link: Link | None = None
    low: bool = False

    def silent(self, now: float) -> bool:
        """Whether the last heartbeat is too old."""
        return settings.on("silence_rule") and now - self.last_beat >= settings.SILENCE_SECONDS

    def fault(self, now: float) -> FaultType | None:
        """Why the rank is bad, or None; ranks that wait for their repair are not asked."""
        if not self.registered:
            return None if settings.on("missing_invisible") else FaultType.PROCESS
        if self.status in {Status.ISOLATED, Status.INITIALISED, Status.READY, Status.GONE}:
            return None
        reported = FAULT_OF_STATE.get(self.state)
        if reported is not None:
            return reported
        return FaultType.PROCESS if self.silent(now) else None

    def take(self, beat: Heartbeat) -> None:
        """Take in a rank's own account."""
        self.last_beat = time.monotonic()
        self.step, self.backup_step = beat.step, beat.backup_step
        self.updating, self.copying = beat.updating, beat.copying
        self.available = beat.state is not ReportState.RS_UCE_CORRUPTED
        self.state, self.code, self.low = beat.state, beat.code, beat.low
        if self.state is ReportState.RS_PREREPAIR_FINISH:
            self.status = Status.READY
        elif self.state is ReportState.RS_INIT_FINISH:
            self.status = Status.INITIALISED
        elif self.state is ReportState.RS_STEP_FINISH and self.status is Status.NORMAL:
            self.status = Status.STEP_FINISH

    def renew(self, *, isolated: bool) -> None:
        """A new process stands for this rank."""
        self.registered, self.state, self.code = True, ReportState.RS_NORMAL, ""
        self.last_beat = time.monotonic()
        self.updating = self.copying = self.available = self.low = False
        self.status = Status.ISOLATED if isolated else Status.NORMAL
