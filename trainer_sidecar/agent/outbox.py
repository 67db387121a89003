"""What the coordinator still has to hear: numbered, repeated until acknowledged.

Facts and steps are kept until a report that carried them is acknowledged, and all of them go out again on a new
stream. The same observation has the same id, so hearing it twice does no harm. An urgent thing (an exit, a link) is
due at once; steps may wait a little for each other, since each carries its age.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from trainer_sidecar.agent.clock import MILLISECOND, SECOND
from trainer_sidecar.protocol import sidecar_pb2 as pb

STEP_DELAY = 50 * MILLISECOND
REPEAT_AFTER = 2 * SECOND
KEPT_STEPS = 512


@dataclass
class _Kept:
    """A fact or a finished step, when it happened and in which report it last went out (0: in none)."""

    message: pb.Fact | pb.StepFinished
    time: int
    sequence: int = 0
    sent: int = 0


class Outbox:
    """Collects what happened and says when the next report is due. Times are nanoseconds of the agent's clock."""

    def __init__(self) -> None:
        self._kept: list[_Kept] = []
        self._known_ids: set[str] = set()
        self._sequence = 0
        self._due: int | None = None
        self._acknowledged = asyncio.Event()

    def add_fact(self, fact: pb.Fact, time: int, now: int) -> bool:
        """Report a fact at once; False: this observation was reported before."""
        if fact.id in self._known_ids:
            return False
        self._known_ids.add(fact.id)
        self._kept.append(_Kept(fact, time))
        self.touch(now)
        return True

    def add_step(self, rank: int, step: int, time: int, now: int) -> None:
        """Report a finished step soon; of those nobody acknowledges the newest are kept."""
        self._kept.append(_Kept(pb.StepFinished(rank=rank, step=step), time))
        steps = [kept for kept in self._kept if isinstance(kept.message, pb.StepFinished)]
        if len(steps) > KEPT_STEPS:
            self._kept.remove(steps[0])
        self._due = min(self._due or now + STEP_DELAY, now + STEP_DELAY)

    def touch(self, now: int) -> None:
        """The state has changed: report it at once."""
        self._due = now

    def begin_stream(self, now: int) -> None:
        """A new stream hears everything that nobody has acknowledged."""
        for kept in self._kept:
            kept.sequence = kept.sent = 0
        self.touch(now)

    def due(self) -> int | None:
        """When the next report should go out, None: nothing to say."""
        repeat = [kept.sent + REPEAT_AFTER for kept in self._kept if kept.sequence]
        times = [*([] if self._due is None else [self._due]), *repeat[:1]]
        return min(times, default=None)

    async def until_empty(self) -> None:
        """Wait until every fact and step was acknowledged and the newest state has gone out."""
        while self._kept or self._due is not None:
            await self._acknowledged.wait()
            self._acknowledged.clear()

    def take(self, now: int, state: pb.AgentReport) -> pb.AgentReport:
        """Complete `state` to the next report: new facts and steps, and those unanswered for 2 s."""
        self._sequence += 1
        self._due = None
        state.sequence = self._sequence
        for kept in self._kept:
            if kept.sequence and now - kept.sent < REPEAT_AFTER:
                continue
            kept.sequence, kept.sent = self._sequence, now
            kept.message.age_nanoseconds = max(0, now - kept.time)
            if isinstance(kept.message, pb.Fact):
                state.facts.append(kept.message)
            else:
                state.steps.append(kept.message)
        return state

    def acknowledge(self, sequence: int) -> None:
        """Every report up to and with this one has been taken in."""
        self._kept = [kept for kept in self._kept if not 0 < kept.sequence <= sequence]
        self._acknowledged.set()

    def pending_ids(self) -> Iterable[str]:
        """The ids of facts that nobody has acknowledged."""
        return [kept.message.id for kept in self._kept if isinstance(kept.message, pb.Fact)]
