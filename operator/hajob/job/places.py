"""The nodes of one job's pods, the pods that serve, and the nodes that could take more.

It only looks up: it decides nothing and makes no events; expensive results are cached until they may differ.
"""

from __future__ import annotations

from collections.abc import Collection

from hajob.api.enums import CordonPolicy, SubHealthPolicy
from hajob.capacity.demand import Demand
from hajob.capacity.quotas import Ask
from hajob.capacity.spares import ready_spares
from hajob.job.cluster import Cluster
from hajob.job.memory import JobMemory
from hajob.job.pod_index import PodIndex, coordinator_name, is_coordinator, is_serving
from hajob.plan.state import JobPhase
from hajob.plan.waits import nodes_to_return
from hajob.sources import observe
from hajob.sources.pod import PodView


class JobPlaces:
    """The nodes of one job.

    Attributes:
        pods: of the job, of every incarnation.
    """

    def __init__(self, memory: JobMemory, cluster: Cluster) -> None:
        self._memory, self._cluster = memory, cluster
        self.pods = PodIndex()
        self._avoided: tuple[object, tuple[str, ...]] = (None, ())
        self._asked: tuple[int, Demand] | None = None

    # ------------------------------------------------------------------------------------------------ taken

    def serving(self) -> dict[int, PodView]:
        """Return node rank to the pod that serves it."""
        return self.pods.serving(self._memory.state).pods

    def is_serving(self, pod: PodView) -> bool:
        """Return whether a pod is the desired one of its node rank."""
        return is_serving(pod, self._memory.state)

    def coordinator_pod(self) -> PodView | None:
        """Return the coordinator's desired pod, if it exists."""
        return self.pods.pods.get(coordinator_name(self._memory.job, self._memory.state))

    def is_coordinator(self, pod: PodView) -> bool:
        """Return whether it is the coordinator's desired pod."""
        return is_coordinator(pod, self._memory.job, self._memory.state)

    def coordinator_shares_node(self) -> bool:
        """Return whether the coordinator runs on a node of one of its ranks."""
        pod = self.coordinator_pod()
        return pod is not None and any(one.is_rank for one in self.pods.on_node(pod.node_name))

    def unreachable(self, pod: PodView) -> bool:
        """Return whether nothing on the pod's node could end it."""
        return self.pods.unreachable(pod, self._cluster.nodes)

    def node_is_away(self, pod: PodView) -> bool:
        """Return whether the API server reports that nothing on the pod's node could end it."""
        node = self._cluster.nodes.get(pod.node_name)
        return bool(pod.node_name) and (node is None or not node.ready)

    # ------------------------------------------------------------------------------------------------- free

    def demand(self) -> Demand:
        """Return what each rank pod needs of its node."""
        generation = self._memory.job.metadata.generation
        if self._asked is None or self._asked[0] != generation:
            self._asked = (generation, Demand.of(self._memory.job.spec, self._memory.layout))
        return self._asked[1]

    def ask(self) -> Ask:
        """Return what one more rank pod uses of the quotas; nothing if no pod shows it."""
        job, like = self._memory.job, next(iter(self.serving().values()), None)
        priority_class = str(job.spec.template["spec"].get("priorityClassName") or "")
        return Ask(job.metadata.namespace, like.use if like is not None else (), priority_class)

    def growth_refused(self) -> str:
        """Return the quotas without room for the pods of a growth, in words; empty: all of them are allowed."""
        memory = self._memory
        need = len(nodes_to_return(memory.state, memory.policy, memory.time.now()))
        allowed = self._cluster.quotas.allowed(self.ask()) if need else None
        return allowed.told if allowed is not None and allowed.pods < need else ""

    def free_names(self) -> set[str]:
        """Return the nodes that could take a rank pod now, chips included."""
        return self._cluster.free_names(self.demand())

    def has_room(self, node: str) -> bool:
        """Return whether this node could take a rank pod now, chips included."""
        return node in self._cluster.capacity.free(self.demand())

    def free_nodes(self) -> int:
        """Return how many more nodes could take a rank pod now; a job that grows leaves nodes to jobs ahead of it."""
        state = self._memory.state
        if state.phase is JobPhase.SHRUNK or state.smaller is not None:
            room = self._cluster.room_to_grow(self._memory.job.metadata.uid)
            if room is not None:
                start = self.start_nodes() if state.shrunk is None else None  # then it grows by another start
                return room if start is None else min(room, start - state.nodes)
        silent = self._cluster.silent_nodes() if state.phase in {JobPhase.SHRINKING, JobPhase.SHRUNK} else ()
        return self._cluster.free_nodes(self._memory.job, self.demand(), self.pods.node_names, silent)

    def start_nodes(self) -> int | None:
        """Return how many nodes a start of the whole job could have now; None where it always needs all.

        Its own pods, spares among them, leave before. Nodes that may only look ready do not count, nor do pods that no
        quota allows.
        """
        memory, cluster = self._memory, self._cluster
        if memory.policy.sizes is None:
            return None
        marks, capacity = cluster.marks, cluster.capacity
        closed = {*marks.quarantined, *marks.kept_out, *cluster.silent_nodes(), *capacity.not_ready}
        soon = capacity.soon_free(self.demand(), memory.job.metadata.uid)
        found = capacity.pods_on(capacity.free(self.demand()).union(soon).difference(closed))
        refused = self.pods.not_created
        return min(found, len(self.serving())) if refused is not None and refused.over_quota else found

    def to_avoid(self) -> tuple[str, ...]:
        """Return the nodes on which no start should go, where there are enough others.

        Computed anew only when nodes, pods or the spec have changed.
        """
        job, cluster, capacity = self._memory.job, self._cluster, self._cluster.capacity
        avoided = cluster.avoided()
        if not avoided and not capacity.not_ready:
            return ()
        seen = (capacity.changes, avoided, job.metadata.generation)
        if seen != self._avoided[0]:
            sizes = self._memory.policy.sizes
            need = (sizes.fitting(self.start_nodes()) if sizes else 0) or job.spec.num_nodes
            self._avoided = (seen, tuple(sorted(cluster.nodes_to_avoid(job, self.demand(), need))))
        return self._avoided[1]

    def spares(self) -> list[PodView]:
        """Return the pods of the spare nodes that could take a rank pod now."""
        return ready_spares(self.pods.pods, self.may_hold) if self._memory.job.spec.scheduling.num_spare_nodes else []

    def may_hold(self, node: str) -> bool:
        """Return whether a node can be a spare: in service, and free of known trouble."""
        view, excluded = self._cluster.nodes.get(node), self._memory.job.spec.scheduling.excluded_node_names
        in_service = view is not None and view.usable and not view.is_to_be_emptied
        return in_service and not any(node in names for names in (*self._unfit(), excluded))

    def not_to_hold(self) -> set[str]:
        """Return the nodes where no spare is created, because it would be given up at once."""
        return set().union(*self._unfit(), self._cluster.drained_for(self.demand().tolerations))

    def _unfit(self) -> tuple[Collection[str], ...]:
        marks = self._cluster.marks
        return marks.quarantined, marks.kept_out, marks.sub_healthy

    def drained(self) -> list[PodView]:
        """Return the serving pods, the coordinator's included, on nodes that are to be emptied; by name."""
        wanted = self._cluster.capacity.to_be_emptied & self.pods.node_names
        pods = [pod for name in sorted(wanted) for pod in self.pods.on_node(name)]
        nodes = self._cluster.nodes if pods else {}
        return [
            pod for pod in pods if (self.is_serving(pod) or self.is_coordinator(pod)) and observe.is_drained(pod, nodes)
        ]

    def to_leave(self) -> list[str]:
        """Return the nodes that rank pods are to be moved off, while the training goes on."""
        spec = self._memory.job.spec
        leaves = set(spec.scheduling.excluded_node_names)
        if spec.recovery.sub_health_policy is SubHealthPolicy.MIGRATE:
            leaves.update(self._cluster.marks.sub_healthy)
        if spec.recovery.cordon_policy is CordonPolicy.MIGRATE:
            leaves.update(pod.node_name for pod in self.drained())
        return sorted(
            name for name in leaves & self.pods.node_names if any(map(self.is_serving, self.pods.on_node(name)))
        )

    def refused(self, missing: int) -> Collection[str]:
        """Return the nodes where none of this many new pods may be placed."""
        return self._cluster.nodes_to_refuse(self.demand(), missing)
