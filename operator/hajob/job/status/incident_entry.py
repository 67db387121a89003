"""The record of one incident, written while it lasts, and the entry of the status built from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from hajob.api import status as api
from hajob.domain import incident_words
from hajob.domain.actions import FAULT_ACTIONS
from hajob.domain.incidents import Incident, IncidentOutcome
from hajob.domain.layout import Layout
from hajob.domain.timeline import Mark, outage_milliseconds, phases_of_incident
from hajob.job.status.restoration import Restoration, sources
from hajob.sources.pod import PodView

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

    def at(self, mark: Mark, time_ms: int) -> Record:
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


def entry(
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
    restored = restoration.source(incident)
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
        restored_from=restored if restored in api.SOURCES_OF_LOST_STATE else None,
        loaded_step=restoration.loaded_step if restoration.loaded_step >= 0 else None,
        state_sources=sources(layout, incident, restored),
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
