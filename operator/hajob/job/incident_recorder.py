"""Records a job's incidents while they happen: marks, the newest state, how each was closed.

It decides nothing. The planner opens and closes incidents; this module records when things happened, so that the
status can show phases that add up, and reports to people in Events and metrics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hajob import metrics
from hajob.api.event_reasons import EventReason
from hajob.domain.actions import Action
from hajob.domain.checkpoints import describe_checkpoints
from hajob.domain.incidents import Incident, IncidentOutcome
from hajob.domain.timeline import Mark, outage_milliseconds
from hajob.job.status import announcements
from hajob.job.status.announcements import Announcement
from hajob.job.status.incidents import Loaded, Record, Restoration
from hajob.plan import effects, events


def begin_counting_incidents() -> None:
    """Begin every counter of incidents at 0: Prometheus counts what is added to one that it has seen before."""
    for action in Action:
        metrics.OUTAGE.labels(action.value)
        for outcome in IncidentOutcome:
            if outcome is not IncidentOutcome.OPEN:
                metrics.INCIDENTS.labels(action.value, outcome.value)


class IncidentRecorder:
    """The record of the newest incident of one job.

    Attributes:
        record: of the newest incident.
        settled: of the one before: its end may not be in the status yet when the newest opens.
    """

    def __init__(self, record: Record | None) -> None:
        self.record = record
        self.settled: Record | None = None
        self._told: list[Announcement] = []
        self._early: dict[Mark, int] = {}
        self._is_opening_told = True
        self._stood_at = -1  # the last common step, reported before its incident was open
        self._repaired = -1  # number of the incident for which MindIO has reported that all ranks are repaired

    @property
    def _is_incident_open(self) -> bool:
        return self.record is not None and self.record.outcome is IncidentOutcome.OPEN

    @property
    def marks_of_open(self) -> Mapping[Mark, int]:
        """Return the marks of the open incident; none while there is none."""
        return self.record.marks if self.record is not None and self._is_incident_open else {}

    def take_announcements(self) -> list[Announcement]:
        """Return what people are to be told since it was asked last."""
        told, self._told = self._told, []
        return told

    def _tell(self, told: Announcement | None) -> None:
        if told is not None:
            self._told.append(told)

    def begin_report(self) -> None:
        """Drop the marks that wait for an incident: they belong to the previous report."""
        self._early, self._stood_at = {}, -1

    def record_mark(self, mark: Mark, time_ms: int, step_before: int = -1) -> None:
        """Record a mark in the open incident; before one is open, keep it for the incident of the same report."""
        if self._is_incident_open and self.record is not None:
            restoration = self.record.restoration.with_last_step(step_before)
            self.record = dataclasses.replace(self.record.with_mark(mark, time_ms), restoration=restoration)
        else:
            self._early[mark] = time_ms
            self._stood_at = max(self._stood_at, step_before)

    def record_loaded_checkpoint(self, found: Loaded) -> None:
        """Record the checkpoint that an attempt's ranks load, or none; reported before their first step."""
        if found.problem:
            self._told.append(Announcement(EventReason.CHECKPOINTS_NOT_VERIFIED, found.problem))
        elif self._is_incident_open and self.record is not None and self.record.incident.action is Action.RESTART:
            restoration = self.record.restoration.with_loaded(found)
            self.record = dataclasses.replace(self.record, restoration=restoration)
        for refusal in found.refused:
            metrics.CHECKPOINTS_REFUSED.labels(refusal.reason).inc()
        if found.refused:
            words = describe_checkpoints(found.refused, found.step)
            self._told.append(Announcement(EventReason.CHECKPOINT_REFUSED, words))

    def _record_found_checkpoint(self, checkpoint_step: int | None) -> None:
        """Record the checkpoints that an agent has found.

        A save in progress at the fault may complete later, while MindIO repairs already. Once MindIO reports the
        result, the ranks train again, and a checkpoint saved from then on is not the one that they have loaded.
        """
        if self.record is not None and self._is_incident_open and self.record.incident.number != self._repaired:
            restoration = self.record.restoration.with_found_checkpoint(checkpoint_step)
            self.record = dataclasses.replace(self.record, restoration=restoration)

    def _record_resumption(self, event: events.JobEvent) -> None:
        """Compute from the first step how far the training went back."""
        record = self.record
        if not isinstance(event, events.Resumed) or record is None or not self._is_incident_open:
            return
        if event.incarnation >= record.incident.number:
            restoration = record.restoration.with_first_step(record.incident, event.step)
            self.record = dataclasses.replace(record, restoration=restoration)

    def record_incident(
        self,
        incident: Incident | None,
        event: events.JobEvent,
        newest_step: int = -1,
        checkpoint_step: int | None = None,
        *,
        held: bool = False,
    ) -> None:
        """Record the open incident as the planner has left it.

        Args:
            incident: the open one.
            event: that the planner has handled.
            newest_step: the newest that a rank has finished.
            checkpoint_step: of the newest complete periodic checkpoint, None when unknown.
            held: it is held back: its action is not begun, and whoever held it has said what it is.
        """
        self._record_found_checkpoint(checkpoint_step)
        if isinstance(event, events.ResultReported) and not event.code and self.record is not None:
            self._repaired = self.record.incident.number
        self._record_resumption(event)
        if isinstance(event, events.ControllerTakenOver):
            metrics.TAKEOVER.observe(event.duration_ms / 1000)
        if incident is None:
            return
        if self.record is None or self.record.incident.number != incident.number:
            noticed = event.fact.time_ms if isinstance(event, events.FactSeen) else incident.opened_ms
            restoration = Restoration().with_last_step(self._stood_at)
            self.settled = self.record
            self.record = Record(incident, {**self._early, Mark.NOTICED: noticed}, restoration=restoration)
            self._is_opening_told = False
        if not self._is_opening_told and not held:
            self._is_opening_told = True
            self._told.append(announcements.event_of_opening(incident))
        self.record = dataclasses.replace(
            self.record, incident=incident, restoration=self.record.restoration.with_restart_step(incident, newest_step)
        )
        self._record_found_checkpoint(checkpoint_step)

    def record_effect(self, effect: effects.Effect, now_ms: int) -> None:
        """Report an effect of the planner to people, and record its part in an incident."""
        self._tell(announcements.event_of_effect(effect))
        if isinstance(effect, effects.SendOrder):
            self.record_mark(Mark.DECIDED, now_ms)
        elif isinstance(effect, effects.ExplainIncident):
            self._record_explanation(effect)
        elif isinstance(effect, effects.CloseIncident):
            self._record_closing(effect)

    def _record_explanation(self, explained: effects.ExplainIncident) -> None:
        if self.record is not None and self.record.incident.number == explained.number:
            incident = dataclasses.replace(self.record.incident, cause=explained.cause)
            self.record = dataclasses.replace(self.record, incident=incident)

    def _record_closing(self, closed: effects.CloseIncident) -> None:
        if self.settled is not None and self.settled.incident.number == closed.number:
            self.settled = self._closed_record(self.settled, closed)
            return
        if self.record is None or self.record.incident.number != closed.number:
            return
        self.record = self._closed_record(self.record, closed)

    def _closed_record(self, record: Record, closed: effects.CloseIncident) -> Record:
        action = record.incident.action.value
        metrics.INCIDENTS.labels(action, closed.outcome.value).inc()
        outage = outage_milliseconds(record.marks)
        if closed.outcome is IncidentOutcome.RECOVERED and outage is not None:
            metrics.OUTAGE.labels(action).observe(outage / 1000)
        self._tell(announcements.event_of_closing(closed, record.incident, outage, record.restoration.lost_steps))
        return dataclasses.replace(record, outcome=closed.outcome)
