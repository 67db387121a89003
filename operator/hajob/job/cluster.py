"""The cluster as all jobs see it: nodes and what is free on them, and those that are sick, full of trouble or promised.

It only looks up. What one job makes of it, for its own pods, is in hajob.job.snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from hajob.api.job import HATrainingJob
from hajob.capacity.avoided_nodes import AvoidedNodes
from hajob.capacity.demand import Demand, is_kept_off
from hajob.capacity.drains import Openings
from hajob.capacity.nodes import Capacity
from hajob.capacity.parts_of_nodes import PluginPod, why_parts_refused
from hajob.capacity.pod_groups import PodGroups
from hajob.capacity.queues import Queues
from hajob.capacity.quotas import Quotas
from hajob.capacity.start_queue import StartQueue
from hajob.clock import Clock
from hajob.domain.errors import MALFORMED
from hajob.faults.node_faults import NodeFaults
from hajob.leader.reachability import Suspicion
from hajob.plan.policy import layout_from_spec
from hajob.sources.node import NodeView


@dataclass(frozen=True, slots=True)
class NodeMarks:
    """Names of the nodes that are marked: sets that whoever marks them keeps up to date.

    Attributes:
        quarantined: on which nothing new is placed.
        kept_out: with isolated chips: rather nothing new is placed there.
        sub_healthy: that work, but not well.
    """

    quarantined: AbstractSet[str] = frozenset()
    kept_out: AbstractSet[str] = frozenset()
    sub_healthy: AbstractSet[str] = frozenset()


class Cluster:
    """The nodes, and what all jobs share of them.

    Args:
        clock: of the machine.
        capacity: nodes, and what occupies their chips.
        faults: of nodes and chips.
        marks: of nodes.
        quotas: of all namespaces.

    Attributes:
        suspicion: whether this operator is cut off from the coordinators.
        crd_is_older: what the installed CRD lacks, in a sentence; empty: nothing.
        avoided_nodes: where a job had trouble a moment ago.
        starts: jobs that need nodes, and which of them may have some.
        queues: what Kueue has said of the Workloads of jobs.
        openings: when each job's budgets let unannounced evictions through.
        pod_groups: what is known of Volcano.
        watchers: UIDs of the jobs that wait for nodes: they are told of each change.
        plugin_pods: pods of MindCluster's device plugin, by namespace and name.
    """

    def __init__(
        self,
        clock: Clock,
        capacity: Capacity,
        faults: NodeFaults | None = None,
        marks: NodeMarks | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self._clock, self._capacity = clock, capacity
        self.pod_groups = PodGroups()
        self.faults = faults if faults is not None else NodeFaults()
        self.marks = marks if marks is not None else NodeMarks()
        self.quotas = quotas if quotas is not None else Quotas()
        self.suspicion, self.crd_is_older = Suspicion(), ""
        self.avoided_nodes, self.starts, self.openings = AvoidedNodes(), StartQueue(), Openings()
        self.queues = Queues()
        self.watchers: set[str] = set()
        self.plugin_pods: dict[str, PluginPod] = {}

    @property
    def capacity(self) -> Capacity:
        """Return the nodes and what occupies their chips."""
        return self._capacity

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        """Return nodes by name."""
        return self.capacity.nodes

    def note_device_plugin(self, key: str, plugin: PluginPod | None) -> None:
        """Note a pod of the device plugin, by namespace and name; None: it is gone, or none of them."""
        if plugin is None:
            self.plugin_pods.pop(key, None)
        else:
            self.plugin_pods[key] = plugin

    def why_parts_refused(self, job: HATrainingJob) -> str:
        """Return why the device plugin would refuse the job's pods, which want a part of a node's chips; else empty."""
        if not self.plugin_pods:
            return ""
        try:
            demand = Demand.from_spec(job.spec, layout_from_spec(job.spec))
        except MALFORMED:  # the API server says it better
            return ""
        return why_parts_refused(demand, self.nodes.values(), self.plugin_pods)

    def may_start(self, job_uid: str) -> bool:
        """Return whether all pods of a waiting job may be scheduled now."""
        return self.starts.may_start(job_uid, self._clock.monotonic(), self.capacity, self.marks.quarantined)

    def room_to_grow(self, job_uid: str) -> int | None:
        """Return how many nodes a shrunk job may have after the jobs ahead of it; None: it wants none.

        Nodes with isolated chips do not count, nor do those that fell silent: a job that grows onto one shrinks again.
        """
        closed = {*self.marks.quarantined, *self.marks.kept_out, *self.silent_nodes()}
        return self.starts.room_to_grow(job_uid, self.capacity, closed, self.quotas)

    def avoid_node(self, node: str) -> None:
        """Avoid this node for starts for a while, because of trouble there."""
        self.avoided_nodes.avoid_node(node, self._clock.monotonic(), self._boot_of_node(node))

    def silent_nodes(self) -> set[str]:
        """Return nodes that may only look ready: they had trouble a moment ago, and have not restarted since."""
        return self.avoided_nodes.not_restarted(self._clock.monotonic(), self._boot_of_node)

    def _boot_of_node(self, name: str) -> str:
        node = self.nodes.get(name)
        return node.boot if node is not None else ""

    def nodes_avoided_now(self) -> list[str]:
        """Return nodes that a start takes only if it finds no others, the likeliest to be well first.

        A job had trouble with them a moment ago (the longest ago first), or they are sub-healthy, or have bad chips.
        """
        troubled = self.avoided_nodes.avoided_names(self._clock.monotonic())
        return list(dict.fromkeys((*troubled, *sorted(self.marks.sub_healthy), *sorted(self.marks.kept_out))))

    def count_free_nodes(
        self, job: HATrainingJob, demand: Demand, own_nodes: AbstractSet[str], closed: Collection[str] = ()
    ) -> int:
        """Return how many nodes could take a rank pod of this job now, beyond those that it has and `closed`."""
        return self.capacity.count_free_for(demand, job.metadata.uid, own_nodes, {*self.marks.kept_out, *closed})

    def nodes_to_avoid(self, job: HATrainingJob, demand: Demand, need: int) -> set[str]:
        """Return the names of the nodes on which no start of this job should go."""
        return self.capacity.nodes_to_avoid(demand, job.metadata.uid, need, self.nodes_avoided_now())

    def nodes_to_refuse(self, demand: Demand, missing: int) -> set[str]:
        """Return the names of the nodes on which none of this many new pods may be placed.

        Quarantined ones in any case; sub-healthy ones, and those with bad chips, only where there are enough others.
        """
        refused = {*self.marks.quarantined, *self.nodes_drained_for(demand.tolerations)}
        weak = {*self.marks.kept_out, *self.marks.sub_healthy}
        capacity = self.capacity
        if weak - refused and capacity.pods_placeable_on(capacity.free_nodes(demand) - weak) >= missing:
            refused |= weak
        return refused

    def nodes_drained_for(self, tolerations: Collection[Mapping[str, Any]]) -> set[str]:
        """Return the nodes that are to be emptied and off which only Hajob keeps pods that tolerate this."""
        capacity = self.capacity
        return {name for name in capacity.to_be_emptied if not is_kept_off(capacity.nodes[name], tolerations)}

    def free_node_names(self, demand: Demand) -> set[str]:
        """Return the names of the nodes that could take a rank pod now, chips included."""
        return self.capacity.free_nodes(demand).difference(self.marks.kept_out)
