"""One job's controller: every event of a job passes here, one at a time.

JobObserver turns observations into events of the planner, JobMemory stores the planner's answers, and these go out as
levels: the newest order and the status (JobOutputs), the pods (ReconcileLoop). Orders go out in the same call in which
a report came in: no queue delays the command that answers a fault.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from hajob import metrics
from hajob.api.conditions import Reason
from hajob.api.event_reasons import EventReason
from hajob.api.job import HATrainingJob
from hajob.job.admission import Admission
from hajob.job.deadline_timer import DeadlineTimer
from hajob.job.memory import JobMemory
from hajob.job.observer import JobObserver, Seen
from hajob.job.outputs import JobOutputs
from hajob.job.pod_index import is_coordinator, is_serving
from hajob.job.policies.start_gate import why_stuck
from hajob.job.ports import Ports
from hajob.job.reconcile_loop import ReconcileLoop
from hajob.job.status.announcements import Announcement, of_breaker
from hajob.job.status_publisher import StatusPublisher
from hajob.plan import events
from hajob.plan.policy import Policy
from hajob.plan.state import UNTRAINED, Deadline, JobPhase, JobState
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.pod import PodView

log = logging.getLogger(__name__)


class JobController:
    """All that happens to one job, as its `observer` sees it. Every method is called in the core's loop.

    Args:
        job: as it is now.
        ports: to the world.
        broke: called when an error of this program keeps it from managing the job.

    Raises:
        JournalError: the journal cannot be used safely.
        HajobInputError: the spec cannot be read.
    """

    def __init__(
        self, job: HATrainingJob, ports: Ports, broke: Callable[[BaseException], None] = lambda _: None
    ) -> None:
        self._ports, self._broke = ports, broke
        self._memory = JobMemory(job, ports.clock, self._announce)
        self.observer = JobObserver(self._memory, ports, self, self._announce)
        self._admission = Admission(ports.kube, ports.clock, ports.pod_settings, ports.authorities, ports.dry_runs)
        self._loop = ReconcileLoop(self._memory, self.observer.snapshots, self._admission, ports, self)
        self._outputs = JobOutputs(self._memory, self.observer, self._admission, ports, self._loop.memos)
        self._deadline = DeadlineTimer(
            ports.clock, self._memory.time, self._deadline_reached, lambda: self.observer.cut_off
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._left_over: set[str] = set()
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
    def status(self) -> StatusPublisher:
        """Return the publisher of the job's status."""
        return self._outputs.status

    @property
    def state(self) -> JobState:
        """Return the planner's state."""
        return self._memory.state

    @property
    def policy(self) -> Policy:
        """Return the actions and limits that the planner follows."""
        return self._memory.policy

    # ------------------------------------------------------------------------------------------------- life

    def start(self) -> None:
        """Start; the caller has shown the existing pods before."""
        title, status = self._memory.title, self._outputs.status
        self._follow_capacity()
        self._tasks = [
            asyncio.create_task(self._loop.run(), name=f"controller {title}"),
            asyncio.create_task(status.writer.run(), name=f"status of {title}"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Report a task that ended by itself: without its tasks a controller must be replaced."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: %s has ended", self._memory.title, task.get_name(), exc_info=error)
            self._broke(error)

    async def close(self) -> None:
        """Stop managing the job, and leave it as it is."""
        self._ports.cluster.watchers.discard(self._memory.job.metadata.uid)
        self._loop.close()
        self._outputs.close()
        self._deadline.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.observer.coordinator.close()

    async def release(self) -> None:
        """Delete the job's pods because its CR is being deleted; return once they are gone. Never raises."""
        if not self._releasing:
            self._releasing.append(asyncio.create_task(self._release(), name=f"release of {self._memory.title}"))
        await asyncio.shield(self._releasing[0])

    async def _release(self) -> None:
        self._outputs.status.close()
        self._advance(events.Deleted())
        await self._loop.delete_pods()
        await self.close()

    # --------------------------------------------------------------------------------------- what is seen

    def job_seen(self, job: HATrainingJob) -> None:
        """Handle the CR as it is now."""
        if self._memory.job_seen(job):
            self._admission.spec_changed()
            self._outputs.assign()
            self._advance(events.PolicyChanged())
            self._outputs.status.publish()
            self._loop.wake(hurry=True)

    def spec_not_read(self, why: str) -> None:
        """Say that the newest spec cannot be read: the one before it goes on being served."""
        if why != self._memory.spec_not_read:
            self._announce(Announcement(EventReason.SPEC_NOT_READ, f"{Reason.SPEC_NOT_READ.sentence} {why}"))
        self._memory.spec_not_read = why
        self._outputs.status.publish()

    def pods_listed(self, version: str = "") -> None:
        """Note that every pod of a list of this resourceVersion was shown: a pod that is unknown now does not exist."""
        self.observer.pods.was_listed(version)
        self.look_for_missed()
        self._take_in(self.observer.of_end())
        self._loop.wake()

    def look_for_missed(self) -> None:
        """Handle pods that came and went while the watch was away, because no watch event reports them."""
        for pod in self.observer.pods.missed():
            self.pod_seen(pod, deleted=True)

    def pod_seen(self, pod: PodView, *, deleted: bool = False) -> None:
        """Handle a pod of this job as it is now, or its deletion."""
        observer = self.observer
        news = observer.pods.seen(pod, deleted=deleted)
        if not news:
            return
        if is_coordinator(pod, self.job, self.state):
            self._coordinator_pod_seen(pod, deleted=deleted)
        elif pod.is_rank_pod:
            self._rank_pod_seen(pod, deleted=deleted)
        self._look_for_places()
        self._outputs.start_if_held()
        self._outputs.status.publish(lazy=True)
        if news.changes_pods:
            self._loop.wake(hurry=deleted)
        elif pod.place or pod.is_spare_pod or pod.is_hook_pod or self._memory.ended:
            self._loop.wake()

    def _rank_pod_seen(self, pod: PodView, *, deleted: bool) -> None:
        """Handle a rank pod. A move's second pods are assigned to the coordinator, but are not the job's ranks yet."""
        observer, serving = self.observer, is_serving(pod, self.state)
        self._note_left_over(pod, deleted=deleted)
        if serving and pod.is_refused_by_node and not deleted:
            observer.snapshots.creation.count_refused_pod(pod, self._ports.clock.monotonic())
        self._take_in(observer.of_pod(pod, deleted=deleted))
        if serving and pod.node_name and not deleted:
            self._take_in(observer.of_node(pod.node_name))
            self._take_in(observer.of_hardware({pod.node_name}))
        if not deleted and not pod.has_ended:
            self._outputs.assign_soon()
        if serving:
            self._take_in(observer.of_end())
            self._memory.record_time(observer.training())

    def _note_left_over(self, pod: PodView, *, deleted: bool) -> None:
        """Treat a pod that only a finalizer keeps like one that is gone: its processes may live on, unseen."""
        if deleted:
            self._left_over.discard(pod.uid)
        elif pod.left_over and pod.uid not in self._left_over:
            self._left_over.add(pod.uid)
            if pod.is_rank_pod and pod.phase == "Running":
                self.ranks_unreachable(pod.node_name)

    def _coordinator_pod_seen(self, pod: PodView, *, deleted: bool) -> None:
        self._take_in(self.observer.of_coordinator_pod(pod, self._admission.credentials, deleted=deleted))
        if pod.node_name and not deleted:
            self._take_in(self.observer.of_node(pod.node_name))
        if self.observer.coordinator.address:
            self._outputs.tell_coordinator()
            self._loop.wake()  # a start that is held back may have to be looked at again later

    def reported(self, report: wire.Report) -> None:
        """Handle a coordinator's report: milestones, then facts, each advancing the plan at once."""
        self._deadline.heard()
        self._take_in(self.observer.of_steps())
        if not self.observer.is_news(report):
            self._stepped()
            return
        begin, recorder = self._ports.clock.monotonic(), self._memory.recorder
        told = self.observer.of_report(report)
        recorder.new_report()
        if self._memory.launch_seen(tuple(report.state.launched)):
            self._outputs.assign()
        if (loaded := self.observer.coordinator.reports.newly_loaded(report, self.state.attempt)) is not None:
            recorder.checkpoint_loaded(loaded)
        for observed in told:
            if observed.mark is not None:
                recorder.mark(observed.mark, observed.time_ms, observed.step_before)
            if observed.event is not None:
                self._advance(observed.event, observed.time_ms)
        self._take_in(self.observer.of_coordinator())
        self._decide_what_waited()
        self._memory.record_time(self.observer.training())
        if told:
            metrics.DECISION.observe(self._ports.clock.monotonic() - begin)
        self._outputs.status.publish(lazy=True)

    def _stepped(self) -> None:
        """Handle a report that only tells progress, as one arrives each second of a training."""
        if self._memory.stepped(self.observer.coordinator.reports.step):
            self._outputs.status.publish(lazy=True)

    def coordinator_changed(self) -> None:
        """Handle that the channel came up or went down."""
        if self.observer.coordinator.reports.connected:
            self._outputs.tell_coordinator()
        self._take_in(self.observer.of_channel())
        self._outputs.status.publish()

    def stood_at(self, step: int, age_ms: int) -> None:
        """Handle the last step of an ended attempt, as its coordinator reports it."""
        self._memory.stood_at(step, age_ms)
        self._outputs.status.publish(lazy=True)

    def reach_changed(self, cut_off: str) -> None:
        """Take in why this operator counts as cut off from the coordinators; empty: it does not any more."""
        coordinator = self.observer.coordinator
        if not coordinator.address or coordinator.reports.connected:
            return
        if cut_off:
            self._announce(Announcement(EventReason.OPERATOR_CUT_OFF, cut_off))
        self._take_in(self.observer.of_channel())
        self._outputs.status.publish()

    def _look_for_places(self) -> None:
        """Check whether a start has all the nodes and quota it needs."""
        if self.state.phase in UNTRAINED:
            self._take_in(self.observer.of_places(why_stuck(self.observer.snapshots.take(), self._loop.memos.start)))
            self._take_in(self.observer.of_coordinator_place())

    def look_for_stranded(self, node: str, *, gone: bool = False) -> None:
        """Check for pods that wait or hang on a node that changed or was deleted."""
        self._take_in(self.observer.of_node(node, gone=gone))
        if any(pod.is_spare_pod or pod.deleting for pod in self.observer.pods.on_node(node)):
            self._loop.wake()

    def look_for_moves(self) -> None:
        """Handle that a node of this job was cordoned, or is in service again."""
        self._take_in(self._loop.moves())
        self._loop.wake()

    def look_for_faults(self, nodes: frozenset[str]) -> None:
        """Handle changed faults of these nodes or of their chips."""
        self._take_in(self.observer.of_hardware(nodes))

    def breaker_changed(self, held: str) -> None:
        """Announce that the breaker holds faults of nodes and chips back (why), or believes them again."""
        self._announce(of_breaker(held) if not self._memory.ended else None)
        self._take_in(self.observer.of_nodes())
        self._take_in(self.observer.of_hardware() if not held else ())
        self._outputs.status.publish()

    def places_changed(self) -> None:
        """Handle that nodes were quarantined or released: waiting pods may go there now."""
        self._loop.wake(hurry=True)
        self._outputs.status.publish(lazy=True)

    def look_for_capacity(self) -> None:
        """Handle that a node, or a pod of any job on one, came or went."""
        self._loop.capacity_changed()
        self._take_in(self.observer.of_capacity())

    def quota_changed(self) -> None:
        """Handle a changed quota: refused pods may be created, a job that is not whole may grow or not."""
        self._take_in(self.observer.of_capacity())
        refused = self.observer.snapshots.creation.why_missing
        if refused is not None and refused.over_quota:
            self._loop.try_soon()

    def say_again(self) -> None:
        """Publish the status, because something that is the same for all jobs has changed."""
        self._outputs.status.publish(lazy=True)

    def _deadline_reached(self, name: str) -> None:
        try:
            if name == Deadline.COORDINATOR:
                self.observer.silence_counts()
            self._advance(events.DeadlineReached(name=name))
        except Exception as error:  # nothing else would report an error in a timer
            log.exception("%s: deadline %s", self._memory.title, name)
            self._broke(error)

    # ------------------------------------------------------------------------------- from the reconcile loop

    def admitted(self) -> None:
        """Handle that the job's pods may be created and its coordinator may be dialled."""
        for pod in self.observer.pods.all():
            if is_coordinator(pod, self.job, self.state):
                self._coordinator_pod_seen(pod, deleted=False)
        self._advance(events.PolicyChanged())  # the spec may have changed while no operator ran
        self._look_for_places()
        self._deadline.arm(self._memory.deadlines)
        if self.job.status.observed_generation != self.job.metadata.generation:
            self._outputs.status.publish()

    def refused(self) -> None:
        """Handle that its pods cannot be created."""
        self._announce(Announcement(EventReason(self._admission.reason.word), self._admission.message))
        self._outputs.status.publish()

    def follow_spec(self) -> None:
        """Apply the spec, and what sick nodes ask for."""
        self._take_in((*self.observer.of_spec(), *self.observer.of_sub_health()))
        self._outputs.start_if_held()
        self._look_for_places()

    def policies_tell(self, told: Iterable[events.JobEvent], announcements: Iterable[Announcement]) -> None:
        """Take in what policies tell the table, and post what they tell people."""
        for announcement in announcements:
            self._announce(announcement)
        self._take_in(told)

    def ranks_unreachable(self, node: str) -> None:
        """Note that a pod on this node is about to be deleted without grace; its ranks may live on."""
        self._advance(events.RanksUnreachable(nodes=(node,)))

    def still_there(self, pods: list[PodView]) -> None:
        """Announce pods that do not go while the job is being deleted."""
        named = ", ".join(sorted(f"{pod.name} on {pod.node_name or 'no node'}" for pod in pods)[:3])
        self._announce(
            Announcement(EventReason.PODS_NOT_GONE, f"{len(pods)} pods have not ended, so the job stays: {named}")
        )

    def missing_pods_turned(self, told: Announcement | None, *, turned: bool) -> None:
        """Handle that pods are missing for another reason than before, or for none any more."""
        self._announce(told)
        self._look_for_places()
        self._outputs.status.publish(lazy=not turned)

    # --------------------------------------------------------------------------------------------- the plan

    def _take_in(self, seen: Seen) -> None:
        for event in tuple(seen):
            self._advance(event)

    def _advance(self, event: events.JobEvent, happened_ms: int | None = None) -> None:
        """Pass one event through the table, and carry out what follows from it."""
        before = self.state
        transition = self._memory.advance(event, self.observer.view(), happened_ms)
        if transition is None:
            return
        self._outputs.follow(before, transition.effects)
        self._follow_capacity()
        self._deadline.arm(self._memory.deadlines)
        self._loop.wake()
        self._decide_what_waited()

    def _decide_what_waited(self) -> None:
        """Take in standing faults once the coordinator is heard, or given up; moves wait for it, too."""
        if self.observer.waits_no_longer():
            self._take_in(self.observer.of_hardware())
            self._loop.wake()

    def _follow_capacity(self) -> None:
        """Subscribe to changes of nodes while the job waits for some."""
        watchers, uid = self._ports.cluster.watchers, self._memory.job.metadata.uid
        state = self.state
        waits = state.phase in {JobPhase.SHRUNK, JobPhase.GATHERING} or state.waiting is not None or state.nodes > 0
        (watchers.add if waits else watchers.discard)(uid)

    def _announce(self, told: Announcement | None) -> None:
        if told is not None:
            self._ports.announcer.queue_event(
                self._memory.job.metadata, told.reason, told.message, warning=told.warning
            )
