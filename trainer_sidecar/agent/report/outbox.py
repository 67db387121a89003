"""Reports that the coordinator has not acknowledged: numbered, and repeated until it does.

Facts and steps are kept until a report that carried them is acknowledged, and all of them are sent again on a new
stream. The same observation has the same id, so a repetition does no harm. Everything is due at once: the launcher has
already gathered the steps that may wait. Steps known only from MindIO's heartbeats are late anyway: the newest of each
rank goes with another report, or once a second with a heartbeat to the coordinator.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.clock import SECOND
from trainer_sidecar.known_ids import KnownIds

# Longer than any acknowledgement takes that is still to come: repeating earlier would only load a coordinator that is
# late for having much to do.
REPEAT_AFTER = 2 * SECOND
# Only the newest steps matter to an account of an outage; older ones may be dropped while no coordinator is there.
KEPT_STEPS = 512
RIDES_EVERY = SECOND
GATHERED = SECOND // 50
"""So long an answer whose step is known waits for others. A recovery has some ten of each rank (MindIO asks how far it
is, and tries up to three times to lock its step); a report for each was half of all that the coordinator did then."""


@dataclass
class _Kept:
    """A fact or a finished step, when it happened and in which report it last went out (0: in none)."""

    message: pb.Fact | pb.StepFinished
    time: int
    sequence: int = 0
    sent: int = 0


class Outbox:
    """Collector of events that knows when the next report is due. Times are nanoseconds of the agent's clock."""

    def __init__(self) -> None:
        self._facts: list[_Kept] = []
        self._steps: deque[_Kept] = deque(maxlen=KEPT_STEPS)
        self._beats: dict[int, _Kept] = {}  # by rank
        self._rode = 0
        self._known = KnownIds()
        self._sequence = 0
        self._due: int | None = None
        self._acknowledged = asyncio.Event()

    def add_fact(self, fact: pb.Fact, time: int, now: int) -> bool:
        """Report a fact at once; False: this observation was reported before."""
        if not self._known.is_new_id(fact.id):
            return False
        self._facts.append(_Kept(fact, time))
        self.report_state_at_once(now)
        return True

    def add_step(self, rank: int, step: int, time: int, now: int) -> None:
        """Report a finished step; of unacknowledged ones the newest are kept."""
        self._steps.append(_Kept(pb.StepFinished(rank=rank, step=step), time))
        self.report_state_at_once(now)

    def add_heartbeat(self, rank: int, step: int, time: int, *, due: int | None) -> None:
        """Add the step of a rank's MindIO heartbeat; `due`: when it is reported at the latest, None: with another."""
        self._beats[rank] = _Kept(pb.StepFinished(rank=rank, step=step, heartbeat=True), time)
        if due is not None:
            self._due = due if self._due is None else min(self._due, due)

    def has_steps_for_heartbeat(self, now: int) -> bool:
        """Return whether a heartbeat to the coordinator should carry the waiting steps."""
        return now - self._rode >= RIDES_EVERY and any(not kept.sequence for kept in self._beats.values())

    def report_state_at_once(self, now: int) -> None:
        """Report a changed state at once."""
        self._due = now

    def begin_stream(self, now: int) -> None:
        """Send all unacknowledged items on a new stream."""
        for kept in (*self._facts, *self._steps, *self._beats.values()):
            kept.sequence = kept.sent = 0
        self.report_state_at_once(now)

    def next_report_time(self) -> int | None:
        """Return when the next report is due, None: nothing to report."""
        if self._due is not None:
            return self._due
        sent = [kept.sent for kept in self._facts if kept.sequence]
        if self._steps:  # the oldest went out first
            sent.append(self._steps[0].sent)
        return min(sent) + REPEAT_AFTER if sent else None

    async def wait_until_empty(self) -> None:
        """Wait until every fact and step was acknowledged and the newest state has gone out."""
        while self._facts or self._steps or self._due is not None:
            await self._acknowledged.wait()
            self._acknowledged.clear()

    def take_report(self, now: int, state: pb.AgentReport) -> pb.AgentReport:
        """Complete `state` to the next report: new facts and steps, and those unanswered for 2 s."""
        self._sequence += 1
        self._due = None
        state.sequence = self._sequence
        self._rode = now
        for kept in (*self._facts, *self._steps, *self._beats.values()):
            if kept.sequence and now - kept.sent < REPEAT_AFTER:
                continue
            kept.sequence, kept.sent = self._sequence, now
            kept.message.age_nanoseconds = max(0, now - kept.time)
            if isinstance(kept.message, pb.Fact):
                state.facts.append(kept.message)
            else:
                state.steps.append(kept.message)
        return state

    def acknowledge_reports(self, sequence: int) -> None:
        """Take the acknowledgement of every report up to this one."""
        self._facts = [kept for kept in self._facts if not 0 < kept.sequence <= sequence]
        left = (kept for kept in self._steps if not 0 < kept.sequence <= sequence)
        self._steps = deque(left, maxlen=KEPT_STEPS)
        self._beats = {rank: kept for rank, kept in self._beats.items() if not 0 < kept.sequence <= sequence}
        self._acknowledged.set()
