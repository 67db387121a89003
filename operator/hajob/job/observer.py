"""Observes one job: turns pods, coordinator and nodes into events and the planner's view.

It stores observations and decides nothing; `hajob.sources.observe` says which of them are events.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from hajob import metrics
from hajob.coordinator_link.channel import CoordinatorCredentials
from hajob.job.coordinator_client import CoordinatorClient, Owner
from hajob.job.hardware import JobHardware
from hajob.job.memory import JobMemory
from hajob.job.pod_index import PodIndex, is_coordinator, is_node_away, is_serving
from hajob.job.ports import Ports
from hajob.job.snapshot import JobSnapshots
from hajob.job.status.announcements import Announce
from hajob.leader.reachability import ExpectedCoordinator
from hajob.plan import events
from hajob.plan.placements import serving_incarnation
from hajob.plan.state import REMADE, UNTRAINED, WITHOUT_PODS, JobPhase
from hajob.plan.view import ClusterView
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources import observe
from hajob.sources.pod import PodView
from hajob.sources.report import Observed

log = logging.getLogger(__name__)

Seen = Iterable[events.JobEvent]


class JobObserver:
    """The observations of one job.

    Attributes:
        snapshots: of the job: its pods, and the nodes that could take them.
        hardware: the faults of these nodes and their chips.
        coordinator: the connection to it.
    """

    def __init__(self, memory: JobMemory, ports: Ports, owner: Owner, announce: Announce) -> None:
        self._memory, self._ports = memory, ports
        self.coordinator = CoordinatorClient(memory.job, ports, owner)
        reports = self.coordinator.reports
        self.snapshots = JobSnapshots(memory, ports.cluster, ports.pod_settings, ports.clock, reports)
        self.hardware = JobHardware(memory, self.snapshots, ports, announce)
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
            step_ms=memory.pace.step_ms,
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
            return observe.of_old_pod(pod, now) if is_old else ()
        if pod.finished and state.phase not in UNTRAINED:
            return observe.of_finished_pod(state, pod)
        if pod.is_refused:
            self._ports.cluster.avoided_nodes.add(pod.node_name, self._ports.clock.monotonic())
        return observe.of_pod(pod, deleted=deleted, now_ms=now)

    def of_nodes(self) -> Seen:
        """Return events of all nodes with pods of this job."""
        for name in self.pods.node_names:
            yield from self.of_node(name)

    def of_coordinator_pod(self, pod: PodView, credentials: CoordinatorCredentials | None, *, deleted: bool) -> Seen:
        """Dial the coordinator's pod, or close the link, because the pod changed or is gone.

        A successor is not dialled before it runs: until then the operator keeps talking to the pod that it replaces.
        """
        yield from observe.of_coordinator_pod(pod, deleted=deleted)
        if deleted or pod.ended:
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
        return observe.of_nodes(pods, self._ports.cluster.nodes, self._memory.time.now(), gone=gone)

    def of_end(self) -> Seen:
        """Return the end of the training if no pod has work left."""
        state, serving = self._memory.state, self.pods.serving(self._memory.state)
        ending = state.ending
        if not (serving.finished or ending is not None):
            return ()
        if ending is not None and ending.saved and not self.pods.complete:
            return ()  # who is absent is not known yet
        return observe.of_end(state, self._memory.layout.num_nodes, serving.finished, serving.pods)

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
        return observe.of_places(
            state, num_nodes, serving.pods, coordinator, self.snapshots.creation.why_missing, blocked=blocked
        )

    def of_coordinator_place(self) -> Seen:
        """Report whether the coordinator occupies a node that a rank pod of this start needs."""
        snapshot, unplaced = self.snapshots.take(), self.pods.serving(self._memory.state).unplaced
        return observe.of_coordinator_place(
            snapshot.state, snapshot.coordinator_pod, unplaced, snapshot.serving, snapshot.has_room
        )

    def of_capacity(self) -> Seen:
        """Return what follows from nodes, or pods of any job on one, that came or went."""
        snapshot = self.snapshots.take()
        return observe.of_capacity(snapshot.state, snapshot.policy, lambda: snapshot.free_nodes)

    def of_spec(self) -> Seen:
        """Return what the spec requests and the state does not show yet."""
        spec, state = self._memory.job.spec, self._memory.state
        if state.phase is JobPhase.PAUSED:
            return ()  # handled once the job trains again
        if self.snapshots.take().awaits_coordinator:
            return ()  # handled once the coordinator is heard, or given up
        seen = self._memory.follow_restart(observe.restart_asked(spec))
        return observe.of_spec(state, spec, seen)

    def is_news(self, report: wire.Report) -> bool:
        """Return whether a report says more than the newest step."""
        return observe.is_news(self._memory.state, report, self.coordinator.reports.before)

    def of_report(self, report: wire.Report) -> tuple[Observed, ...]:
        """Return the contents of a report as events."""
        now = self._memory.time.now()
        reading = observe.of_report(report, self.pods.serving(self._memory.state).pods, now)
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
        return observe.of_steps(self._memory.state, self.coordinator.reports.step)

    def of_coordinator(self) -> Seen:
        """Return events of the state in the coordinator's newest report."""
        client, memory = self.coordinator, self._memory
        return observe.of_coordinator(memory.state, client.reports.before, client.reports.now, memory.layout.num_nodes)

    def of_channel(self) -> Seen:
        """Report whether the coordinator's channel is up; nothing if only this operator cannot reach it.

        A coordinator whose containers do not all run yet has an address, but is not silent: it may be pulling images.
        """
        pod, up, nodes = self._coordinator_pod, self.coordinator.reports.connected, self._ports.cluster.nodes
        starts = not up and pod is not None and pod.phase == "Pending" and not is_node_away(pod, nodes)
        return () if self.cut_off or starts else (observe.of_channel(up=up),)

    def silence_counts(self) -> None:
        """Count the coordinator as silent: until more is known, its node is treated as dead."""
        pod = self._coordinator_pod
        if pod is not None and not pod.ended and not self.coordinator.reports.connected:
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
        if observe.is_silence(fact) and pod is not None:
            self.pods.silent.add(pod.uid)
        self._ports.cluster.avoid(fact.node_name)
