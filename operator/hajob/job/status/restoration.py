"""Where the state after an outage came from, and what that cost: the account of one incident.

The planner decides where it should come from (`Incident.restored_from`); this module records what really happened,
from the coordinator's milestones and from the agent's findings in the checkpoint directory (docs/checkpoints.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hajob.api import status as api
from hajob.domain.actions import Action
from hajob.domain.checkpoints import MOST_REFUSALS, CheckpointRefusal
from hajob.domain.incidents import Incident, RestoredFrom
from hajob.domain.layout import Layout

IN_PLACE: Final = frozenset({Action.RETRY, Action.IN_PLACE, Action.REPLACE})
SHOWN_RANKS: Final = 16


@dataclass(frozen=True, slots=True)
class Loaded:
    """What an attempt was given to load: its step (-1: nothing), refused checkpoints, or why it is unknown."""

    step: int
    refused: tuple[CheckpointRefusal, ...] = ()
    num_refused: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Restoration:
    """What is known of the source so far; -1: unknown.

    Attributes:
        before: the last step that all ranks had finished when the outage began.
        told: the coordinator has reported `before`; otherwise it was known when the restart was decided.
        tracked: step of the newest complete checkpoint while the training stood.
        loaded_step: step of the checkpoint that was loaded.
        from_nothing: the training started from step 0.
        refused: checkpoints that were not loaded, bounded.
        num_refused: number of all refused checkpoints.
    """

    before: int = -1
    told: bool = False
    tracked: int = -1
    loaded_step: int = -1
    from_nothing: bool = False
    refused: tuple[CheckpointRefusal, ...] = ()
    num_refused: int = 0

    @property
    def lost_steps(self) -> int:
        """Finished steps that were done again."""
        went_back = self.loaded_step >= 0 or self.from_nothing
        return max(0, self.before - max(self.loaded_step, 0)) if went_back and self.before >= 0 else 0

    def stood_at(self, step: int) -> Restoration:
        """Note the last common step from the coordinator; the first report of an incident counts. -1: not reported."""
        return self if self.told or step < 0 else replace(self, before=step, told=True)

    def began(self, incident: Incident, newest_step: int) -> Restoration:
        """Note the step at which the whole job is restarted, as far as it is known.

        No rank ends a step that another has not begun to end, so all have finished the one before the newest. The
        fact's step is that of its rank, and may come from a heartbeat two seconds old.
        """
        if self.before >= 0 or incident.action is not Action.RESTART:
            return self
        told = incident.cause.step
        return replace(self, before=min(newest_step, max(told, newest_step - 1)) if newest_step >= 0 else told)

    def finds(self, step: int | None) -> Restoration:
        """Note the newest complete checkpoint while no rank trains; None: unknown."""
        return self if step is None else replace(self, tracked=step)

    def loaded(self, found: Loaded) -> Restoration:
        """Note what the attempt that ends the incident loads."""
        refused = found.refused[:MOST_REFUSALS]
        return replace(
            self,
            loaded_step=found.step,
            from_nothing=found.step < 0,
            refused=refused,
            num_refused=found.num_refused,
        )

    def resumed(self, incident: Incident, step: int) -> Restoration:
        """Infer from the first step after the outage whether processes that lived on loaded a checkpoint.

        A heartbeat may report a later step than the first: a planned repair is therefore from the
        checkpoint that was there.
        """
        if incident.action not in IN_PLACE or step < 1:
            return self
        went_back = 0 < self.before >= step
        planned = incident.restored_from is RestoredFrom.PERIODIC_CHECKPOINT
        if planned and 0 <= self.tracked < step:
            return replace(self, loaded_step=self.tracked)
        return replace(self, loaded_step=step - 1) if went_back or planned else self

    def source(self, incident: Incident) -> RestoredFrom | None:
        """Return where the lost state really came from."""
        planned = incident.restored_from
        if self.from_nothing:
            return RestoredFrom.NOWHERE if self.before >= 0 else None  # a job that never trained has lost nothing
        if self.loaded_step < 0:
            return planned
        saved = planned is RestoredFrom.SAVED_CHECKPOINT and self.loaded_step >= self.before
        return RestoredFrom.SAVED_CHECKPOINT if saved else RestoredFrom.PERIODIC_CHECKPOINT


def sources(layout: Layout, incident: Incident, source: RestoredFrom | None) -> tuple[api.StateSource, ...]:
    """Return where each rank's state came from, as the status shows it: bounded, whatever the size of the job.

    Only the lost ranks load from an optimizer copy, each from the first holder that was not lost. A checkpoint is
    loaded by every rank.
    """
    if source is None:
        return ()
    if source is not RestoredFrom.OPTIMIZER_COPY:
        shown = range(min(layout.world_size, SHOWN_RANKS))
        return (_state_source(source, layout.world_size, [api.RankSource(rank=rank) for rank in shown]),)
    lost = incident.lost_ranks
    left = layout.world_size - len(lost)
    if incident.action is Action.SHRINK:
        return (_state_source(RestoredFrom.LIVE_RANK, left, []),)
    found = [_state_source(source, len(lost), [_given(layout, rank, lost) for rank in lost[:SHOWN_RANKS]])]
    if left:
        found.append(_state_source(RestoredFrom.LIVE_RANK, left, []))
    return tuple(found) if lost else ()


def _state_source(source: RestoredFrom, number: int, ranks: Sequence[api.RankSource]) -> api.StateSource:
    return api.StateSource(name=source, num_ranks=number, first_ranks=tuple(ranks))


def _given(layout: Layout, rank: int, lost: Sequence[int]) -> api.RankSource:
    gone = set(lost)
    giver = next((other for other in layout.holders_of_shard(rank) if other not in gone), None)
    return api.RankSource(rank=rank, giver=giver)
