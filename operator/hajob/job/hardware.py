"""Faults of one job's nodes and chips, as events of its plan: faults, sub-health, and their ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from hajob.domain.hardware import ClusterFact
from hajob.job.memory import JobMemory
from hajob.job.pod_index import is_serving
from hajob.job.ports import Ports
from hajob.job.snapshot import JobSnapshots
from hajob.job.status.announcements import Announce, of_unknown_chip
from hajob.plan import events
from hajob.sources import observe
from hajob.sources.chips import Seat
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView

AGAIN_SECONDS: Final = 600.0
"""What a sick node asks for, and was refused, is asked for again after so long, and when the spec is edited."""

ASKED_LIMIT: Final = 1024
"""Sick chips that are remembered; a job of 64 nodes has as many chips."""


class JobHardware:
    """The faults of hardware that concern one job."""

    def __init__(self, memory: JobMemory, snapshots: JobSnapshots, ports: Ports, announce: Announce) -> None:
        self._memory, self._snapshots, self._announce = memory, snapshots, announce
        self._pods = snapshots.pods
        self._cluster, self._clock = ports.cluster, ports.clock
        self._doubted: dict[int, frozenset[str]] = {}  # node rank to the faults of which its pod may have the chip
        self._sub_health_asked: dict[str, tuple[int, float, int]] = {}  # how often, when, under which generation

        self._waits = True  # what stood before this operator began is looked at once the coordinator is heard

    def waits_no_longer(self) -> bool:
        """Return, once, that faults which had to wait can be decided: the coordinator is heard, or given up."""
        # Asked after every report and every step of the table, so the common case, nothing waits, comes first.
        if not self._waits or self._must_wait():
            return False
        self._waits = False
        return True

    def look(self, nodes: Collection[str] = ()) -> Iterable[events.JobEvent]:
        """Yield the standing faults of this job's serving pods; `nodes`: only those, none given: all."""
        if self._must_wait():
            return
        pods = (
            [pod for name in nodes for pod in self._pods.on_node(name)]
            if nodes
            else self._pods.serving(self._memory.state).pods.values()
        )
        now, chips, resource = self._memory.time.now(), self._memory.layout.chips_per_node, self._resource
        for pod in [pod for pod in pods if is_serving(pod, self._memory.state)]:
            if pod.node_name and not pod.ended:
                node = self._cluster.nodes.get(pod.node_name)
                faults = self._cluster.faults.faults_on(pod.node_name)
                yield from observe.of_hardware(pod, faults, node, resource=resource, chips_per_node=chips, now_ms=now)
                self._tell_doubts(pod, [fact for fact, _ in faults], node)
        yield from self.sub_health(nodes)
        yield from self._withdrawn()

    def sub_health(self, nodes: Collection[str] = ()) -> Iterable[events.FactSeen]:
        """Yield sub-health of nodes that still work, again periodically, and only where there is a better node."""
        if self._must_wait():
            return
        memory, monotonic = self._memory, self._clock.monotonic()
        sick = self._cluster.marks.sub_healthy
        names = sick if not nodes else [name for name in nodes if name in sick]
        pods = [pod for name in names for pod in self._pods.on_node(name) if is_serving(pod, self._memory.state)]
        faults_on, views = self._cluster.faults.faults_on, self._cluster.nodes
        found = list(observe.of_sub_health(memory.state, memory.job.spec, pods, faults_on, views))
        snapshot = self._snapshots.take()
        held = {pod.node_name for pod in snapshot.ready_spares} if found else set()
        better = (held | snapshot.free_names).difference(sick) if found else ()
        for pod, fact, age_ms in found if better else ():
            key, generation = observe.fact_id(fact, pod), memory.job.metadata.generation
            times, last, seen = self._sub_health_asked.get(key, (0, -AGAIN_SECONDS, generation))
            if monotonic - last >= AGAIN_SECONDS or generation != seen:
                self._sub_health_asked.pop(key, None)
                self._sub_health_asked[key] = (times + 1, monotonic, generation)
                if len(self._sub_health_asked) > ASKED_LIMIT:
                    del self._sub_health_asked[next(iter(self._sub_health_asked))]  # the longest ago
                again = f"{observe.AGAIN}{times}"
                chips, now = memory.layout.chips_per_node, memory.time.now()
                yield events.FactSeen(
                    fact=observe.of_chip(pod, fact, age_ms, chips_per_node=chips, now_ms=now, again=again)
                )

    @property
    def _resource(self) -> str:
        return self._memory.job.spec.accelerator.resource_name

    def _tell_doubts(self, pod: PodView, faults: Iterable[ClusterFact], node: NodeView | None) -> None:
        """Announce, once each, the faults of chips of which nobody has told whether the pod has them."""
        doubted = {
            observe.fact_id(fact, pod): fact
            for fact in faults
            if observe.concerns_pods(fact) and observe.seat_of(pod, fact.chip, node, self._resource) is Seat.UNKNOWN
        }
        for key in doubted.keys() - self._doubted.get(pod.node_rank, frozenset()):
            self._announce(of_unknown_chip(pod.name, doubted[key]))
        self._doubted[pod.node_rank] = frozenset(doubted)

    def _must_wait(self) -> bool:
        """Whether no fault can be decided: MindIO may serve though the coordinator is not heard."""
        waits = self._snapshots.take().awaits_coordinator
        self._waits = self._waits or waits
        return waits

    def _withdrawn(self) -> Iterable[events.JobEvent]:
        """Yield faults that no longer stand, while the open incident has taken no action for them."""
        if self._memory.state.phase not in observe.NOT_ACTED:
            return
        standing: set[str] = set()
        for pod in self._pods.all():
            ids = self._cluster.faults.standing(pod.node_name) if pod.node_name else ()
            if ids is None:
                return  # the standing faults are unknown now
            standing.update(observe.fact_id(fact, pod) for fact in ids)
        yield from observe.of_withdrawn(self._memory.state, standing)
