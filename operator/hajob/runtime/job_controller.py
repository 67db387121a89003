"""One job's controller: everything that happens to a job passes here, one thing at a time.

Inputs (the CR, pods, a coordinator's reports, deadlines) become events of the planner; the planner's effects become
levels: the newest order, the desired pods, the status. Orders go out in the same call in which a report came in: a
fault on its way to its command crosses no queue. Pods are made and deleted by a task behind it, only after the status
that holds the decision has been acknowledged (docs/decisions/0004-the-status-is-the-journal.md).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.conditions import Reason
from hajob.api.job import HATrainingJob
from hajob.api.status import HATrainingJobStatus
from hajob.domain.facts import Fact, FactKind
from hajob.domain.goodput import Account
from hajob.domain.timeline import Mark
from hajob.messages import orders
from hajob.objects.environment import rank_environment
from hajob.objects.naming import coordinator_pod_name
from hajob.objects.wanted_pods import apply
from hajob.plan import effects, events, machine
from hajob.plan.account import follow
from hajob.plan.policy import Policy, from_spec, layout_of
from hajob.plan.recoverability import recoverability
from hajob.plan.state import ENDED, JobState
from hajob.plan.view import ClusterView
from hajob.protocol import sidecar_pb2 as wire
from hajob.runtime import metrics
from hajob.runtime.admission import Admission
from hajob.runtime.clock import Clock, JobTime
from hajob.runtime.coordinator_client import CoordinatorClient
from hajob.runtime.deadline_timer import DeadlineTimer, restored
from hajob.runtime.expiry import Expiry
from hajob.runtime.incident_recorder import IncidentRecorder
from hajob.runtime.kube import ApiError
from hajob.runtime.pod_index import PodIndex, is_wanted
from hajob.runtime.pod_reconciler import PodReconciler, difference
from hajob.runtime.ports import Ports
from hajob.runtime.status_publisher import StatusPublisher
from hajob.runtime.status_writer import StatusRefusedError
from hajob.sources import observe
from hajob.sources.pod import PodView
from hajob.status import announcements
from hajob.status.build import RUNNING_REASON, CoordinatorView, Snapshot, build_status, goodput, is_urgent
from hajob.status.journal import Journal
from hajob.status.journal import read as read_journal

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
"""Between two tries when the API server refuses or cannot be reached."""
APART_SECONDS: Final = 10.0
"""A coordinator that finds no node of its own for so long may share one with a rank."""


class JobController:
    """All that happens to one job. Every method is called in the core's loop."""

    def __init__(
        self, job: HATrainingJob, ports: Ports, broke: Callable[[BaseException], None] = lambda _: None
    ) -> None:
        self.job = job
        self._ports = ports
        self._broke = broke
        reading = read_journal(job.status.journal, job.status.journal_version)
        for place in reading.left_out:
            metrics.REFUSED.labels("journal").inc()
            log.warning("%s: %s in the journal is left out, this version does not know it", self._title, place)
        self._journal, self._time = _continued(reading.journal, ports.clock)
        self._policy: Policy = from_spec(job.spec)
        self._layout = layout_of(job.spec)
        self._pods = PodIndex()
        self._unplaced: set[str] = set()
        self._coordinator = CoordinatorClient(job, ports, self)
        self._reconciler = PodReconciler(
            ports.kube, ports.pod_settings, lambda pod: self._pods.unreachable(pod, ports.nodes())
        )
        self._status = StatusPublisher(
            ports.clock, ports.status_writer(job), job.status, self._build_status, self._then_acknowledge
        )
        self._expiry = Expiry(ports.kube, ports.clock)
        self._admission = Admission(ports.kube, ports.clock, ports.pod_settings)
        self._recorder = IncidentRecorder(self._journal.record(), self._announce)
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._deadline = DeadlineTimer(ports.clock, self._time, self._deadline_reached)
        self._synced = False
        self._released = False

    # ------------------------------------------------------------------------------------------------- life

    def start(self) -> None:
        """Begin; pods that exist have been shown before."""
        self._tasks = [
            asyncio.create_task(self._reconcile_forever(), name=f"controller {self._title}"),
            asyncio.create_task(self._status.run(), name=f"status of {self._title}"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """A job controller without its tasks looks after nothing: it must be opened anew."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: %s has ended", self._title, task.get_name(), exc_info=error)
            self._broke(error)

    async def close(self) -> None:
        """Stop looking after the job, and leave it as it is."""
        self._released = True
        self._expiry.close()
        self._status.end()
        self._deadline.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._coordinator.close()

    async def release(self) -> None:
        """The CR is being deleted: delete its pods, then let go. Never raises.

        The owner references would delete the pods as well; here it is done at once, and without grace where a node is
        silent, so that the job can be applied again.
        """
        self._released = True
        self._advance(events.Deleted())
        for pod in self._pods.all():
            try:
                await self._reconciler.delete(pod)
            except ApiError as error:
                log.warning("%s: pod %s is left to its owner reference: %s", self._title, pod.name, error)
        await self.close()

    @property
    def _title(self) -> str:
        return f"{self.job.metadata.namespace}/{self.job.metadata.name}"

    @property
    def state(self) -> JobState:
        """What the planner remembers."""
        return self._journal.state

    # ----------------------------------------------------------------------------------------------- inputs

    def job_seen(self, job: HATrainingJob) -> None:
        """The CR as it is now; its status is ours and not taken back from the server."""
        before, self.job = self.job, job
        if job.metadata.generation == before.metadata.generation:
            return
        self._policy = from_spec(job.spec)
        self._admission.spec_changed()
        self._advance(events.PolicyChanged())
        self._wake.set()

    def pods_listed(self, version: str = "") -> None:
        """Every pod of a list of this resourceVersion has been shown: what is missing now is missing indeed."""
        self._synced = True
        self._pods.listed = version
        self._look_for_missed()
        self._wake.set()

    def _pod_made(self, raw: Json) -> None:
        self._pods.was_made(raw)
        self._look_for_missed()

    def _look_for_missed(self) -> None:
        """Of a pod that came and went while the watch was away nobody else tells."""
        for pod in self._pods.missed():
            self.pod_seen(pod, deleted=True)

    def pod_seen(self, pod: PodView, *, deleted: bool = False) -> None:
        """A pod of this job as it is now, or that it is gone."""
        if not self._pods.seen(pod, deleted=deleted):
            return
        if pod.role == names.ROLE_COORDINATOR:
            self._coordinator_pod_seen(pod, deleted=deleted)
        elif is_wanted(pod, self._journal.pods):
            self._advance_all(observe.of_pod(pod, deleted=deleted, now_ms=self._time.now()))
            self.look_for_stranded()
            if not deleted and not pod.ended:
                self._assign()
            self._advance_all(observe.of_end(self.state, self._layout.num_nodes, self._serving()))
        self._publish(lazy=True)
        self._wake.set()

    def _coordinator_pod_seen(self, pod: PodView, *, deleted: bool) -> None:
        wanted = self._journal.pods
        if pod.name != coordinator_pod_name(self.job, wanted.coordinator, apart=wanted.apart):
            return
        if pod.unschedulable and wanted.apart and pod.name not in self._unplaced:
            self._unplaced.add(pod.name)
            self._ports.clock.call_later(APART_SECONDS, self._still_unplaced, pod.name)
        if deleted or pod.ended:
            self._coordinator.pod_lost()
            self._advance_all(observe.of_coordinator_pod(pod, deleted=deleted))
        elif pod.address and self._admission.credentials is not None:
            self._coordinator.pod_is_at(pod, self._admission.credentials)
            if not self._coordinator.connected:
                self._advance(observe.of_channel(up=False))
            self._assign()
            self._send_order()

    def _still_unplaced(self, name: str) -> None:
        """Where no node is free of ranks, a coordinator beside a rank is better than none."""
        pod = self._pods.pods.get(name)
        if pod is not None and pod.unschedulable and not self._released:
            wanted = dataclasses.replace(self._journal.pods, apart=False)
            self._journal = dataclasses.replace(self._journal, pods=wanted)
            self._announce("CoordinatorSharesNode", "no node is free of ranks; the coordinator may share one", True)
            self._publish()
            self._wake.set()

    def reported(self, report: wire.Report) -> None:
        """A coordinator's report: milestones, then facts, each advancing the plan at once."""
        begin = self._ports.clock.monotonic()
        now = self._time.now()
        reading = observe.of_report(report, self._serving(), now)
        for what in reading.refused:
            metrics.REFUSED.labels(what).inc()
            log.warning("%s: the coordinator reports something this operator does not know: %s", self._title, what)
        self._recorder.new_report()
        self._deadline.heard()
        if (loaded := self._coordinator.newly_loaded(report, self.state.attempt)) is not None:
            self._recorder.checkpoint_loaded(loaded)
        for observed in reading.observed:
            if observed.mark is not None:
                self._recorder.mark(observed.mark, observed.time_ms, observed.step_before)
            if isinstance(observed.event, events.FactSeen):
                self._remember(observed.event.fact)
            if observed.event is not None:
                self._advance(observed.event)
        client = self._coordinator
        self._advance_all(observe.of_coordinator(self.state, client.before, client.now, self._layout.num_nodes))
        if reading.observed:
            metrics.DECISION.observe(self._ports.clock.monotonic() - begin)
        self._publish(lazy=True)

    def _remember(self, fact: Fact) -> None:
        """What a fact says about places, for whoever makes or deletes a pod there."""
        metrics.FACTS.labels(fact.kind.value).inc()
        if fact.kind is FactKind.AGENT_SILENT and (pod := self._serving().get(fact.node_rank or 0)) is not None:
            self._pods.silent.add(pod.uid)
        if fact.kind in {FactKind.AGENT_SILENT, FactKind.PORT_TAKEN}:
            self._ports.avoided_nodes.add(fact.node_name, self._ports.clock.monotonic())

    def coordinator_changed(self) -> None:
        """The channel came up, or went away."""
        if self._coordinator.connected:
            self._assign()
            self._send_order()
        self._advance(observe.of_channel(up=self._coordinator.connected))
        self._publish()

    def look_for_stranded(self) -> None:
        """A node turned, or a pod of this job was given to one: a pod may wait there in vain."""
        pods = self._serving().values()
        self._advance_all(observe.of_nodes(pods, self._ports.nodes(), self._time.now()))

    def look_for_capacity(self) -> None:
        """A node, or a pod of any job on one, came or went."""
        free = partial(self._ports.free_nodes, self.job, self._layout)
        self._advance_all(observe.of_capacity(self.state, self._policy, free))

    def _homes(self) -> dict[int, str]:
        return {node_rank: pod.node_name for node_rank, pod in self._serving().items()}

    def _serving(self) -> observe.Pods:
        return self._pods.serving(self._journal.pods)

    # ------------------------------------------------------------------------------------------------- plan

    def _advance_all(self, seen: Iterable[events.JobEvent]) -> None:
        for event in tuple(seen):
            self._advance(event)

    def _view(self) -> ClusterView:
        return ClusterView(
            layout=self._layout,
            step=self._coordinator.step,
            coordinator_ready=self._coordinator.serving,
            coordinator_apart=not self._pods.coordinator_shares_node(),
            free_nodes=self._ports.free_nodes(self.job, self._layout),
            checkpoint_step=self._coordinator.checkpoint_step,
            node_names=self._homes(),
        )

    def _advance(self, event: events.JobEvent) -> None:
        """One event through the table, and its effects."""
        before = self.state
        now = self._time.now()
        outcome = machine.advance(before, event, self._view(), self._policy, now)
        if outcome.state is before and not outcome.effects:
            return
        log.info("%s: %s: %s -> %s", self._title, type(event).__name__, before.phase, outcome.state.phase)
        account = follow(self._journal.account or Account(now), outcome.state, self._layout.data, now)
        self._journal = dataclasses.replace(self._journal, state=outcome.state, account=account)
        self._recorder.follow(outcome.state.incident, event, max(self._coordinator.step, before.step))
        for effect in outcome.effects:
            self._take(effect)
        self._wish(outcome.effects)
        self._arm()
        self._publish(lazy=not is_urgent(before, outcome.state, outcome.effects))
        self._wake.set()

    def _take(self, effect: effects.Effect) -> None:
        if told := announcements.of_effect(effect):
            self._announce(told.reason, told.message, told.warning)
        match effect:
            case effects.SendOrder():
                self._journal = dataclasses.replace(self._journal, order=effect)
                self._recorder.mark(Mark.DECIDED, self._time.now())
                self._send_order()
            case effects.FailJob(reason, message):
                self._journal = dataclasses.replace(self._journal, failed_reason=reason, failed_message=message)
            case effects.CloseIncident():
                self._recorder.close(effect)
            case effects.CreateSparePods(node_ranks):
                log.warning("%s: spare pods for node ranks %s are not made by this version", self._title, node_ranks)

    def _wish(self, taken: tuple[effects.Effect, ...]) -> None:
        """What the effects of one event change about the pods that should exist; nodes are looked at once for all."""
        if not taken:
            return
        wanted = self._journal.pods
        homes = self._homes()
        starts = any(isinstance(effect, effects.CreateAllPods) for effect in taken)
        avoided = self._ports.nodes_to_avoid(self.job, self._layout) if starts else set()
        for effect in taken:
            wanted = apply(wanted, effect, homes, avoided)
        self._journal = dataclasses.replace(self._journal, pods=wanted)

    def _arm(self) -> None:
        self._deadline.arm({} if self.state.phase in ENDED else self.state.deadlines)

    def _deadline_reached(self, name: str) -> None:
        try:
            self._advance(events.DeadlineReached(name=name))
        except Exception as error:  # in a timer nobody else would hear of it
            log.exception("%s: deadline %s", self._title, name)
            self._broke(error)

    # ---------------------------------------------------------------------------------------------- outputs

    def _send_order(self) -> None:
        if self._journal.order is not None:
            self._coordinator.order(orders.order(self._journal.order))

    def _assign(self) -> None:
        pods = self._pods.ranks()
        self._coordinator.assign(
            lambda revision: orders.assignment(
                revision=revision,
                world_size=self._layout.world_size,
                ranks_per_node=self._layout.chips_per_node,
                attempt=self._journal.pods.attempt,
                environment=rank_environment(self.job),
                pods=pods,
                standing=orders.standing_orders(self._policy),
                recovery=self.job.spec.recovery,
                checkpoint_rules=orders.checkpoint_rules(self.job.spec.framework, self._layout),
            )
        )

    def _publish(self, *, lazy: bool = False) -> None:
        if not self._released:
            self._status.publish(lazy=lazy)

    def _then_acknowledge(self) -> Callable[[], None]:
        """Reports count as taken in only once what they led to is written: a leader killed before hears them again."""
        return partial(self._coordinator.acknowledge, self._coordinator.sequence)

    def _build_status(self, before: HATrainingJobStatus) -> HATrainingJobStatus:
        return build_status(self._snapshot(before))

    def _snapshot(self, before: HATrainingJobStatus) -> Snapshot:
        now = self._time.now()
        return Snapshot(
            job=self.job.model_copy(update={"status": before}),
            state=self.state,
            wanted=self._journal.pods,
            fence=self._ports.fence(),
            now_ms=now,
            step=self._coordinator.step,
            pods=self._pods.all(),
            coordinator=CoordinatorView(
                connected=self._coordinator.connected,
                serving=self._coordinator.serving,
                problem=self._coordinator.problem,
                shares_node=self._pods.coordinator_shares_node(),
                problems=self._coordinator.problems,
            ),
            accepted=self._admission.reason,
            accepted_message=self._admission.message,
            failed_reason=self._journal.failed_reason,
            failed_message=self._journal.failed_message,
            record=self._recorder.record,
            settled=self._recorder.settled,
            journal=self._journal.dump(now, self._recorder.record),
            goodput=goodput(self._journal.account, now),
            recoverability=recoverability(self.state, self._view(), self._policy) if self._trains else (),
        )

    @property
    def _trains(self) -> bool:
        return RUNNING_REASON[self.state.phase] is Reason.TRAINING

    def _announce(self, reason: str, message: str, warning: bool) -> None:
        self._ports.announcer.announce(self.job, reason, message, warning=warning)

    # --------------------------------------------------------------------------------------------- settling

    async def _reconcile_forever(self) -> None:
        """Admit the job, then keep its pods what they should be, for as long as the job controller is open."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._settle()
                await self._expire()
            except (ApiError, StatusRefusedError) as error:
                log.warning("%s: %s; trying again in %s s", self._title, error, RETRY_SECONDS)
            except Exception:
                log.exception("%s: an error of this program; trying again in %s s", self._title, RETRY_SECONDS)
            else:
                continue
            await self._ports.clock.sleep(RETRY_SECONDS)
            self._wake.set()

    async def _settle(self) -> None:
        if not self._synced or self._released:
            return
        if not self._admission.admitted and not await self._admit():
            return
        asked, seen = observe.restart_asked(self.job.spec), self._journal.restart_seen
        self._journal = dataclasses.replace(self._journal, restart_seen=asked)
        self._advance_all(observe.of_spec(self.state, self.job.spec, seen))
        todo = difference(self.job, self._journal.pods, self._pods.pods, self._pods.gone | self._pods.made.keys())
        if self.state.phase in ENDED:
            todo = dataclasses.replace(todo, surplus=tuple(pod for pod in todo.surplus if not pod.ended))
        if todo.empty:
            return
        wanted = self._journal.pods
        await self._status.acknowledged()
        if wanted == self._journal.pods and not self._released:
            await self._reconciler.carry_out(self.job, wanted, todo, self._pod_made)

    async def _expire(self) -> None:
        """An ended job is deleted in its time, once its end is written down."""
        counts = self.state.phase in ENDED and self.job.spec.ttl_seconds_after_finished is not None
        if counts:
            await self._status.acknowledged()
        if not self._released:
            self._expiry.follow(self.job, self._status.current.completion_time if counts else None)

    async def _admit(self) -> bool:
        admission = self._admission
        if not await admission.ask(self.job):
            self._announce(admission.reason.word, admission.message, True)
            self._publish()
            return False
        for pod in self._pods.all():
            if pod.role == names.ROLE_COORDINATOR:
                self._coordinator_pod_seen(pod, deleted=False)
        self._arm()
        return True


def _continued(journal: Journal, clock: Clock) -> tuple[Journal, JobTime]:
    """A journal for the operator that goes on with it, and the time by which it does."""
    time = JobTime(clock, journal.written_ms)
    state = dataclasses.replace(
        journal.state, deadlines=restored(journal.state.deadlines, journal.written_ms, time.now())
    )
    return dataclasses.replace(journal, state=state), time
