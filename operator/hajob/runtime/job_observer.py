"""Looks at one job: what is known of its pods, its coordinator and the nodes, as events and as the planner's view.

It remembers what it has seen, and decides nothing; what is an event is said by `hajob.sources.observe`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final

from hajob.api.conditions import Reason
from hajob.cluster.reachability import Coordinator
from hajob.plan import events
from hajob.plan.state import UNTRAINED, JobPhase, JobState
from hajob.plan.view import ClusterView
from hajob.protocol import sidecar_pb2 as wire
from hajob.runtime import metrics
from hajob.runtime.channel import CoordinatorCredentials
from hajob.runtime.coordinator_client import CoordinatorClient, Owner
from hajob.runtime.deadline_timer import HEAR_SECONDS
from hajob.runtime.job_memory import JobMemory
from hajob.runtime.pod_index import PodIndex, coordinator_name, is_coordinator, is_serving
from hajob.runtime.ports import Ports
from hajob.scheduling.demand import Demand
from hajob.sources import observe
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView
from hajob.sources.report import Observed

log = logging.getLogger(__name__)

Seen = Iterable[events.JobEvent]

REMADE: Final = frozenset({JobPhase.PENDING, JobPhase.RESTARTING})
"""Phases in which a pod that is deleted is made anew, and nothing else follows."""

MOVE_AGAIN_SECONDS: Final = 600.0
"""A move that was refused or given up is asked for again after so long, or when the spec is edited."""


class JobObserver:
    """What is seen of one job.

    Attributes:
        pods: of the job, whatever their incarnation.
        coordinator: the conversation with it.
    """

    def __init__(self, memory: JobMemory, ports: Ports, owner: Owner) -> None:
        self._memory, self._ports = memory, ports
        self.pods = PodIndex()
        self.coordinator = CoordinatorClient(memory.job, ports, owner)
        self._places: tuple[object, tuple[str, ...]] = (None, ())
        self._asked: tuple[int, Demand] | None = None
        self._boots: dict[str, tuple[str, str]] = {}
        self._move_asked: tuple[object, float] = (None, 0.0)
        self._sub_health_asked: dict[str, tuple[int, float]] = {}
        self._start_sign_ms: int | None = None  # when the attempt that starts was last seen to go on
        self._began, self._heard = ports.clock.monotonic(), False

    def serving(self) -> observe.Pods:
        """Node rank to the pod that serves it."""
        return self.pods.serving(self._memory.state).pods

    def view(self) -> ClusterView:
        """Cluster and training, as the planner looks at them."""
        memory, coordinator, serving = self._memory, self.coordinator, self.pods.serving(self._memory.state)
        return ClusterView(
            layout=memory.layout,
            step=coordinator.step,
            coordinator_ready=coordinator.serving,
            coordinator_apart=not self.coordinator_shares_node(),
            free_nodes=self._free_nodes(),
            unplaced=len(serving.unplaced),
            checkpoint_step=coordinator.checkpoint_step,
            node_names=serving.node_names,
            nodes_to_avoid=self._nodes_to_avoid(),
            start_sign_ms=self._start_sign_ms,
            copies_told=False if Reason.COPIES_NOT_REGISTERED.word in coordinator.problems else None,
        )

    def training(self) -> ClusterView:
        """The training alone, for who books its time; of the cluster nothing is looked up."""
        unplaced = len(self.pods.serving(self._memory.state).unplaced)
        return ClusterView(layout=self._memory.layout, step=self.coordinator.step, unplaced=unplaced)

    def coordinator_shares_node(self) -> bool:
        """Whether the coordinator runs on a node of one of its ranks."""
        pod = self.coordinator_pod()
        return pod is not None and any(one.is_rank for one in self.pods.on_node(pod.node_name))

    def coordinator_pod(self) -> PodView | None:
        """The coordinator's pod that should be there, if it is."""
        return self.pods.pods.get(coordinator_name(self._memory.job, self._memory.state))

    def demand(self) -> Demand:
        """What each rank pod needs of its node."""
        generation = self._memory.job.metadata.generation
        if self._asked is None or self._asked[0] != generation:
            self._asked = (generation, Demand.of(self._memory.job.spec, self._memory.layout))
        return self._asked[1]

    def _nodes_to_avoid(self) -> tuple[str, ...]:
        """Looked up anew only where something about nodes, pods or the spec has changed."""
        job, ports, capacity = self._memory.job, self._ports, self._ports.capacity()
        avoided = ports.avoided()
        if not avoided and not capacity.not_ready:
            return ()
        seen = (capacity.changes, avoided, job.metadata.generation)
        if seen != self._places[0]:
            need = self._memory.layout.num_nodes
            self._places = (seen, tuple(sorted(ports.nodes_to_avoid(job, self.demand(), self.pods.node_names, need))))
        return self._places[1]

    def _free_nodes(self) -> int:
        return self._ports.free_nodes(self._memory.job, self.demand(), self.pods.node_names)

    def is_serving(self, pod: PodView) -> bool:
        """Whether a pod is the one that its node rank should have."""
        return is_serving(pod, self._memory.state)

    def is_coordinator(self, pod: PodView) -> bool:
        """Whether it is the coordinator's pod that should be there."""
        return is_coordinator(pod, self._memory.job, self._memory.state)

    def of_pod(self, pod: PodView, *, deleted: bool) -> Seen:
        """A pod that serves has changed, or is gone."""
        return observe.of_pod(pod, deleted=deleted, now_ms=self._memory.time.now())

    def hears_first(self) -> bool:
        """The coordinator has reported; whether this operator hears it for the first time."""
        first, self._heard = not self._heard, True
        return first

    def _knows_what_works(self) -> bool:
        """Whether it can be judged what a fault asks for: MindIO may serve though its coordinator was not heard yet."""
        waited = self._ports.clock.monotonic() - self._began >= HEAR_SECONDS
        return self._heard or waited or self._memory.state.phase in UNTRAINED

    def of_hardware(self, nodes: Collection[str] = ()) -> Seen:
        """Faults that stand where pods of this job serve; `nodes`: only those, none given: all."""
        if not self._knows_what_works():
            return
        pods = [pod for name in nodes for pod in self.pods.on_node(name)] if nodes else self.serving().values()
        now, chips = self._memory.time.now(), self._memory.layout.chips_per_node
        for pod in [pod for pod in pods if self.is_serving(pod)]:
            if pod.node_name and not pod.ended:
                yield from observe.of_hardware(pod, self._ports.faults_on(pod.node_name), chips, now)
        yield from self.of_sub_health(nodes)
        yield from self.of_withdrawn()

    def of_sub_health(self, nodes: Collection[str] = ()) -> Seen:
        """What stands on a node that still works is asked for again now and then, and only where there is a better."""
        memory, monotonic = self._memory, self._ports.clock.monotonic()
        sick = self._ports.sub_healthy()
        names = sick if not nodes else [name for name in nodes if name in sick]
        pods = [pod for name in names for pod in self.pods.on_node(name) if self.is_serving(pod)]
        found = list(observe.of_sub_health(memory.state, memory.job.spec, pods, self._ports.faults_on))
        better = self._ports.free_names(self.demand()).difference(sick) if found else ()
        for pod, fact, age_ms in found if better else ():
            key = observe.fact_id(fact, pod)
            times, last = self._sub_health_asked.get(key, (0, -MOVE_AGAIN_SECONDS))
            if monotonic - last >= MOVE_AGAIN_SECONDS:
                self._sub_health_asked[key] = (times + 1, monotonic)
                again = f"{observe.AGAIN}{times}"
                chips, now = memory.layout.chips_per_node, memory.time.now()
                yield events.FactSeen(
                    fact=observe.of_chip(pod, fact, age_ms, chips_per_node=chips, now_ms=now, again=again)
                )

    def of_withdrawn(self) -> Seen:
        """Faults that do not stand any more, while the open incident has done nothing for them yet."""
        if self._memory.state.phase not in observe.NOT_ACTED:
            return
        standing: set[str] = set()
        for pod in self.pods.all():
            ids = self._ports.standing(pod.node_name) if pod.node_name else ()
            if ids is None:
                return  # nobody can say now what stands
            standing.update(observe.fact_id(fact, pod) for fact in ids)
        yield from observe.of_withdrawn(self._memory.state, standing)

    def outdated(self) -> Iterable[PodView]:
        """Pods that wait for a node, though one is free by now that they were told to keep away from."""
        state = self._memory.state
        waiting = [pod for pod in self.serving().values() if pod.unschedulable and pod.excluded and not pod.deleting]
        returned = self.returned()
        if not waiting or (state.phase not in REMADE and not (state.phase is JobPhase.GATHERING and returned)):
            return ()
        free, avoided = self._ports.free_names(self.demand()), _avoided(state)
        open_now = free - avoided if state.phase in REMADE else set()
        return [pod for pod in waiting if not pod.excluded.isdisjoint(open_now | (free & returned))]

    def returned(self) -> set[str]:
        """Nodes that the open incident avoids, and that have started anew since and are well: they may be used again.

        What they were before is remembered by this operator; the next one waits for the incident to be over.
        """
        nodes, avoided = self._ports.nodes(), _avoided(self._memory.state)
        self._boots = {name: self._boots.get(name, _boot(nodes.get(name))) for name in avoided}
        well = {name for name in avoided if name in nodes and nodes[name].usable} - set(self._ports.kept_out())
        return {name for name in well if _boot(nodes[name]) != self._boots[name]}

    def refused(self, missing: int) -> Collection[str]:
        """Names of the nodes where none of so many pods may be placed that are made now."""
        return self._ports.nodes_to_refuse(self.demand(), missing)

    def of_nodes(self) -> Seen:
        """All nodes on which pods of this job are."""
        for name in self.pods.node_names:
            yield from self.of_node(name)

    def of_coordinator_pod(self, pod: PodView, credentials: CoordinatorCredentials | None, *, deleted: bool) -> Seen:
        """The coordinator's pod has changed, or is gone: dial it, or hang up."""
        yield from observe.of_coordinator_pod(pod, deleted=deleted)
        if deleted or pod.ended:
            self.coordinator.pod_lost()
        elif pod.address and credentials is not None:
            self.coordinator.pod_is_at(pod, credentials)
            if not self.coordinator.connected:
                yield from self.of_channel()

    def of_node(self, name: str) -> Seen:
        """A node turned, or a pod of this job was given to it; in a flood of such news nothing follows."""
        if self._ports.why_held():
            return ()
        pods = [pod for pod in self.pods.on_node(name) if self.is_serving(pod)]
        return observe.of_nodes(pods, self._ports.nodes(), self._memory.time.now())

    def of_end(self) -> Seen:
        """All pods may have finished."""
        state, num_nodes, serving = self._memory.state, self._memory.layout.num_nodes, self.pods.serving
        if not serving(state).finished:
            return ()
        return observe.of_end(state, num_nodes, serving(state).finished)

    def of_places(self) -> Seen:
        """Whether a start waits for quota or nodes."""
        state, num_nodes, coordinator = self._memory.state, self._memory.layout.num_nodes, self.coordinator_pod()
        serving = self.pods.serving(state)
        placed = len(serving.node_names) + (coordinator is not None and bool(coordinator.node_name))
        unplaced = serving.unplaced or (coordinator is not None and coordinator.unschedulable)
        if (state.waiting is None and not unplaced and self.pods.not_created is None) or (
            state.waiting is not None and placed <= num_nodes
        ):
            return ()
        return observe.of_places(state, num_nodes, serving.pods, coordinator, self.pods.not_created)

    def of_capacity(self) -> Seen:
        """A node, or a pod of any job on one, came or went."""
        return observe.of_capacity(self._memory.state, self._memory.policy, self._free_nodes)

    def of_spec(self) -> Seen:
        """What the spec asks for and was not followed yet."""
        spec = self._memory.job.spec
        seen = self._memory.follow_restart(observe.restart_asked(spec))
        yield from observe.of_spec(self._memory.state, spec, seen)
        yield from self.of_moves()
        yield from self.of_sub_health()

    def of_moves(self) -> Seen:
        """Pods that are to leave their nodes; a move that was refused is asked for again now and then."""
        spec = self._memory.job.spec
        for move in observe.of_moves(self._memory.state, spec, self.serving(), self._ports.nodes()):
            asked, now = (move, self._memory.job.metadata.generation), self._ports.clock.monotonic()
            if asked != self._move_asked[0] or now - self._move_asked[1] > MOVE_AGAIN_SECONDS:
                self._move_asked = (asked, now)
                yield move

    def drained(self) -> list[PodView]:
        """Pods whose nodes are to be emptied, the coordinator's among them."""
        pods = [*self.serving().values(), *filter(None, [self.coordinator_pod()])]
        return [pod for pod in pods if observe.is_drained(pod, self._ports.nodes())]

    def is_news(self, report: wire.Report) -> bool:
        """Whether a report says more than how far the training has come."""
        return observe.is_news(self._memory.state, report, self.coordinator.before)

    def of_report(self, report: wire.Report) -> tuple[Observed, ...]:
        """What a report tells."""
        now = self._memory.time.now()
        reading = observe.of_report(report, self.serving(), now)
        self._start_sign_ms = observe.start_sign_ms(self._memory.state, report, now)
        for what in reading.refused:
            metrics.REFUSED.labels(what).inc()
            log.warning("%s: the coordinator reports what this operator does not know: %s", self._memory.title, what)
        for observed in reading.observed:
            if isinstance(observed.event, events.FactSeen):
                self._remember(observed.event)
        return reading.observed

    def of_coordinator(self) -> Seen:
        """What the state in the coordinator's newest report says."""
        client, memory = self.coordinator, self._memory
        return observe.of_coordinator(memory.state, client.before, client.now, memory.layout.num_nodes)

    def of_channel(self) -> Seen:
        """Whether the coordinator is heard; of one that only this operator cannot reach, nothing is known."""
        return () if self.deaf else (observe.of_channel(up=self.coordinator.connected),)

    @property
    def deaf(self) -> bool:
        """Whether the coordinator is silent because this operator is cut off."""
        return bool(self.coordinator.address and not self.coordinator.connected and self._ports.cut_off())

    def reach(self) -> Coordinator | None:
        """Whether the coordinator is reached; None where there is none that has to answer."""
        pod = self.coordinator_pod()
        if pod is None or pod.phase != "Running" or pod.deleting or not self.coordinator.address:
            return None
        return Coordinator(pod.node_name, self.coordinator.connected)

    def unreachable(self, pod: PodView) -> bool:
        """Whether nobody on the pod's node could end it."""
        return self.pods.unreachable(pod, self._ports.nodes())

    def _remember(self, seen: events.FactSeen) -> None:
        """What a fact says about places, for whoever makes or deletes a pod there."""
        fact = seen.fact
        metrics.FACTS.labels(fact.kind.value).inc()
        if fact.kind not in observe.BAD_PLACES or fact.node_rank is None:
            return
        pod = self.serving().get(fact.node_rank)
        if observe.is_silence(fact) and pod is not None:
            self.pods.silent.add(pod.uid)
        self._ports.avoided_nodes.add(fact.node_name, self._ports.clock.monotonic())


def _avoided(state: JobState) -> set[str]:
    """Names of nodes that the open incident keeps pods away from."""
    return {name for names in state.avoided.values() for name in names}


def _boot(node: NodeView | None) -> tuple[str, str]:
    """Tells one start of a machine from the next, also when it is registered anew."""
    return ("", "") if node is None else (node.uid, node.boot)
