"""One job's controller: every event of a job passes here, one at a time.

What a snapshot shows becomes events (hajob.job.observe), JobMemory stores the planner's answers, and these go out as
levels: the newest order (hajob.job.orders), the status (hajob.job.draft), the pods (ReconcileLoop). Orders go out in
the same call in which a report came in: no queue delays the command that answers a fault.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from hajob import metrics
from hajob.api.conditions import Reason
from hajob.api.event_reasons import EventReason
from hajob.api.job import HATrainingJob
from hajob.api.status import HATrainingJobStatus, IncidentEntry
from hajob.clock import Alarm
from hajob.domain.pace import StepTimes
from hajob.job import observe, orders
from hajob.job.admission import Admission
from hajob.job.coordinator_client import CoordinatorClient, CoordinatorOwner
from hajob.job.deadlines import DeadlineWatch
from hajob.job.draft import draft_status
from hajob.job.memory import JobMemory
from hajob.job.observe import Seen
from hajob.job.pod_index import is_coordinator_pod, is_serving_pod
from hajob.job.policies import drains
from hajob.job.policies.start_gate import why_start_stuck
from hajob.job.ports import Ports
from hajob.job.reconcile_loop import LoopOwner, ReconcileLoop
from hajob.job.snapshot import JobSnapshot, JobSnapshots
from hajob.job.status.announcements import Announcement, event_of_breaker
from hajob.job.status.build import build_goodput, is_status_urgent
from hajob.job.status.incident_news import news_of_incidents
from hajob.job.status_publisher import Draft, StatusPublisher
from hajob.job.status_writer import StatusWriter
from hajob.plan import effects, events
from hajob.plan.policy import Policy
from hajob.plan.state import UNTRAINED, Deadline, JobPhase, JobState
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources import observe as source
from hajob.sources.pod import PodView

log = logging.getLogger(__name__)


class JobController(CoordinatorOwner, LoopOwner):
    """All that happens to one job. Every method is called in the core's loop.

    Args:
        job: as it is now.
        ports: to the world.
        broke: called when an error of this program keeps it from managing the job.

    Raises:
        JournalError: the journal cannot be used safely.
        HajobInputError: the spec cannot be read.

    Attributes:
        coordinator: the connection to it.
        snapshots: takes what is known now.
        status: decides when the job's status is written.
    """

    def __init__(
        self, job: HATrainingJob, ports: Ports, broke: Callable[[BaseException], None] = lambda _: None
    ) -> None:
        self._ports, self._broke = ports, broke
        self._memory = memory = JobMemory(job, ports.clock)
        self.coordinator = CoordinatorClient(job, ports, self)
        self.snapshots = JobSnapshots(memory, ports, self.coordinator.reports)
        self._admission = Admission(ports.kube, ports.clock, ports.pod_settings, ports.authorities, ports.dry_runs)
        writer = StatusWriter(ports.kube, ports.clock, job.metadata, job.status.to_json(), ports.leadership)
        self.status = StatusPublisher(ports.clock, writer, job.status, self._draft_status, ports.pace)
        self._loop = ReconcileLoop(memory, self.snapshots, self._admission, ports, self)
        now = ports.clock.monotonic()
        self._deadlines, self._deadline_alarm = DeadlineWatch(now, now), Alarm(ports.clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._left_over: set[str] = set()
        self._told_incidents = job.status.incidents
        self._releasing: list[asyncio.Task[None]] = []

    @property
    def job(self) -> HATrainingJob:
        """Return the CR as it was last seen."""
        return self._memory.job

    @property
    def name(self) -> str:
        """Return the job's name, for logs."""
        return self._memory.job.metadata.name

    @property
    def live_status(self) -> HATrainingJobStatus:
        """Return the status that was computed last, with the step and the account of time as they are now."""
        memory, known = self._memory, self.status.current
        goodput = build_goodput(memory.journal.account, memory.time.now())
        changed: dict[str, object] = {"goodput": goodput or known.goodput}
        if known.progress is not None:
            step = max(known.progress.step, self.coordinator.reports.newest_step)
            pace = memory.pace.milliseconds_per_step
            changed["progress"] = known.progress.model_copy(update={"step": step, "step_milliseconds": pace})
        return known.model_copy(update=changed)

    @property
    def step_times(self) -> StepTimes | None:
        """Return how long the last steps took, as the coordinator tells; None while it does not."""
        return self.coordinator.reports.step_times

    @property
    def state(self) -> JobState:
        """Return the planner's state."""
        return self._memory.state

    @property
    def policy(self) -> Policy:
        """Return the actions and limits that the planner follows."""
        return self._memory.policy

    # ------------------------------------------------------------------------------------------------- life

    def start_tasks(self) -> None:
        """Start; the caller has shown the existing pods before."""
        title = self._memory.title
        self._follow_capacity()
        self._tasks = [
            asyncio.create_task(self._loop.reconcile_for_ever(), name=f"controller {title}"),
            asyncio.create_task(self.status.writer.write_for_ever(), name=f"status of {title}"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._report_ended_task)

    def _report_ended_task(self, task: asyncio.Task[None]) -> None:
        """Report a task that ended by itself: without its tasks a controller must be replaced."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: %s has ended", self._memory.title, task.get_name(), exc_info=error)
            self._broke(error)

    async def stop_managing(self) -> None:
        """Stop managing the job, and leave it as it is."""
        self._ports.cluster.watchers.discard(self._memory.job.metadata.uid)
        self._loop.stop_reconciling()
        self.status.stop_waiting()
        self._deadline_alarm.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.coordinator.close_links()

    async def release_job(self) -> None:
        """Delete the job's pods because its CR is being deleted; return once they are gone. Never raises."""
        if not self._releasing:
            self._releasing.append(
                asyncio.create_task(self._delete_pods_and_stop(), name=f"release of {self._memory.title}")
            )
        await asyncio.shield(self._releasing[0])

    async def _delete_pods_and_stop(self) -> None:
        self.status.stop_publishing()
        self._advance_plan(events.Deleted())
        await self._loop.delete_pods()
        await self.stop_managing()

    # --------------------------------------------------------------------------------------- what is seen

    def apply_job(self, job: HATrainingJob) -> None:
        """Handle the CR as it is now."""
        labels = self._memory.job.metadata.labels
        if self._memory.store_job(job):
            self._admission.note_changed_spec()
            self.send_assignment()
            self._advance_plan(events.PolicyChanged())
            self.status.publish_status()
            self._loop.wake_soon(hurry=True)
        elif labels != job.metadata.labels:
            self.handle_changed_workload()

    def note_unread_spec(self, why: str) -> None:
        """Say that the newest spec cannot be read: the one before it goes on being served."""
        if why != self._memory.spec_not_read:
            self._post_event(Announcement(EventReason.SPEC_NOT_READ, f"{Reason.SPEC_NOT_READ.sentence} {why}"))
        self._memory.spec_not_read = why
        self.status.publish_status()

    def note_listed_pods(self, version: str = "") -> None:
        """Note that every pod of a list of this resourceVersion was shown: a pod that is unknown now does not exist."""
        self.snapshots.pods.note_list(version)
        self.look_for_missed()
        self.apply_seen(observe.events_of_end(self.snapshots.take_snapshot()))
        self._loop.wake_soon()

    def look_for_missed(self) -> None:
        """Handle pods that came and went while the watch was away, because no watch event reports them."""
        for pod in self.snapshots.pods.missed_pods():
            self.apply_pod(pod, deleted=True)

    def apply_pod(self, pod: PodView, *, deleted: bool = False) -> None:
        """Handle a pod of this job as it is now, or its deletion."""
        news = self.snapshots.pods.store_pod(pod, deleted=deleted)
        if not news:
            return
        if is_coordinator_pod(pod, self.job, self.state):
            self._apply_coordinator_pod(pod, deleted=deleted)
        elif pod.is_rank_pod:
            self._apply_rank_pod(pod, deleted=deleted)
        self._look_for_places()
        self._start_if_held()
        self.status.publish_status(lazy=True)
        if news.changes_pods:
            self._loop.wake_soon(hurry=deleted)
        elif pod.place or pod.is_spare_pod or pod.is_hook_pod or self._memory.has_ended:
            self._loop.wake_soon()

    def _apply_rank_pod(self, pod: PodView, *, deleted: bool) -> None:
        """Handle a rank pod. A move's second pods are assigned to the coordinator, but are not the job's ranks yet."""
        serving = is_serving_pod(pod, self.state)
        self._note_left_over(pod, deleted=deleted)
        snapshot = self.snapshots.take_snapshot()
        if serving and pod.is_refused_by_node:
            snapshot.cluster.avoided_nodes.avoid_node(pod.node_name, snapshot.now)
            if not deleted:
                snapshot.creation.count_refused_pod(pod, snapshot.now)
        snapshot = self._snapshot_after(snapshot, observe.events_of_rank_pod(snapshot, pod, deleted=deleted))
        if serving and pod.node_name and not deleted:
            snapshot = self._snapshot_after(snapshot, observe.events_of_node(snapshot, pod.node_name))
            snapshot = self._snapshot_after(snapshot, observe.events_of_hardware(snapshot, {pod.node_name}))
        if not deleted and not pod.has_ended:
            self.coordinator.assign_soon(self._memory.layout.num_nodes)
        if serving:
            snapshot = self._snapshot_after(snapshot, observe.events_of_end(snapshot))
            self._memory.record_time(observe.training_view(snapshot))

    def _note_left_over(self, pod: PodView, *, deleted: bool) -> None:
        """Treat a pod that only a finalizer keeps like one that is gone: its processes may live on, unseen."""
        if deleted:
            self._left_over.discard(pod.uid)
        elif pod.left_over and pod.uid not in self._left_over:
            self._left_over.add(pod.uid)
            if pod.is_rank_pod and pod.phase == "Running":
                self._advance_plan(events.RanksUnreachable(nodes=(pod.node_name,)))

    def _apply_coordinator_pod(self, pod: PodView, *, deleted: bool) -> None:
        """Dial the coordinator's pod, or close the link, because the pod changed or is gone.

        A successor is not dialled before it runs: until then the operator keeps talking to the pod that it replaces.
        """
        told: list[events.JobEvent | Announcement] = [*source.events_of_coordinator_pod(pod, deleted=deleted)]
        credentials, snapshot = self._admission.credentials, self.snapshots.take_snapshot()
        if deleted or pod.has_ended:
            self.coordinator.leave_lost_pod()
        elif pod.address and credentials is not None and not (snapshot.hears_relieved and pod.phase == "Pending"):
            self.coordinator.dial_pod(pod, credentials)
            if not self.coordinator.reports.connected:
                told.extend(observe.events_of_channel(snapshot))
        self.apply_seen(told)
        if pod.node_name and not deleted:
            self.apply_seen(observe.events_of_node(self.snapshots.take_snapshot(), pod.node_name))
        if self.coordinator.reports.address:
            self._tell_coordinator()
            self._loop.wake_soon()  # a start that is held back may have to be looked at again later

    def apply_report(self, report: wire.Report) -> None:
        """Handle a coordinator's report: milestones, then facts, each advancing the plan at once."""
        self._deadlines.note_report(self._ports.clock.monotonic())
        reports = self.coordinator.reports
        self.apply_seen(source.events_of_steps(self.state, reports.newest_step))
        if not source.is_report_news(self.state, report, reports.before):
            self._apply_progress()
            return
        begin, recorder = self._ports.clock.monotonic(), self._memory.recorder
        told = observe.read_report(self.snapshots.take_snapshot(), report)
        recorder.begin_report()
        if self._memory.store_launch(tuple(report.state.launched)):
            self.send_assignment()
        if report.state.pause_result != reports.before.state.pause_result:
            self._loop.wake_soon()
        if (loaded := reports.take_newly_loaded(report, self.state.attempt)) is not None:
            recorder.record_loaded_checkpoint(loaded)
            self._post_events_of_incident()
        for observed in told:
            if observed.mark is not None:
                recorder.record_mark(observed.mark, observed.time_ms, observed.step_before)
            if observed.event is not None:
                self._advance_plan(observed.event, observed.time_ms)
        self.apply_seen(observe.events_of_coordinator(self.snapshots.take_snapshot()))
        self._decide_what_waited()
        self._memory.record_time(observe.training_view(self.snapshots.take_snapshot()))
        if told:
            metrics.DECISION.observe(self._ports.clock.monotonic() - begin)
        self.status.publish_status(lazy=True)

    def _apply_progress(self) -> None:
        """Handle a report that only tells progress, as one arrives each second of a training."""
        if self._memory.store_step(self.coordinator.reports.newest_step):
            self.status.publish_status(lazy=True)

    def note_channel_change(self) -> None:
        """Handle that the channel came up or went down."""
        if self.coordinator.reports.connected:
            self._tell_coordinator()
        self.apply_seen(observe.events_of_channel(self.snapshots.take_snapshot()))
        self.status.publish_status()

    def note_last_step(self, step: int, age_ms: int) -> None:
        """Handle the last step of an ended attempt, as its coordinator reports it."""
        self._memory.store_last_step(step, age_ms)
        self.status.publish_status(lazy=True)

    def handle_reach_change(self, cut_off: str) -> None:
        """Take in why this operator counts as cut off from the coordinators; empty: it does not any more."""
        reports = self.coordinator.reports
        if not reports.address or reports.connected:
            return
        if cut_off:
            self._post_event(Announcement(EventReason.OPERATOR_CUT_OFF, cut_off))
        self.apply_seen(observe.events_of_channel(self.snapshots.take_snapshot()))
        self.status.publish_status()

    def _look_for_places(self) -> None:
        """Check whether a start has all the nodes and quota it needs."""
        if self.state.phase in UNTRAINED:
            snapshot = self.snapshots.take_snapshot()
            blocked = why_start_stuck(snapshot, self._loop.memos.start)
            snapshot = self._snapshot_after(snapshot, observe.events_of_places(snapshot, blocked))
            self.apply_seen(observe.events_of_coordinator_place(snapshot))

    def look_for_stranded(self, node: str, *, gone: bool = False) -> None:
        """Check for pods that wait or hang on a node that changed or was deleted."""
        self.apply_seen(observe.events_of_node(self.snapshots.take_snapshot(), node, gone=gone))
        if any(pod.is_spare_pod or pod.deleting for pod in self.snapshots.pods.pods_on_node(node)):
            self._loop.wake_soon()

    def look_for_moves(self) -> None:
        """Handle that a node was cordoned, or is in service again: whoever drains it need not wait for a round."""
        self.apply_seen(drains.wanted_moves(self._loop.take_snapshot(), self._loop.memos.drains))
        self._loop.wake_soon()

    def look_for_faults(self, nodes: frozenset[str]) -> None:
        """Handle changed faults of these nodes or of their chips."""
        self.apply_seen(observe.events_of_hardware(self.snapshots.take_snapshot(), nodes))
        if any(pod.is_spare_pod for node in nodes for pod in self.snapshots.pods.pods_on_node(node)):
            self._loop.wake_soon()  # a spare is no rank, so that no event tells of its node

    def handle_breaker_change(self, held: str) -> None:
        """Announce that the breaker holds faults of nodes and chips back (why), or believes them again."""
        self._post_event(event_of_breaker(held) if not self._memory.has_ended else None)
        snapshot = self.snapshots.take_snapshot()
        of_nodes = (one for name in snapshot.pods.node_names for one in observe.events_of_node(snapshot, name))
        snapshot = self._snapshot_after(snapshot, of_nodes)
        self.apply_seen(observe.events_of_hardware(snapshot) if not held else ())
        self.status.publish_status()

    def handle_changed_places(self) -> None:
        """Handle that nodes were quarantined or released: waiting pods may go there now."""
        self._loop.wake_soon(hurry=True)
        self.status.publish_status(lazy=True)

    def look_for_capacity(self) -> None:
        """Handle that a node, or a pod of any job on one, came or went."""
        self._loop.note_capacity_change()
        self.apply_seen(observe.events_of_capacity(self.snapshots.take_snapshot()))

    def handle_changed_workload(self) -> None:
        """Handle that the job's queue, or what Kueue says of its Workloads, has changed."""
        self.status.publish_status(lazy=True)
        self._loop.wake_soon(hurry=True)

    def handle_changed_quota(self) -> None:
        """Handle a changed quota: refused pods may be created, a job that is not whole may grow or not."""
        self.apply_seen(observe.events_of_capacity(self.snapshots.take_snapshot()))
        refused = self.snapshots.creation.why_missing
        if refused is not None and refused.over_quota:
            self._loop.retry_soon()

    def handle_changed_queue(self) -> None:
        """Handle that the queue of the job's PodGroup has changed."""
        if self.state.phase in UNTRAINED:
            self.handle_changed_pod_group()
        else:
            self.apply_seen(observe.events_of_capacity(self.snapshots.take_snapshot()))

    def handle_changed_pod_group(self) -> None:
        """Handle that the job's PodGroup has changed."""
        self._look_for_places()
        self._loop.wake_soon()
        self.status.publish_status(lazy=True)

    def _set_deadline_alarm(self) -> None:
        """Look at the earliest deadline in time; a new leader gets it from the journal."""
        now, now_ms = self._ports.clock.monotonic(), self._memory.time.now()
        delay = self._deadlines.delay_to_look(self._memory.deadlines, now, now_ms)
        if delay is None:
            self._deadline_alarm.cancel()
        else:
            self._deadline_alarm.set_alarm(delay, self._look_at_deadlines)

    def _look_at_deadlines(self) -> None:
        try:
            snapshot, deadlines = self.snapshots.take_snapshot(), self._memory.deadlines
            missed, delay = self._deadlines.look_at_deadlines(
                deadlines, snapshot.now, snapshot.now_ms, cut_off=bool(snapshot.why_cut_off)
            )
            self._deadline_alarm.set_alarm(delay, self._look_at_deadlines)
            if missed == Deadline.COORDINATOR:
                observe.avoid_silent_coordinator(snapshot)
            if missed:
                self._advance_plan(events.DeadlineReached(name=missed))
        except Exception as error:  # nothing else would report an error in a timer
            log.exception("%s: deadlines", self._memory.title)
            self._broke(error)

    # ------------------------------------------------------------------------------- from the reconcile loop

    def handle_admission(self) -> None:
        """Handle that the job's pods may be created and its coordinator may be dialled."""
        for pod in self.snapshots.pods.all_pods():
            if is_coordinator_pod(pod, self.job, self.state):
                self._apply_coordinator_pod(pod, deleted=False)
        self._advance_plan(events.PolicyChanged())  # the spec may have changed while no operator ran
        self._look_for_places()
        self._set_deadline_alarm()
        if self.job.status.observed_generation != self.job.metadata.generation:
            self.status.publish_status()

    def handle_refusal(self) -> None:
        """Handle that its pods cannot be created."""
        self._post_event(Announcement(EventReason(self._admission.reason.word), self._admission.message))
        self.status.publish_status()

    def apply_spec(self) -> None:
        """Apply the spec, and what sick nodes ask for."""
        snapshot = self.snapshots.take_snapshot()
        told = tuple[events.JobEvent, ...]()
        # Otherwise it is handled once the job trains again, or the coordinator is heard, or given up.
        if snapshot.state.phase is not JobPhase.PAUSED and not snapshot.awaits_coordinator:
            seen = self._memory.store_restart(source.restart_asked(snapshot.job.spec))
            turn, why = snapshot.queue.turn, snapshot.queue.why_waiting
            told = tuple(source.events_of_spec(snapshot.state, snapshot.job.spec, seen, turn, why))
        self.apply_seen((*told, *observe.events_of_sub_health(snapshot)))
        self._start_if_held()
        self._look_for_places()

    def handle_missing_pods(self, told: Announcement | None, *, turned: bool) -> None:
        """Handle that pods are missing for another reason than before, or for none any more."""
        self._post_event(told)
        self._look_for_places()
        self.status.publish_status(lazy=not turned)

    # --------------------------------------------------------------------------------------------- the plan

    def apply_seen(self, seen: Seen) -> bool:
        """Apply what was seen to the plan, and post what people are told; return whether there was anything."""
        found = tuple(seen)
        for one in found:
            if isinstance(one, Announcement):
                self._post_event(one)
            else:
                self._advance_plan(one)
        return bool(found)

    def _snapshot_after(self, snapshot: JobSnapshot, seen: Seen) -> JobSnapshot:
        """Take in what this snapshot shows; return a new one where that may have changed something."""
        return self.snapshots.take_snapshot() if self.apply_seen(seen) else snapshot

    def _advance_plan(self, event: events.JobEvent, happened_ms: int | None = None) -> None:
        """Pass one event through the table, and carry out what follows from it."""
        before = self.state
        transition = self._memory.advance_plan(event, observe.cluster_view(self.snapshots.take_snapshot()), happened_ms)
        if transition is None:
            return
        self._post_events_of_incident()
        if self.state.holds_still is not before.holds_still:
            self.send_assignment()  # with the work of the pause, or without it
        if any(isinstance(effect, effects.SendOrder) for effect in transition.effects):
            self._send_order()
        self.status.publish_status(lazy=not is_status_urgent(before, self.state, self.job.spec.num_nodes))
        self._follow_capacity()
        self._set_deadline_alarm()
        self._loop.wake_soon()
        self._decide_what_waited()

    def _decide_what_waited(self) -> None:
        """Take in standing faults once the coordinator is heard, or given up; moves wait for it, too."""
        # Asked after every report and every step of the table, so the common case, nothing waits, comes first.
        if not self.snapshots.observed.waits or (snapshot := self.snapshots.take_snapshot()).awaits_coordinator:
            return
        self.snapshots.observed.waits = False
        self.apply_seen(observe.events_of_hardware(snapshot))
        self._loop.wake_soon()

    def _follow_capacity(self) -> None:
        """Subscribe to changes of nodes while the job waits for some."""
        watchers, uid = self._ports.cluster.watchers, self._memory.job.metadata.uid
        state = self.state
        waits = state.phase in {JobPhase.SHRUNK, JobPhase.GATHERING} or state.waiting is not None or state.nodes > 0
        (watchers.add if waits else watchers.discard)(uid)

    # ------------------------------------------------------------------------------------------ what goes out

    def _send_order(self) -> None:
        """Send the newest order, unless it must wait."""
        order = orders.order_to_send(self.snapshots.take_snapshot(), self._memory, self._loop.memos.start)
        if order is not None:
            self.coordinator.send_order(order)

    def _start_if_held(self) -> None:
        """Send a start that waited for ranks of the previous attempt."""
        if self._loop.memos.start.held_since is not None:
            self._send_order()

    def _tell_coordinator(self) -> None:
        """Send the coordinator everything, because it may have received nothing yet."""
        self.send_assignment()
        self._send_order()

    def send_assignment(self) -> None:
        """Send the coordinator the job's description and the addresses of its pods."""
        snapshot = self.snapshots.take_snapshot()
        self.coordinator.send_assignment(partial(orders.build_assignment, snapshot), snapshot.now_ms)

    def _draft_status(self, before: HATrainingJobStatus) -> Draft:
        """Compute the status, and the call that acknowledges reports once their effects are written.

        A new leader hears others again.
        """
        memory, reports = self._memory, self.coordinator.reports
        fence = self._ports.leadership.fence
        status = draft_status(self._loop.take_snapshot(), memory, self._loop.memos, before, fence)
        numbers = reports.conversation, reports.sequence
        return status, partial(self._status_written, memory.journal.order, *numbers, status.incidents)

    def _status_written(
        self, order: effects.SendOrder | None, conversation: int, sequence: int, incidents: tuple[IncidentEntry, ...]
    ) -> None:
        # Another process counts its reports anew: its own would be forgotten that nobody has written down yet.
        if conversation == self.coordinator.reports.conversation:
            self.coordinator.acknowledge_reports(sequence)
        if order != self._memory.recorded_order:
            self._memory.recorded_order = order
            self._send_order()
        # Last, and only what the server has on record: who hears of it outside finds it in the status.
        self._ports.feed.queue_news(news_of_incidents(self.job.metadata, self._told_incidents, incidents))
        self._told_incidents = incidents

    def _post_events_of_incident(self) -> None:
        for told in self._memory.recorder.take_announcements():
            self._post_event(told)

    def _post_event(self, told: Announcement | None) -> None:
        if told is not None:
            self._ports.announcer.queue_event(
                self._memory.job.metadata, told.reason, told.message, warning=told.is_warning
            )
