"""Observes one job: turns pods, coordinator and nodes into events and the planner's view.

It stores observations and decides nothing; `hajob.sources.observe` says which of them are events.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final

from hajob import metrics
from hajob.coordinator_link.channel import CoordinatorCredentials
from hajob.domain.hardware import ClusterFact
from hajob.job.coordinator_client import CoordinatorClient, Owner
from hajob.job.memory import JobMemory
from hajob.job.pod_index import PodIndex, is_coordinator, is_node_away, is_serving
from hajob.job.ports import Ports
from hajob.job.snapshot import JobSnapshots
from hajob.job.status.announcements import Announce, of_unknown_chip
from hajob.leader.reachability import ExpectedCoordinator
from hajob.plan import events
from hajob.plan.placements import serving_incarnation
from hajob.plan.state import REMADE, UNTRAINED, WITHOUT_PODS, JobPhase
from hajob.plan.view import ClusterView
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources import observe
from hajob.sources.chips import Seat
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView
from hajob.sources.report import Observed

log = logging.getLogger(__name__)

Seen = Iterable[events.JobEvent]

AGAIN_SECONDS: Final = 600.0
"""What a sick node asks for, and was refused, is asked for again after so long, and when the spec is edited."""

ASKED_LIMIT: Final = 1024
"""Sick chips that are remembered; a job of 64 nodes has as many chips."""


class JobObserver:
    """The observations of one job.

    Attributes:
        snapshots: of the job: its pods, and the nodes that could take them.
        coordinator: the connection to it.
    """

    def __init__(self, memory: JobMemory, ports: Ports, owner: Owner, announce: Announce) -> None:
        self._memory, self._ports = memory, ports
        self.coordinator = CoordinatorClient(memory.job, ports, owner)
        reports = self.coordinator.reports
        self.snapshots = JobSnapshots(memory, ports.cluster, ports.pod_settings, ports.clock, reports)
        self._announce = announce
        self._doubted: dict[int, frozenset[str]] = {}  # node rank to the faults of which its pod may have the chip
        self._sub_health_asked: dict[str, tuple[int, float, int]] = {}  # how often, when, under which generation
        self._waits = True  # what stood before this operator began is looked at once the coordinator is heard
        self._start_sign_ms: int | None = None  # when a starting attempt last made progress

    @property
    def pods(self) -> PodIndex:
        """Return the job's pods of every incarnation."""
        return self.snapshots.pods

    def view(self) -> ClusterView:
        """Return cluster and training in the planner's form."""
        memory, reports, serving = self._memory, self.coordinator.reports, self.pods.serving(self._memory.state)
        snapshot = self.snapshots.take()
        return ClusterView(
            layout=memory.layout,
            step=reports.step,
            coordinator_ready=reports.serving,
            taking_over=reports.taking_over,
            coordinator_silent=not reports.has_spoken,
            relieved_heard=self._hears_relieved,
            coordinator_apart=not snapshot.coordinator_shares_node,
            free_nodes=snapshot.free_nodes,
            start_nodes=snapshot.start_nodes,
            growth_refused=snapshot.growth_refused,
            spares=tuple(pod.node_name for pod in snapshot.ready_spares),
            unplaced=len(serving.unplaced),
            checkpoint_step=reports.checkpoint_step,
            loaded_step=reports.loaded_step(memory.state.attempt),
            node_names=serving.node_names,
            nodes_to_avoid=snapshot.to_avoid,
            start_sign_ms=self._start_sign_ms,
            step_ms=memory.pace.milliseconds_per_step,
            copies_told=reports.copies_told,
        )

    def training(self) -> ClusterView:
        """Return the view of the training alone, to record its time, without looking up the cluster."""
        unplaced = len(self.pods.serving(self._memory.state).unplaced)
        return ClusterView(layout=self._memory.layout, step=self.coordinator.reports.step, unplaced=unplaced)

    def of_pod(self, pod: PodView, *, deleted: bool) -> Seen:
        """Return events of a rank pod that changed or is gone; a replaced one only tells why it ended."""
        now, state = self._memory.time.now(), self._memory.state
        if not is_serving(pod, state):
            is_old = state.incident is not None and pod.incarnation < serving_incarnation(state, pod.node_rank)
            return observe.events_of_old_pod(pod, now) if is_old else ()
        if pod.has_finished and state.phase not in UNTRAINED:
            return observe.events_of_finished_pod(state, pod)
        if pod.is_refused_by_node:
            self._ports.cluster.avoided_nodes.avoid_node(pod.node_name, self._ports.clock.monotonic())
        return observe.events_of_pod(pod, deleted=deleted, now_ms=now)

    def of_nodes(self) -> Seen:
        """Return events of all nodes with pods of this job."""
        for name in self.pods.node_names:
            yield from self.of_node(name)

    def of_coordinator_pod(self, pod: PodView, credentials: CoordinatorCredentials | None, *, deleted: bool) -> Seen:
        """Dial the coordinator's pod, or close the link, because the pod changed or is gone.

        A successor is not dialled before it runs: until then the operator keeps talking to the pod that it replaces.
        """
        yield from observe.events_of_coordinator_pod(pod, deleted=deleted)
        if deleted or pod.has_ended:
            self.coordinator.pod_lost()
        elif pod.address and credentials is not None and not (self._hears_relieved and pod.phase == "Pending"):
            self.coordinator.pod_is_at(pod, credentials)
            if not self.coordinator.reports.connected:
                yield from self.of_channel()

    def of_node(self, name: str, *, gone: bool = False) -> Seen:
        """Return events of a node that changed, went, or got a pod of this job; nothing while faults are held back."""
        if self._ports.cluster.faults.why_held():
            return ()
        job, state = self._memory.job, self._memory.state
        pods = [
            pod
            for pod in self.pods.on_node(name)
            if is_serving(pod, state) or (is_coordinator(pod, job, state) and not self._hears(pod))
        ]
        return observe.events_of_nodes(pods, self._ports.cluster.nodes, self._memory.time.now(), gone=gone)

    def of_end(self) -> Seen:
        """Return the end of the training if no pod has work left."""
        state, serving = self._memory.state, self.pods.serving(self._memory.state)
        ending = state.ending
        if not (serving.finished or ending is not None):
            return ()
        if ending is not None and ending.saved and not self.pods.complete:
            return ()  # who is absent is not known yet
        return observe.events_of_end(state, self._memory.layout.num_nodes, serving.finished, serving.pods)

    def of_places(self, blocked: str = "") -> Seen:
        """Report whether a start waits for quota or nodes, or for old pods (`blocked`: which)."""
        state, num_nodes, coordinator = self._memory.state, self._memory.layout.num_nodes, self._coordinator_pod
        serving = self.pods.serving(state)
        placed = len(serving.node_names) + (coordinator is not None and bool(coordinator.node_name))
        unplaced = serving.unplaced or (coordinator is not None and coordinator.unschedulable)
        if (state.waiting is None and not unplaced and self.snapshots.creation.why_missing is None and not blocked) or (
            state.waiting is not None and placed <= num_nodes
        ):
            return ()
        return observe.events_of_places(
            state, num_nodes, serving.pods, coordinator, self.snapshots.creation.why_missing, blocked=blocked
        )

    def of_coordinator_place(self) -> Seen:
        """Report whether the coordinator occupies a node that a rank pod of this start needs."""
        snapshot, unplaced = self.snapshots.take(), self.pods.serving(self._memory.state).unplaced
        return observe.events_of_coordinator_place(
            snapshot.state, snapshot.coordinator_pod, unplaced, snapshot.serving, snapshot.has_room
        )

    def of_capacity(self) -> Seen:
        """Return what follows from nodes, or pods of any job on one, that came or went."""
        snapshot = self.snapshots.take()
        return observe.events_of_capacity(snapshot.state, snapshot.policy, lambda: snapshot.free_nodes)

    def of_spec(self) -> Seen:
        """Return what the spec requests and the state does not show yet."""
        spec, state = self._memory.job.spec, self._memory.state
        if state.phase is JobPhase.PAUSED:
            return ()  # handled once the job trains again
        if self.snapshots.take().awaits_coordinator:
            return ()  # handled once the coordinator is heard, or given up
        seen = self._memory.follow_restart(observe.restart_asked(spec))
        return observe.events_of_spec(state, spec, seen)

    def is_news(self, report: wire.Report) -> bool:
        """Return whether a report says more than the newest step."""
        return observe.is_report_news(self._memory.state, report, self.coordinator.reports.before)

    def of_report(self, report: wire.Report) -> tuple[Observed, ...]:
        """Return the contents of a report as events."""
        now = self._memory.time.now()
        reading = observe.events_of_report(report, self.pods.serving(self._memory.state).pods, now)
        self._start_sign_ms = observe.start_sign_ms(self._memory.state, report, now)
        for what in reading.refused:
            metrics.REFUSED.labels(what).inc()
            log.warning("%s: the coordinator reports what this operator does not know: %s", self._memory.title, what)
        for observed in reading.observed:
            if isinstance(observed.event, events.FactSeen):
                self._remember(observed.event)
        return reading.observed

    def of_steps(self) -> Seen:
        """Return what follows from the newest finished step alone."""
        return observe.events_of_steps(self._memory.state, self.coordinator.reports.step)

    def of_coordinator(self) -> Seen:
        """Return events of the state in the coordinator's newest report."""
        client, memory = self.coordinator, self._memory
        return observe.events_of_coordinator(
            memory.state, client.reports.before, client.reports.now, memory.layout.num_nodes
        )

    def of_channel(self) -> Seen:
        """Report whether the coordinator's channel is up; nothing if only this operator cannot reach it.

        A coordinator whose containers do not all run yet has an address, but is not silent: it may be pulling images.
        """
        pod, up, nodes = self._coordinator_pod, self.coordinator.reports.connected, self._ports.cluster.nodes
        starts = not up and pod is not None and pod.phase == "Pending" and not is_node_away(pod, nodes)
        return () if self.cut_off or starts else (observe.event_of_channel(up=up),)

    def silence_counts(self) -> None:
        """Count the coordinator as silent: until more is known, its node is treated as dead."""
        pod = self._coordinator_pod
        if pod is not None and not pod.has_ended and not self.coordinator.reports.connected:
            self._ports.cluster.avoid(pod.node_name)

    @property
    def _coordinator_pod(self) -> PodView | None:
        return self.pods.coordinator(self._memory.job, self._memory.state)

    def _hears(self, coordinator: PodView) -> bool:
        """Whether the channel is to this pod, and not to its predecessor."""
        return self.coordinator.reports.connected and self.coordinator.incarnation == coordinator.incarnation

    @property
    def _hears_relieved(self) -> bool:
        """Whether the channel is still to the coordinator that a successor shall replace."""
        relieved = self._memory.state.relieved
        return bool(relieved) and self.coordinator.reports.connected and self.coordinator.incarnation == relieved

    @property
    def cut_off(self) -> bool:
        """Whether the coordinator is silent because this operator is cut off."""
        return bool(self.coordinator.address and not self.coordinator.reports.connected and self._ports.cut_off())

    def reach(self) -> ExpectedCoordinator | None:
        """Return whether the coordinator is reached; None where its silence says nothing about this operator.

        That is so while the job restarts, waits or ends, and in a start until the coordinator was heard once: Hajob
        itself ends those pods, and new ones listen only after a while.
        """
        pod, state = self._coordinator_pod, self._memory.state
        if pod is None or pod.phase != "Running" or pod.deleting or not self.coordinator.address:
            return None
        heard = self.coordinator.reports.now.state.attempt == state.attempt
        if state.phase in REMADE or state.phase in WITHOUT_PODS or (state.phase in UNTRAINED and not heard):
            return None
        return ExpectedCoordinator(pod.node_name, self.coordinator.reports.connected)

    def _remember(self, seen: events.FactSeen) -> None:
        """Store what a fact says about nodes, for the code that creates or deletes pods there."""
        fact = seen.fact
        metrics.FACTS.labels(fact.kind.value).inc()
        if fact.kind not in observe.BAD_PLACES or fact.node_rank is None:
            return
        pod = self.pods.serving(self._memory.state).pods.get(fact.node_rank)
        if observe.is_fact_of_silence(fact) and pod is not None:
            self.pods.silent.add(pod.uid)
        self._ports.cluster.avoid(fact.node_name)

    # ------------------------------------------------------------------------------------- faults of hardware

    def waits_no_longer(self) -> bool:
        """Return, once, that faults which had to wait can be decided: the coordinator is heard, or given up."""
        # Asked after every report and every step of the table, so the common case, nothing waits, comes first.
        if not self._waits or self._must_wait():
            return False
        self._waits = False
        return True

    def of_hardware(self, nodes: Collection[str] = ()) -> Seen:
        """Yield the standing faults of this job's serving pods; `nodes`: only those, none given: all."""
        if self._must_wait():
            return
        pods = (
            [pod for name in nodes for pod in self.pods.on_node(name)]
            if nodes
            else self.pods.serving(self._memory.state).pods.values()
        )
        now, chips, resource = self._memory.time.now(), self._memory.layout.chips_per_node, self._resource
        for pod in [pod for pod in pods if is_serving(pod, self._memory.state)]:
            if pod.node_name and not pod.has_ended:
                node = self._ports.cluster.nodes.get(pod.node_name)
                faults = self._ports.cluster.faults.faults_on(pod.node_name)
                yield from observe.events_of_hardware(
                    pod, faults, node, resource=resource, chips_per_node=chips, now_ms=now
                )
                self._tell_doubts(pod, [fact for fact, _ in faults], node)
        yield from self.of_sub_health(nodes)
        yield from self._withdrawn()

    def of_sub_health(self, nodes: Collection[str] = ()) -> Iterable[events.FactSeen]:
        """Yield sub-health of nodes that still work, again periodically, and only where there is a better node."""
        if self._must_wait():
            return
        memory, monotonic = self._memory, self._ports.clock.monotonic()
        sick = self._ports.cluster.marks.sub_healthy
        names = sick if not nodes else [name for name in nodes if name in sick]
        pods = [pod for name in names for pod in self.pods.on_node(name) if is_serving(pod, self._memory.state)]
        faults_on, views = self._ports.cluster.faults.faults_on, self._ports.cluster.nodes
        found = list(observe.events_of_sub_health(memory.state, memory.job.spec, pods, faults_on, views))
        snapshot = self.snapshots.take()
        held = {pod.node_name for pod in snapshot.ready_spares} if found else set()
        better = (held | snapshot.free_names).difference(sick) if found else ()
        for pod, fact, age_ms in found if better else ():
            key, generation = observe.fact_id_for_pod(fact, pod), memory.job.metadata.generation
            times, last, seen = self._sub_health_asked.get(key, (0, -AGAIN_SECONDS, generation))
            if monotonic - last >= AGAIN_SECONDS or generation != seen:
                self._sub_health_asked.pop(key, None)
                self._sub_health_asked[key] = (times + 1, monotonic, generation)
                if len(self._sub_health_asked) > ASKED_LIMIT:
                    del self._sub_health_asked[next(iter(self._sub_health_asked))]  # the longest ago
                again = f"{observe.AGAIN}{times}"
                chips, now = memory.layout.chips_per_node, memory.time.now()
                yield events.FactSeen(
                    fact=observe.fact_of_chip(pod, fact, age_ms, chips_per_node=chips, now_ms=now, again=again)
                )

    @property
    def _resource(self) -> str:
        return self._memory.job.spec.accelerator.resource_name

    def _tell_doubts(self, pod: PodView, faults: Iterable[ClusterFact], node: NodeView | None) -> None:
        """Announce, once each, the faults of chips of which nobody has told whether the pod has them."""
        doubted = {
            observe.fact_id_for_pod(fact, pod): fact
            for fact in faults
            if observe.concerns_pods(fact)
            and observe.seat_of_pod(pod, fact.chip_number, node, self._resource) is Seat.UNKNOWN
        }
        for key in doubted.keys() - self._doubted.get(pod.node_rank, frozenset()):
            self._announce(of_unknown_chip(pod.name, doubted[key]))
        self._doubted[pod.node_rank] = frozenset(doubted)

    def _must_wait(self) -> bool:
        """Whether no fault can be decided: MindIO may serve though the coordinator is not heard."""
        waits = self.snapshots.take().awaits_coordinator
        self._waits = self._waits or waits
        return waits

    def _withdrawn(self) -> Seen:
        """Yield faults that no longer stand, while the open incident has taken no action for them."""
        if self._memory.state.phase not in observe.NOT_ACTED:
            return
        standing: set[str] = set()
        for pod in self.pods.all():
            ids = self._ports.cluster.faults.standing_faults(pod.node_name) if pod.node_name else ()
            if ids is None:
                return  # the standing faults are unknown now
            standing.update(observe.fact_id_for_pod(fact, pod) for fact in ids)
        yield from observe.events_of_withdrawn(self._memory.state, standing)
