"""The record of one incident, written while it lasts, and the entry of the status built from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from hajob.api import status as api
from hajob.domain.actions import FAULT_ACTIONS
from hajob.domain.incidents import Incident, IncidentOutcome
from hajob.domain.layout import Layout
from hajob.domain.timeline import Mark, phases
from hajob.job.status.restoration import Restoration, sources

LATEST_COUNTS: Final = frozenset({Mark.STARTED, Mark.READY, Mark.NAMED, Mark.RESUMED})
"""Marks whose latest time counts, as a widened incident reaches them again; of the others the first one counts."""


@dataclass(frozen=True, slots=True)
class Record:
    """Record of one incident while it lasts."""

    incident: Incident
    marks: Mapping[Mark, int] = field(default_factory=dict)
    outcome: IncidentOutcome = IncidentOutcome.OPEN
    restoration: Restoration = field(default_factory=Restoration)

    def at(self, mark: Mark, time_ms: int) -> Record:
        """Return the record with a mark added."""
        if mark in self.marks and mark not in LATEST_COUNTS:
            return self
        return replace(self, marks={**self.marks, mark: time_ms})


def entry(record: Record, layout: Layout) -> api.IncidentEntry:
    """Build the entry of status.incidents, of a job of this layout."""
    incident = record.incident
    start = min(record.marks.values(), default=incident.opened_ms)
    restoration = record.restoration
    restored = restoration.source(incident)
    return api.IncidentEntry(
        incarnation=incident.number,
        start_time=datetime.fromtimestamp(start / 1000, UTC),
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
            api.PhaseEntry(name=phase.name, milliseconds=phase.milliseconds) for phase in phases(record.marks)
        ),
        lost_steps=restoration.lost_steps,
        restored_from=restored if restored in api.SOURCES_OF_LOST_STATE else None,
        loaded_step=restoration.loaded_step if restoration.loaded_step >= 0 else None,
        state_sources=sources(layout, incident, restored),
        refused_checkpoints=tuple(
            api.RefusedCheckpoint(name=one.name[:128], reason=one.reason[:64], message=one.message[:512])
            for one in restoration.refused
        ),
    )
