"""One job's controller: everything that happens to a job passes here, one thing at a time.

What is seen (JobObserver) becomes events of the planner, the planner's answers are remembered (JobMemory) and put out
as levels: the newest order and the status (JobOutputs), the pods (ReconcileLoop). Orders go out in the same call in
which a report came in: a fault on its way to its command crosses no queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from hajob.api.event_reasons import EventReason
from hajob.api.job import HATrainingJob
from hajob.plan import events
from hajob.plan.state import UNTRAINED, Deadline, JobPhase, JobState
from hajob.protocol import sidecar_pb2 as wire
from hajob.runtime import metrics
from hajob.runtime.admission import Admission
from hajob.runtime.clock import Alarm
from hajob.runtime.deadline_timer import HEAR_SECONDS, DeadlineTimer
from hajob.runtime.drain_watch import DrainWatch
from hajob.runtime.job_memory import JobMemory
from hajob.runtime.job_observer import JobObserver, Seen
from hajob.runtime.job_outputs import JobOutputs
from hajob.runtime.ports import Ports
from hajob.runtime.reconcile_loop import ReconcileLoop
from hajob.sources.pod import PodView
from hajob.status.announcements import Announcement, of_breaker

log = logging.getLogger(__name__)


class JobController:
    """All that happens to one job, as its `observer` sees it. Every method is called in the core's loop.

    Args:
        job: as it is now.
        ports: to the world.
        broke: called when it can look after the job no longer, by an error of this program.

    Raises:
        JournalError: the journal must not be acted upon.
        HajobInputError: the spec cannot be read.
    """

    def __init__(
        self, job: HATrainingJob, ports: Ports, broke: Callable[[BaseException], None] = lambda _: None
    ) -> None:
        self._ports, self._broke = ports, broke
        self._memory = JobMemory(job, ports.clock, self._announce)
        self.observer = JobObserver(self._memory, ports, self)
        self._admission = Admission(ports.kube, ports.clock, ports.pod_settings, ports.authorities, ports.dry_runs)
        self._outputs = JobOutputs(self._memory, self.observer, self._admission, ports, self._look_at_start)
        self._loop = ReconcileLoop(self._memory, self.observer.places, self._admission, ports, self)
        self._drains = DrainWatch(self._memory, self.observer.places, ports, self._loop.wake, self._announce)
        self._deadline = DeadlineTimer(
            ports.clock, self._memory.time, self._deadline_reached, lambda: self.observer.cut_off
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._unheard = Alarm(ports.clock)
        self._releasing: list[asyncio.Task[None]] = []

    @property
    def job(self) -> HATrainingJob:
        """The CR, as it was last seen."""
        return self._memory.job

    @property
    def state(self) -> JobState:
        """What the planner remembers."""
        return self._memory.state

    # ------------------------------------------------------------------------------------------------- life

    def start(self) -> None:
        """Begin; pods that exist have been shown before."""
        title, status = self._memory.title, self._outputs.status
        self._follow_capacity()
        self._unheard.set(HEAR_SECONDS, self._coordinator_unheard)
        self._tasks = [
            asyncio.create_task(self._loop.run(status), name=f"controller {title}"),
            asyncio.create_task(status.run(), name=f"status of {title}"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    def _coordinator_unheard(self) -> None:
        """It was not heard for so long: faults that stand are decided upon without it."""
        try:
            self._take_in(self.observer.hardware.look())
        except Exception as error:  # in a timer nobody else would hear of it
            log.exception("%s: faults that stood when it was opened", self._memory.title)
            self._broke(error)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """A job controller without its tasks looks after nothing: it must be opened anew."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: %s has ended", self._memory.title, task.get_name(), exc_info=error)
            self._broke(error)

    async def close(self) -> None:
        """Stop looking after the job, and leave it as it is."""
        self._ports.capacity_watchers.discard(self._memory.job.metadata.uid)
        self._loop.close()
        self._outputs.close()
        self._deadline.cancel()
        self._unheard.cancel()
        self._drains.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.observer.coordinator.close()

    async def release(self) -> None:
        """The CR is being deleted: return once its pods are gone, so that it can be applied again. Never raises."""
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
        """The CR as it is now."""
        if self._memory.job_seen(job):
            self._admission.spec_changed()
            self._advance(events.PolicyChanged())
            self._loop.wake(hurry=True)

    def pods_listed(self, version: str = "") -> None:
        """Every pod of a list of this resourceVersion has been shown: what is missing now is missing indeed."""
        self.observer.pods.was_listed(version)
        self.look_for_missed()
        self._loop.wake()

    def look_for_missed(self) -> None:
        """Of a pod that came and went while the watch was away nobody else tells."""
        for pod in self.observer.pods.missed():
            self.pod_seen(pod, deleted=True)

    def pod_seen(self, pod: PodView, *, deleted: bool = False) -> None:
        """A pod of this job as it is now, or that it is gone."""
        observer = self.observer
        news = observer.pods.seen(pod, deleted=deleted)
        if not news:
            return
        if observer.places.is_coordinator(pod):
            self._coordinator_pod_seen(pod, deleted=deleted)
        elif pod.is_rank:
            self._rank_pod_seen(pod, deleted=deleted)
        self._look_for_places()
        self._outputs.start_if_held()
        self._outputs.status.publish(lazy=True)
        if news.changes_pods:
            self._loop.wake(hurry=deleted)
        elif pod.place or pod.is_spare or pod.is_hook:
            self._loop.wake()

    def _rank_pod_seen(self, pod: PodView, *, deleted: bool) -> None:
        """Of the second pods of a move the coordinator is told where they are; they are not the job's ranks yet."""
        observer, serving = self.observer, self.observer.places.is_serving(pod)
        self._take_in(observer.of_pod(pod, deleted=deleted))
        if serving and pod.node_name and not deleted:
            self._take_in(observer.of_node(pod.node_name))
            self._take_in(observer.hardware.look({pod.node_name}))
        if not deleted and not pod.ended:
            self._outputs.assign_soon()
        if serving:
            self._take_in(observer.of_end())
            self._memory.record_time(observer.training())

    def _coordinator_pod_seen(self, pod: PodView, *, deleted: bool) -> None:
        self._take_in(self.observer.of_coordinator_pod(pod, self._admission.credentials, deleted=deleted))
        if pod.node_name and not deleted:
            self._take_in(self.observer.of_node(pod.node_name))
        if self.observer.coordinator.address:
            self._outputs.tell_coordinator()

    def reported(self, report: wire.Report) -> None:
        """A coordinator's report: milestones, then facts, each advancing the plan at once."""
        self._deadline.heard()
        if not self.observer.is_news(report):
            self._stepped()
            return
        begin, recorder = self._ports.clock.monotonic(), self._memory.recorder
        told = self.observer.of_report(report)
        recorder.new_report()
        self._memory.launch_seen(tuple(report.state.launched))
        if (loaded := self.observer.coordinator.newly_loaded(report, self.state.attempt)) is not None:
            recorder.checkpoint_loaded(loaded)
        for observed in told:
            if observed.mark is not None:
                recorder.mark(observed.mark, observed.time_ms, observed.step_before)
            if observed.event is not None:
                self._advance(observed.event, observed.time_ms)
        self._take_in(self.observer.of_coordinator())
        if self.observer.hardware.coordinator_heard():
            self._take_in(self.observer.hardware.look())
        self._memory.record_time(self.observer.training())
        if told:
            metrics.DECISION.observe(self._ports.clock.monotonic() - begin)
        self._outputs.status.publish(lazy=True)

    def _stepped(self) -> None:
        """A report without news, as one comes each second of a training."""
        if self._memory.stepped(self.observer.coordinator.step):
            self._outputs.status.publish(lazy=True)

    def coordinator_changed(self) -> None:
        """The channel came up, or went away."""
        if self.observer.coordinator.connected:
            self._outputs.tell_coordinator()
        self._take_in(self.observer.of_channel())
        self._outputs.status.publish()

    def stood_at(self, step: int, age_ms: int) -> None:
        """The coordinator of the attempt that was ended tells its last step."""
        self._memory.stood_at(step, age_ms)
        self._outputs.status.publish(lazy=True)

    def reach_changed(self, cut_off: str) -> None:
        """This operator is taken to be cut off from the coordinators (why), or is not any more (empty)."""
        coordinator = self.observer.coordinator
        if not coordinator.address or coordinator.connected:
            return
        if cut_off:
            self._announce(Announcement(EventReason.OPERATOR_CUT_OFF, cut_off))
        self._take_in(self.observer.of_channel())
        self._outputs.status.publish()

    def _look_at_start(self) -> None:
        """A start was held back for a while."""
        self._outputs.start_if_held()
        self._look_for_places()

    def _look_for_places(self) -> None:
        """Whether a start has all it needs."""
        if self.state.phase in UNTRAINED:
            self._take_in(self.observer.of_places(self._outputs.why_start_is_stuck()))
            self._take_in(self.observer.of_coordinator_place())

    def look_for_stranded(self, node: str, *, gone: bool = False) -> None:
        """A node turned, or was deleted: a pod may wait there in vain, or hang."""
        self._take_in(self.observer.of_node(node, gone=gone))
        if any(pod.is_spare or pod.deleting for pod in self.observer.pods.on_node(node)):
            self._loop.wake()

    def look_for_moves(self) -> None:
        """A node under this job was cordoned, or is in service again."""
        self._take_in(self._drains.moves())
        self._loop.wake()

    def look_for_faults(self, nodes: frozenset[str]) -> None:
        """Faults of these nodes, or of their chips, have changed."""
        self._take_in(self.observer.hardware.look(nodes))

    def breaker_changed(self, held: str) -> None:
        """Faults of nodes and chips are held back from now on (why), or believed again: people are told."""
        self._announce(of_breaker(held) if not self._memory.ended else None)
        self._take_in(self.observer.of_nodes())
        self._take_in(self.observer.hardware.look() if not held else ())
        self._outputs.status.publish()

    def places_changed(self) -> None:
        """Nodes were quarantined, or let in again: pods that wait may go there now."""
        self._loop.wake(hurry=True)
        self._outputs.status.publish(lazy=True)

    def look_for_capacity(self) -> None:
        """A node, or a pod of any job on one, came or went."""
        self._loop.capacity_changed()
        self._take_in(self.observer.of_capacity())

    def quota_changed(self) -> None:
        """What a quota refused may be created now, and a job that is not whole may grow, or no longer."""
        self._take_in(self.observer.of_capacity())
        refused = self.observer.pods.not_created
        if refused is not None and refused.over_quota:
            self._loop.try_soon()

    def say_again(self) -> None:
        """Something that is the same for all jobs has changed: their statuses tell it."""
        self._outputs.status.publish(lazy=True)

    def _deadline_reached(self, name: str) -> None:
        try:
            if name == Deadline.COORDINATOR:
                self.observer.silence_counts()
            self._advance(events.DeadlineReached(name=name))
        except Exception as error:  # in a timer nobody else would hear of it
            log.exception("%s: deadline %s", self._memory.title, name)
            self._broke(error)

    # ------------------------------------------------------------------------------- from the reconcile loop

    def admitted(self) -> None:
        """The job's pods may be made, and its coordinator may be dialled."""
        for pod in self.observer.pods.all():
            if self.observer.places.is_coordinator(pod):
                self._coordinator_pod_seen(pod, deleted=False)
        self._advance(events.PolicyChanged())  # the spec may have been edited while no operator looked
        self._look_for_places()
        self._deadline.arm(self._memory.deadlines)

    def refused(self) -> None:
        """Its pods cannot be made."""
        self._announce(Announcement(EventReason(self._admission.reason.word), self._admission.message))
        self._outputs.status.publish()

    def follow_spec(self) -> None:
        """Do what the spec asks for, and what is wanted of the nodes below."""
        self._take_in(self._loop.pause.look())
        self._take_in((*self.observer.of_spec(), *self._drains.moves(), *self.observer.hardware.sub_health()))
        self._take_in(self._drains.look())
        self._look_for_places()

    async def protect_pods(self) -> None:
        """Say how many of the pods evictions have to leave."""
        await self._drains.protect()

    def pod_forced(self, pod: PodView) -> None:
        """A pod is about to be deleted without grace; what ran in it may live on."""
        if pod.is_rank and pod.phase == "Running":
            self._advance(events.RanksUnreachable(nodes=(pod.node_name,)))

    def still_there(self, pods: list[PodView]) -> None:
        """The job is being deleted, and these pods do not go."""
        named = ", ".join(sorted(f"{pod.name} on {pod.node_name or 'no node'}" for pod in pods)[:3])
        self._announce(
            Announcement(EventReason.PODS_NOT_GONE, f"{len(pods)} pods have not ended, so the job stays: {named}")
        )

    def creation_tried(self, told: Announcement | None, *, news: bool, turned: bool) -> None:
        """All pods that should exist were asked for, or all exist."""
        self._announce(told)
        self._look_for_places()
        if news:
            self._outputs.status.publish(lazy=not turned)

    # --------------------------------------------------------------------------------------------- the plan

    def _take_in(self, seen: Seen) -> None:
        for event in tuple(seen):
            self._advance(event)

    def _advance(self, event: events.JobEvent, happened_ms: int | None = None) -> None:
        """One event through the table, and what follows from it."""
        before = self.state
        transition = self._memory.advance(event, self.observer.view(), happened_ms)
        if transition is None:
            return
        self._outputs.follow(before, transition.effects)
        self._follow_capacity()
        self._deadline.arm(self._memory.deadlines)
        self._loop.wake()

    def _follow_capacity(self) -> None:
        """Be told of nodes that come and go while the job waits for them."""
        watchers, uid = self._ports.capacity_watchers, self._memory.job.metadata.uid
        state = self.state
        waits = state.phase in {JobPhase.SHRUNK, JobPhase.GATHERING} or state.waiting is not None or state.nodes > 0
        (watchers.add if waits else watchers.discard)(uid)

    def _announce(self, told: Announcement | None) -> None:
        if told is not None:
            self._ports.announcer.announce(self._memory.job, told.reason, told.message, warning=told.warning)
