"""The record of one incident, written while it lasts, and the entry of the status built from it.

The planner decides where the state after an outage should come from (`Incident.restored_from`). The record holds what
really happened and what that cost, from the coordinator's milestones and from the agent's findings in the checkpoint
directory (docs/user/checkpoints.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from hajob.api import status as api
from hajob.domain import incident_words
from hajob.domain.actions import FAULT_ACTIONS, Action
from hajob.domain.checkpoints import MOST_REFUSALS, CheckpointRefusal
from hajob.domain.incidents import Incident, IncidentOutcome, RestoredFrom
from hajob.domain.layout import Layout
from hajob.domain.timeline import Mark, outage_milliseconds, phases_of_incident
from hajob.sources.pod import PodView

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

    def with_last_step(self, step: int) -> Restoration:
        """Note the last common step from the coordinator; the first report of an incident counts. -1: not reported."""
        return self if self.told or step < 0 else replace(self, before=step, told=True)

    def with_restart_step(self, incident: Incident, newest_step: int) -> Restoration:
        """Note the step at which the whole job is restarted, as far as it is known.

        No rank ends a step that another has not begun to end, so all have finished the one before the newest. The
        fact's step is that of its rank, and may come from a heartbeat two seconds old.
        """
        if self.before >= 0 or incident.action is not Action.RESTART:
            return self
        told = incident.cause.step
        return replace(self, before=min(newest_step, max(told, newest_step - 1)) if newest_step >= 0 else told)

    def with_found_checkpoint(self, step: int | None) -> Restoration:
        """Note the newest complete checkpoint while no rank trains; None: unknown."""
        return self if step is None else replace(self, tracked=step)

    def with_loaded(self, found: Loaded) -> Restoration:
        """Note what the attempt that ends the incident loads."""
        refused = found.refused[:MOST_REFUSALS]
        return replace(
            self,
            loaded_step=found.step,
            from_nothing=found.step < 0,
            refused=refused,
            num_refused=found.num_refused,
        )

    def with_first_step(self, incident: Incident, step: int) -> Restoration:
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

    def source_of_state(self, incident: Incident) -> RestoredFrom | None:
        """Return where the lost state really came from."""
        planned = incident.restored_from
        if self.from_nothing:
            return RestoredFrom.NOWHERE if self.before >= 0 else None  # a job that never trained has lost nothing
        if self.loaded_step < 0:
            return planned
        saved = planned is RestoredFrom.SAVED_CHECKPOINT and self.loaded_step >= self.before
        return RestoredFrom.SAVED_CHECKPOINT if saved else RestoredFrom.PERIODIC_CHECKPOINT


def sources_of_ranks(layout: Layout, incident: Incident, source: RestoredFrom | None) -> tuple[api.StateSource, ...]:
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
    found = [_state_source(source, len(lost), [_rank_source_of(layout, rank, lost) for rank in lost[:SHOWN_RANKS]])]
    if left:
        found.append(_state_source(RestoredFrom.LIVE_RANK, left, []))
    return tuple(found) if lost else ()


def _state_source(source: RestoredFrom, number: int, ranks: Sequence[api.RankSource]) -> api.StateSource:
    return api.StateSource(name=source, num_ranks=number, first_ranks=tuple(ranks))


def _rank_source_of(layout: Layout, rank: int, lost: Sequence[int]) -> api.RankSource:
    gone = set(lost)
    giver = next((other for other in layout.holders_of_shard(rank) if other not in gone), None)
    return api.RankSource(rank=rank, giver=giver)


MOST_NODES: Final = 8
"""Nodes that an entry names; where more are lost at once, the whole job starts again."""
LATEST_COUNTS: Final = frozenset({Mark.STARTED, Mark.READY, Mark.NAMED, Mark.RESUMED})
"""Marks whose latest time counts, as a widened incident reaches them again; of the others the first one counts."""


@dataclass(frozen=True, slots=True)
class Record:
    """Record of one incident while it lasts."""

    incident: Incident
    marks: Mapping[Mark, int] = field(default_factory=dict)
    outcome: IncidentOutcome = IncidentOutcome.OPEN
    restoration: Restoration = field(default_factory=Restoration)

    def with_mark(self, mark: Mark, time_ms: int) -> Record:
        """Return the record with a mark added."""
        if mark in self.marks and mark not in LATEST_COUNTS:
            return self
        return replace(self, marks={**self.marks, mark: time_ms})


@dataclass(frozen=True, slots=True)
class Places:
    """Names of the nodes that the pods of an incident left, and of those that they went to."""

    left: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()


NOWHERE: Final = Places()


def nodes_of_incident(incident: Incident, pods: Iterable[PodView], before: api.IncidentEntry | None) -> Places:
    """Return the nodes of an incident's pods; those that were told before count on, as their pods may be gone.

    Args:
        incident: whose pods were replaced or moved.
        pods: of the job, as they are now.
        before: the entry that the status has; of an incident that is over it counts.
    """
    # Its pods go on living after an incident, and may move again: what was told at its end stays.
    if before is not None and before.outcome is not IncidentOutcome.OPEN:
        return Places(before.from_nodes, before.to_nodes)
    moved = set(incident.replaced_nodes)
    of_it = [pod for pod in pods if pod.is_rank_pod and pod.node_rank in moved and pod.node_name]
    known = before.from_nodes if before is not None else ()
    cause = (incident.cause.node_name,) if moved and incident.cause.node_name else ()
    left = (*known, *cause, *(pod.node_name for pod in of_it if pod.incarnation < incident.number))
    taken = (pod.node_name for pod in of_it if pod.incarnation >= incident.number)
    return Places(tuple(dict.fromkeys(left))[:MOST_NODES], tuple(dict.fromkeys(taken))[:MOST_NODES])


def build_entry(
    record: Record, layout: Layout, found: Places = NOWHERE, before: api.IncidentEntry | None = None, now_ms: int = 0
) -> api.IncidentEntry:
    """Build the entry of status.incidents, of a job of this layout.

    Args:
        record: of the incident.
        layout: of the job.
        found: nodes of its pods.
        before: the entry that the status has; None: it has none.
        now_ms: milliseconds since 1970.
    """
    incident = record.incident
    start = min(record.marks.values(), default=incident.opened_ms)
    restoration = record.restoration
    restored = restoration.source_of_state(incident)
    step = restoration.before if restoration.before >= 0 else incident.cause.step
    outage = outage_milliseconds(record.marks)
    return api.IncidentEntry(
        incarnation=incident.number,
        start_time=datetime.fromtimestamp(start / 1000, UTC),
        end_time=_end_of_incident(record, before, now_ms),
        message=incident_words.whole_sentence(incident, record.outcome, outage, restoration.lost_steps),
        step=step if step >= 0 else None,
        from_nodes=found.left,
        to_nodes=found.taken,
        cause=api.CauseEntry(
            source=incident.cause.source.value,
            code=incident.cause.code[:64],
            node_name=incident.cause.node_name,
            first_rank=incident.cause.first_rank,
            num_ranks=incident.cause.num_ranks,
            message=incident.cause.message,
        ),
        action=incident.action,
        escalated_from=tuple(action for action in incident.escalated_from if action in FAULT_ACTIONS)[:6],
        refused=tuple(api.RefusedActionEntry(action=one.action, unmet=one.unmet) for one in incident.refused),
        outcome=record.outcome,
        phases=tuple(
            api.PhaseEntry(name=phase.name, milliseconds=phase.milliseconds)
            for phase in phases_of_incident(record.marks)
        ),
        lost_steps=restoration.lost_steps,
        restarts=incident.restarts or None,
        restored_from=restored if restored in api.SOURCES_OF_LOST_STATE else None,
        loaded_step=restoration.loaded_step if restoration.loaded_step >= 0 else None,
        state_sources=sources_of_ranks(layout, incident, restored),
        refused_checkpoints=tuple(
            api.RefusedCheckpoint(name=one.name[:128], reason=one.reason[:64], message=one.refusal_message[:512])
            for one in restoration.refused
        ),
    )


def _end_of_incident(record: Record, before: api.IncidentEntry | None, now_ms: int) -> datetime | None:
    """Return when an incident ended: with the first step after it, else when it is first seen to be over."""
    if record.outcome is IncidentOutcome.OPEN:
        return None
    if record.outcome is IncidentOutcome.RECOVERED and Mark.RESUMED in record.marks:
        return datetime.fromtimestamp(record.marks[Mark.RESUMED] / 1000, UTC)
    known = before.end_time if before is not None else None
    return known or datetime.fromtimestamp(now_ms / 1000, UTC)
