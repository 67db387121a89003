"""The memory of one job, and how an event changes it.

The planner's state, the newest order, the account of time and incidents: all of it is in the status, the desired pods
follow from it, and the next leader continues from it (docs/decisions/0004-the-status-is-the-journal.md).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping

from hajob import metrics
from hajob.api.derived import with_number_of_nodes
from hajob.api.job import HATrainingJob
from hajob.clock import Clock, JobTime
from hajob.domain.layout import Layout
from hajob.domain.pace import StepPace
from hajob.domain.timeline import Mark
from hajob.job.incident_recorder import IncidentRecorder
from hajob.job.status.journal import read_journal
from hajob.plan import effects, events, machine
from hajob.plan.account import follow_account
from hajob.plan.placements import same_placements
from hajob.plan.policy import layout_from_spec, policy_from_spec
from hajob.plan.state import ENDED, JobPhase, JobState
from hajob.plan.view import ClusterView

log = logging.getLogger(__name__)


class JobMemory:
    """The memory of one job, and the job itself as it is now.

    Args:
        job: as it was when this operator began to manage it.
        clock: of the machine.

    Raises:
        JournalError: the journal cannot be used safely.
        HajobInputError: the spec cannot be read.

    Attributes:
        spec_not_read: why a newer spec than the job's cannot be read; empty: there is none.
        title: namespace and name, for logs.
        time: by which the job lives.
        policy: the allowed actions and limits, for the size of the attempt.
        layout: of the attempt.
        recorder: of its incidents.
        pace: of the training.
        recorded_order: newest order that the server has.
    """

    def __init__(self, job: HATrainingJob, clock: Clock) -> None:
        self.job, self.spec_not_read = job, ""
        self.title = f"{job.metadata.namespace}/{job.metadata.name}"
        reading = read_journal(job.status.journal, job.status.journal_version)
        for place in reading.left_out:
            metrics.REFUSED.labels("journal").inc()
            log.warning("%s: %s in the journal is left out, this version does not know it", self.title, place)
        self.time = JobTime(clock, reading.journal.written_ms)
        self.journal = reading.journal.for_new_leader(self.time.now())
        self.recorded_order = self.journal.order
        self._launched: tuple[str, ...] = ()
        self._derive_from_spec()
        self.pace = StepPace()
        self.recorder = IncidentRecorder(self.journal.record_of_open())

    @property
    def state(self) -> JobState:
        """Return the planner's state."""
        return self.journal.state

    def _derive_from_spec(self) -> None:
        """Derive policy and layout from the spec, for the nodes that the attempt was started with."""
        nodes = self.state.nodes
        self.policy = policy_from_spec(self.job.spec, self._launched, nodes)
        self.layout = layout_from_spec(with_number_of_nodes(self.job.spec, nodes))

    def still_desires(self, state: JobState, layout: Layout) -> bool:
        """Return whether this state and this layout lead to the same desired pods."""
        num_nodes = self.layout.num_nodes
        return num_nodes == layout.num_nodes and same_placements(state, self.state, num_nodes)

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self.state.phase in ENDED

    @property
    def deadlines(self) -> Mapping[str, int]:
        """Return the deadlines: name to job time in milliseconds."""
        return {} if self.has_ended else self.state.deadlines

    def store_job(self, job: HATrainingJob) -> bool:
        """Store the job as it is now; return whether its spec has changed. The server's status is ignored."""
        before, self.job, self.spec_not_read = self.job, job, ""
        if job.metadata.generation == before.metadata.generation:
            return False
        self._derive_from_spec()
        return True

    def store_launch(self, launched: tuple[str, ...]) -> bool:
        """Store the arguments of the start script's launch; return whether MindIO can do another thing by them.

        They tell more of the preconditions than the spec.
        """
        if not launched or launched == self._launched:
            return False
        self._launched, before = launched, self.policy.through_mindio
        self._derive_from_spec()
        return self.policy.through_mindio != before

    def store_restart(self, asked: str) -> str:
        """Store the restart that the spec requests; return the one stored before."""
        seen = self.journal.restart_seen
        self.journal = dataclasses.replace(self.journal, restart_seen=asked)
        return seen

    def advance_plan(
        self, event: events.JobEvent, view: ClusterView, happened_ms: int | None = None
    ) -> machine.Transition | None:
        """Pass one event through the table; None if it changes nothing. `happened_ms`: when, if it was not now."""
        before, now = self.state, self.time.now()
        transition = machine.advance_job(before, event, view, self.policy, now)
        if transition.state is before and not transition.effects:
            reason = transition.ignored.reason if transition.ignored else "NothingNew"
            metrics.IGNORED.labels(type(event).__name__, reason).inc()
            return None
        log.info("%s: %s: %s -> %s", self.title, type(event).__name__, before.phase, transition.state.phase)
        self.journal = dataclasses.replace(self.journal, state=transition.state)
        if transition.state.nodes != before.nodes:
            self._derive_from_spec()
        if transition.state.phase is not JobPhase.FAILED and self.journal.failed_reason:
            self.journal = dataclasses.replace(self.journal, failed_reason="", failed_message="")
        self.record_time(view, happened_ms)
        step, held = max(view.step, before.step), transition.state.phase is JobPhase.HELD
        self.recorder.record_incident(transition.state.incident, event, step, view.checkpoint_step, held=held)
        for effect in transition.effects:
            self._apply_effect(effect)
        return transition

    def record_time(self, view: ClusterView, happened_ms: int | None = None) -> None:
        """Update the account of time to the current state, which has held since `happened_ms` where that is known."""
        now = self.time.now()
        self._update_pace(view.step, now)
        at_ms = min(now, happened_ms if happened_ms is not None else now)
        account = follow_account(self.journal.account, self.state, view, self.recorder.marks_of_open, at_ms)
        self.journal = dataclasses.replace(self.journal, account=account)

    def store_step(self, step: int) -> bool:
        """Store the training's newest step, if nothing else is new; return whether the training went on."""
        before, now = self.journal.account, self.time.now()
        self._update_pace(step, now)
        after = before and before.note_step(step, now)
        self.journal = dataclasses.replace(self.journal, account=after)
        return after is not before

    def store_last_step(self, step: int, age_ms: int) -> None:
        """Store the last step before the open outage, as the previous coordinator reports it."""
        if self.recorder.marks_of_open:
            self.recorder.record_mark(Mark.STEP_BEFORE, self.time.now() - age_ms, step)

    def _update_pace(self, step: int, now_ms: int) -> None:
        size = self.layout.data - (len(self.state.shrunk.dropped) if self.state.shrunk else 0)
        self.pace = self.pace.with_seen_step(size, self.state.resumed_ms, step, now_ms)

    def _apply_effect(self, effect: effects.Effect) -> None:
        self.recorder.record_effect(effect, self.time.now())
        match effect:
            case effects.SendOrder():
                self.journal = dataclasses.replace(self.journal, order=effect)
            case effects.FailJob(reason, message):
                self.journal = dataclasses.replace(self.journal, failed_reason=reason, failed_message=message)
