"""One job as it is at one moment: what is remembered, seen and asked for, and what follows for it from the cluster.

It is read-only. What is dear to compute is computed when it is asked for, once. A snapshot is used up within the call
that took it: the pods and nodes to which it refers go on changing after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from math import inf
from typing import Final

from hajob.api import constants as names
from hajob.api.conditions import Reason
from hajob.api.derived import nodes_per_block, with_number_of_nodes
from hajob.api.enums import CordonPolicy, GangPolicy, SubHealthPolicy
from hajob.api.job import HATrainingJob
from hajob.backoff import Backoff
from hajob.capacity.demand import Demand
from hajob.capacity.pod_group_waits import why_group_waits, why_queue_full
from hajob.capacity.quotas import Ask
from hajob.capacity.spares import ready_spares
from hajob.capacity.super_pods import (
    room_by_super_pod,
    super_pod_of_block,
    super_pod_of_node,
    super_pods_for_start,
)
from hajob.domain.layout import Layout
from hajob.domain.pace import StepPace
from hajob.job.cluster import Cluster
from hajob.job.coordinator_reports import CoordinatorReports
from hajob.job.memory import JobMemory
from hajob.job.pod_index import PodIndex, coordinator_name, is_serving_pod
from hajob.job.ports import Ports
from hajob.job.queue_place import QueuePlace
from hajob.kube.client import ApiError
from hajob.plan.placements import Placements, placements
from hajob.plan.policy import Policy
from hajob.plan.state import UNTRAINED, WITHOUT_PODS, Deadline, JobPhase, JobState
from hajob.plan.waits import nodes_to_return
from hajob.pods.naming import pod_group_name
from hajob.pods.settings import PodSettings
from hajob.pods.workload import RANKS, spare_workload_name, workload_name
from hajob.sources import observe
from hajob.sources.creation import NotCreated
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView
from hajob.sources.pod_group import PodGroupView
from hajob.sources.rank_table import RankTable
from hajob.sources.shortage import shortage_of_pods
from hajob.sources.workload import WorkloadView


@dataclass(frozen=True, slots=True)
class ServerAnswers:
    """What the API server has said about one job.

    Attributes:
        admitted: it accepts the job's pods.
        accepted: reason of the condition Accepted.
        message: why the job is not accepted.
        claim_note: what the claim of its checkpoints does not allow; empty while nothing is known against it.
        edit_note: why pods that would be made since an edit are refused; empty while nothing is known against it.
        completed: when the job ended, as the status that it has says; None: it has not.
        pause: newest request of a pause about which it was asked, and why it refuses the pods of its work; empty: it
            does not.
        refusals: its last words on changes that are still wanted, by their keys.
    """

    admitted: bool = False
    accepted: Reason = Reason.NOT_CHECKED
    message: str = ""
    claim_note: str = ""
    edit_note: str = ""
    completed: datetime | None = None
    pause: tuple[str, str] = ("", "")
    refusals: Mapping[tuple[str, ...], ApiError] = field(default_factory=dict)


NODES_RETRY_SECONDS: Final = (1.0, 30.0)
"""First and longest delay before a rank pod is made again that nodes refuse."""
AT_ONCE: Final = 2
"""So many refusals by nodes in a row are answered at once: other nodes may take the pod."""
FORGOTTEN_SECONDS: Final = 600.0
"""A refusal by a node so long after the one before is the first of another row."""
_NO_VALID_POD: Final = "not get valid pod"
"""MindCluster's device plugin, of a pod to which Volcano has given no chips."""
_VOLCANO_MODE: Final = (
    "; the device plugin is in its Volcano mode, in which pods of other schedulers get all chips of a node or none: "
    "set spec.scheduling.gangPolicy: Volcano, or ask for whole nodes (docs/admin/schedulers.md)"
)
NOTHING_SAID: Final = ServerAnswers()


@dataclass(slots=True)
class CreationMemo:
    """What is remembered of pods that are not created.

    Attributes:
        why_missing: why pods that should exist are not created; None while all are.
        next_at: before it no rank pod is made, because nodes have refused some, in seconds of the monotonic clock.
        row: so many refusals by nodes in a row.
        row_seen: when the last of them was seen.
        refused: node rank to the UID of its pod that was refused last.
        last: pod that was refused last.
        backoff: between rank pods that nodes refuse.
    """

    why_missing: NotCreated | None = None
    next_at: float = -inf
    row: int = 0
    row_seen: float = -inf
    refused: dict[int, str] = field(default_factory=dict)
    last: PodView | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(*NODES_RETRY_SECONDS))

    def count_refused_pod(self, pod: PodView, now: float) -> None:
        """Count a rank pod that its node has refused, once; that another was created is no success, it comes later."""
        if self.refused.get(pod.node_rank) == pod.uid:
            return
        self.refused[pod.node_rank] = pod.uid
        if now - self.row_seen > FORGOTTEN_SECONDS:
            self.row, self.next_at = 0, -inf
            self.backoff.reset_delay()
        self.row, self.row_seen, self.last = self.row + 1, now, pod
        if self.row > AT_ONCE:
            self.next_at = now + self.backoff.next_delay()

    def why_nodes_refuse(self, now: float) -> NotCreated | None:
        """Return why no rank pod is created now; None where they may be."""
        if now >= self.next_at or self.last is None:
            return None
        told = f"{self.last.node_name} refuses pods of this job, {self.row} so far: {self.last.trouble}"
        if _NO_VALID_POD in self.last.trouble:
            told += _VOLCANO_MODE
        again = f"the next one is created within {NODES_RETRY_SECONDS[1]:.0f} s"
        return NotCreated(f"{told}; {again}", code="NodeRefuses")


@dataclass(slots=True)
class ObserverMemo:
    """What is remembered of observations (hajob.job.observe).

    Attributes:
        waits: whether faults wait for the coordinator to be heard. What stood before this operator began always does.
        start_sign_ms: when a starting attempt last made progress.
        doubted: node rank to the faults of which its pod may have the chip.
        sub_health_asked: fact to how often, when, and under which generation of the spec a better node was asked for.
    """

    waits: bool = True
    start_sign_ms: int | None = None
    doubted: dict[int, frozenset[str]] = field(default_factory=dict)
    sub_health_asked: dict[str, tuple[int, float, int]] = field(default_factory=dict)


@dataclass(slots=True)
class Kept:
    """What is kept from one snapshot to the next.

    Attributes:
        demand: what it depends on, and what each rank pod needs of its node.
        avoided: what the nodes that a start avoids depend on, and their names.
        unfit: what it depends on whether any node will ever do, and why none does.
        shortfall: when it was looked up what the job lacks, and the words.
        notes: generation of the spec, and what is worth knowing of it.
        rank_table: the pods that it was made of, and the rank table.
    """

    demand: tuple[object, Demand] | None = None
    avoided: tuple[object, tuple[str, ...]] = (None, ())
    unfit: tuple[object, str] = (None, "")
    shortfall: tuple[float, str] = (-inf, "")
    notes: tuple[int | None, tuple[str, ...]] = (None, ())
    rank_table: tuple[tuple[object, ...], RankTable] | None = None


@dataclass(frozen=True)
class JobSnapshot:
    """One job at one moment.

    Attributes:
        job: the CR.
        state: the planner's.
        policy: allowed actions and limits, for the size of the attempt.
        layout: of the attempt.
        restart_seen: newest request of a restart that was handled.
        pods: those that exist, of every incarnation.
        coordinator: what the job's coordinator has reported.
        cluster: nodes, and what all jobs share of them.
        answers: what the API server has said.
        settings: of the installation, for pods.
        now: seconds of the monotonic clock.
        now_ms: job time in milliseconds.
        wall_seconds: wall time since the epoch.
        creation: what is remembered of pods that are not created.
        observed: what is remembered of observations.
        pace: of the training.
    """

    job: HATrainingJob
    state: JobState
    policy: Policy
    layout: Layout
    restart_seen: str
    pods: PodIndex
    coordinator: CoordinatorReports
    cluster: Cluster
    answers: ServerAnswers
    settings: PodSettings
    now: float
    now_ms: int
    wall_seconds: float
    creation: CreationMemo = field(default_factory=CreationMemo)
    observed: ObserverMemo = field(default_factory=ObserverMemo)
    pace: StepPace = field(default_factory=StepPace)
    kept: Kept = field(default_factory=Kept, repr=False)

    # -------------------------------------------------------------------------------------------------- the job

    @property
    def title(self) -> str:
        """Return namespace and name of the job, for logs."""
        return f"{self.job.metadata.namespace}/{self.job.metadata.name}"

    @cached_property
    def job_as_started(self) -> HATrainingJob:
        """Return the job with the nodes that the attempt was started with, and those of its queue.

        Its pods are built from it.
        """
        nodes, job = self.state.nodes, self.queue.placed_job
        return job.model_copy(update={"spec": with_number_of_nodes(job.spec, nodes)}) if nodes else job

    @property
    def pods_are_known(self) -> bool:
        """Whether the job's pods may be made, and all that exist have been seen."""
        return self.answers.admitted and self.pods.complete

    @property
    def awaits_coordinator(self) -> bool:
        """Whether a suspend, a restart, a move or a fault waits a moment: the coordinator that would act is not heard.

        It ends with the planner's own wait for a coordinator: with the first successor, a request goes on without a
        save. A coordinator that has come back to a training says in a moment what it has found.
        """
        state, reports = self.state, self.coordinator
        if reports.is_serving or state.phase in UNTRAINED or state.phase in WITHOUT_PODS:
            return False
        waited_for = not {Deadline.UNREACHABLE, Deadline.COORDINATOR}.isdisjoint(state.deadlines)
        if state.phase is JobPhase.UNPROTECTED:
            return waited_for and not state.successors and not state.blind
        return waited_for or (not reports.has_spoken and state.phase not in {JobPhase.HELD, JobPhase.SAVING})

    @property
    def hears_relieved(self) -> bool:
        """Whether the channel is still to the coordinator that a successor shall replace."""
        return bool(self.state.relieved) and self.coordinator.is_heard_from(self.state.relieved)

    @property
    def why_cut_off(self) -> str:
        """Return why the coordinator is silent only for this operator, in words; empty: it is not."""
        reports = self.coordinator
        return self.cluster.suspicion.why_suspect if reports.address and not reports.connected else ""

    @property
    def restart_asked(self) -> bool:
        """Whether a restart is requested and not handled yet."""
        asked = observe.restart_asked(self.job.spec)
        return bool(asked) and asked != self.restart_seen

    @cached_property
    def desired_pods(self) -> Placements:
        """Return the pods that should exist."""
        return placements(self.state, self.layout.num_nodes)

    # ------------------------------------------------------------------------------------------------ its queue

    @cached_property
    def workload(self) -> WorkloadView | None:
        """Return the Workload of the ranks and the coordinator; None where there is none."""
        return self._find_workload(workload_name(self.job)) if self.cluster.queues.served else None

    @cached_property
    def spare_workload(self) -> WorkloadView | None:
        """Return the Workload of the spares; None where there is none."""
        return self._find_workload(spare_workload_name(self.job)) if self.cluster.queues.served else None

    def _find_workload(self, name: str) -> WorkloadView | None:
        metadata = self.job.metadata
        return self.cluster.queues.find_workload(metadata.namespace, name, metadata.uid)

    @cached_property
    def queue(self) -> QueuePlace:
        """Return the place of the job in its queue."""
        return QueuePlace(self.job, self.state, self.cluster.queues, self.workload, self.spare_workload)

    @property
    def queue_wait(self) -> str:
        """Return why the queue lets the job have no pods, in words: with what the server refuses of it, if it does."""
        told = self.queue.why_waiting
        if not told or self.queue.priority is None:
            return told
        place = "workloads", self.job.metadata.namespace, workload_name(self.job)
        if self.workload is None:
            refusal = self.answers.refusals.get(("Create", *place))
            return f"queue {self.queue.queue_name}: its Workload is refused: {refusal.message}" if refusal else told
        refusal = self.answers.refusals.get(("Patch", *place, self.workload.uid, "status"))
        return f"{told}; its quota is not given back yet: {refusal.message}" if refusal else told

    @property
    def granted_nodes(self) -> int | None:
        """Return for how many rank pods the queue has granted quota; None: for none, or no queue is asked."""
        granted = self.workload.grant_of_pod_set(RANKS) if self.workload is not None else None
        return granted.count if granted is not None else None

    # ------------------------------------------------------------------------------------------------ its pods

    @property
    def serving_pods(self) -> Mapping[int, PodView]:
        """Return node rank to the pod that serves it."""
        return self.pods.serving_pods(self.state).pods

    @property
    def earlier_ranks(self) -> Collection[str]:
        """Return the names of rank pods of earlier starts in which processes may run."""
        return self.pods.earlier_ranks(self.state.base)

    @cached_property
    def coordinator_pod(self) -> PodView | None:
        """Return the coordinator's desired pod, if it exists."""
        return self.pods.coordinator_pod(self.job, self.state)

    @property
    def coordinator_shares_node(self) -> bool:
        """Whether the coordinator runs on a node of one of its ranks."""
        pod = self.coordinator_pod
        return pod is not None and any(one.is_rank_pod for one in self.pods.pods_on_node(pod.node_name))

    @cached_property
    def ready_spares(self) -> list[PodView]:
        """Return the pods of the spare nodes that could take a rank pod now."""
        return ready_spares(self.pods.pods, self.may_hold_spare) if self.job.spec.scheduling.num_spare_nodes else []

    @cached_property
    def drained_pods(self) -> list[PodView]:
        """Return the serving pods, the coordinator's included, on nodes that are to be emptied; by name of the node."""
        wanted = self.cluster.capacity.to_be_emptied & self.pods.node_names
        pods = [pod for name in sorted(wanted) for pod in self.pods.pods_on_node(name)]
        nodes, coordinator = self.nodes if pods else {}, coordinator_name(self.job, self.state)
        return [
            pod
            for pod in pods
            if (is_serving_pod(pod, self.state) or pod.name == coordinator) and observe.is_node_drained(pod, nodes)
        ]

    @property
    def nodes_to_leave(self) -> list[str]:
        """Return the nodes that rank pods are to be moved off, while the training goes on."""
        spec = self.job.spec
        leaves = set(spec.scheduling.excluded_node_names)
        if spec.recovery.sub_health_policy is SubHealthPolicy.MIGRATE:
            leaves.update(self.cluster.marks.sub_healthy)
        if spec.recovery.cordon_policy is CordonPolicy.MIGRATE:
            leaves.update(pod.node_name for pod in self.drained_pods)
        return sorted(
            name
            for name in leaves & self.pods.node_names
            if any(is_serving_pod(pod, self.state) for pod in self.pods.pods_on_node(name))
        )

    def pod_group_of_role(self, role: str) -> PodGroupView | None:
        """Return the job's PodGroup of Volcano for pods of a role, if it exists."""
        metadata = self.job.metadata
        return self.cluster.pod_groups.groups.get(f"{metadata.namespace}/{pod_group_name(self.job, role)}")

    @property
    def is_placed_in_blocks(self) -> bool:
        """Whether Volcano has yet to place the whole job, in blocks of super pods."""
        starts = self.state.is_untrained and not self.pods.serving_pods(self.state).node_names
        by_volcano = self.job.spec.scheduling.gang_policy is GangPolicy.VOLCANO
        return bool(nodes_per_block(self.job.spec)) and starts and by_volcano

    def super_pod_for(self, node_rank: int) -> str:
        """Return the super pod where a new pod of this node rank has to go; empty: any."""
        size = nodes_per_block(self.job.spec)
        if not size or self.is_placed_in_blocks:
            return ""
        block = node_rank // size
        by_volcano = self.job.spec.scheduling.gang_policy is GangPolicy.VOLCANO
        if self.state.is_untrained and not by_volcano and block in self._super_pods_of_start:
            return self._super_pods_of_start[block]
        members = [pod for rank, pod in self.serving_pods.items() if rank // size == block and rank != node_rank]
        return super_pod_of_block(members, self.nodes, self.free_node_names, size)

    @cached_property
    def _super_pods_of_start(self) -> Mapping[int, str]:
        """Return the super pod of each block of a start, for a scheduler that knows none; empty: none has room."""
        size, capacity, marks = nodes_per_block(self.job.spec), self.cluster.capacity, self.cluster.marks
        members: dict[int, list[PodView]] = {block: [] for block in range(self.layout.num_nodes // size)}
        made = (one.pod for one in self.pods.made.values() if is_serving_pod(one.pod, self.state))
        for pod in (*self.serving_pods.values(), *made):
            members[pod.node_rank // size].append(pod)
        # The pods of an earlier attempt leave before: a start may go back to where it was.
        free = capacity.free_nodes(self.demand) | capacity.soon_free_nodes(self.demand, self.job.metadata.uid)
        closed = {*marks.quarantined, *self.cluster.nodes_drained_for(self.demand.tolerations)}
        return super_pods_for_start(members, self.nodes, free - closed, size)

    @cached_property
    def super_pods_of_blocks(self) -> Mapping[int, str]:
        """Return the super pod of each node rank whose block has one; empty of a job without blocks."""
        size = nodes_per_block(self.job.spec)
        if not size:
            return {}
        told: dict[int, Counter[str]] = {}
        for rank, pod in self.serving_pods.items():
            if where := super_pod_of_node(self.nodes.get(pod.node_name)) or pod.super_pod:
                told.setdefault(rank // size, Counter())[where] += 1
        found = {block: max(sorted(counts), key=lambda one: counts[one]) for block, counts in told.items()}
        return {rank: found[rank // size] for rank in range(self.layout.num_nodes) if rank // size in found}

    @property
    def bare_super_pods(self) -> tuple[str, ...]:
        """Return the super pods of the job's blocks that have neither a free node nor a spare."""
        own = {*self.super_pods_of_blocks.values()}
        if not own:
            return ()
        near = {*self.free_node_names, *(pod.node_name for pod in self.ready_spares)}
        return tuple(sorted(own - room_by_super_pod(self.nodes, near).keys()))

    @cached_property
    def gang_wait(self) -> str:
        """Return why Volcano gives the rank pods no nodes, in words; empty where it does, or says nothing yet."""
        serving = self.pods.serving_pods(self.state)
        if len(serving.node_names) == len(serving.pods):
            return ""
        group = self.pod_group_of_role(names.ROLE_RANK)
        if group is None:
            key = "Create", names.POD_GROUPS, self.job.metadata.namespace, pod_group_name(self.job)
            refusal = self.answers.refusals.get(key)
            return f"no PodGroup of Volcano can be made: {refusal.message}" if refusal is not None else ""
        if not serving.unplaced and not group.is_overdue(self.wall_seconds):
            return ""
        resource, lost = self.job.spec.accelerator.resource_name, len(serving.pods) - len(serving.node_names)
        of_pods = shortage_of_pods([pod for pod in serving.pods.values() if pod.is_rank_pod], None)
        missing = lost * self.layout.chips_per_node
        return why_group_waits(group, self.cluster.pod_groups, resource, missing, of_pods)

    # --------------------------------------------------------------------------------------- nodes for its pods

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        """Return all nodes by name."""
        return self.cluster.nodes

    @property
    def demand(self) -> Demand:
        """Return what each rank pod needs of its node."""
        seen = self.job.metadata.generation, self.workload.grants if self.workload is not None else ()
        if self.kept.demand is None or self.kept.demand[0] != seen:
            self.kept.demand = seen, Demand.from_spec(self.queue.placed_job.spec, self.layout)
        return self.kept.demand[1]

    @property
    def quota_use(self) -> Ask:
        """Return what one more rank pod uses of the quotas; nothing if no pod shows it."""
        like = next(iter(self.serving_pods.values()), None)
        priority_class = str(self.job.spec.template["spec"].get("priorityClassName") or "")
        return Ask(self.job.metadata.namespace, like.use if like is not None else (), priority_class)

    @property
    def growth_refused(self) -> str:
        """Return the quotas without room for the pods of a growth, in words; empty: all of them are allowed."""
        need = len(nodes_to_return(self.state, self.policy, self.now_ms))
        if not need:
            return ""
        allowed = self.cluster.quotas.allowed_pods(self.quota_use)
        if allowed is not None and allowed.pods < need:
            return allowed.told
        granted, wanted_nodes = self.granted_nodes, self.job.spec.num_nodes
        if granted is not None and granted < wanted_nodes:
            told = f"queue {self.queue.queue_name} has admitted {granted} of {wanted_nodes} rank pods"
            return f"{told}; it admits more only when the job has been suspended or evicted"
        group = self.pod_group_of_role(names.ROLE_RANK)
        if group is None:
            return ""
        wanted = need * self.layout.chips_per_node
        return why_queue_full(group, self.cluster.pod_groups, self.job.spec.accelerator.resource_name, wanted)

    @cached_property
    def free_node_names(self) -> AbstractSet[str]:
        """Return the names of the nodes that could take a rank pod now, chips included."""
        return self.cluster.free_node_names(self.demand)

    @cached_property
    def free_nodes(self) -> int:
        """Return how many more nodes could take a rank pod now; a job that grows leaves nodes to jobs ahead of it."""
        state, cluster = self.state, self.cluster
        if state.phase is JobPhase.SHRUNK or state.smaller is not None:
            room = cluster.room_to_grow(self.job.metadata.uid)
            if room is not None and not self.has_room_in_super_pods(nodes_to_return(state, self.policy, self.now_ms)):
                return 0
            if room is not None:
                start = self.start_nodes if state.shrunk is None else None  # then it grows by another start
                return room if start is None else min(room, start - state.nodes)
        silent = cluster.silent_nodes() if state.phase in {JobPhase.SHRINKING, JobPhase.SHRUNK} else ()
        own = {*self.super_pods_of_blocks.values()}
        elsewhere = {name for name, node in self.nodes.items() if super_pod_of_node(node) not in own} if own else ()
        return cluster.count_free_nodes(self.job, self.demand, self.pods.node_names, {*silent, *elsewhere})

    def has_room_in_super_pods(self, node_ranks: Collection[int]) -> bool:
        """Return whether new pods of these node ranks find nodes in the super pods of their blocks, all at once."""
        # Asked at each change of any node: a job without blocks need not have all free ones counted.
        if not nodes_per_block(self.job.spec):
            return True
        wanted = Counter(map(self.super_pod_for, node_ranks))
        free = Counter(super_pod_of_node(self.nodes.get(name)) for name in self.free_node_names)
        return all(count <= free[name] for name, count in wanted.items() if name)

    @cached_property
    def start_nodes(self) -> int | None:
        """Return how many nodes a start of the whole job could have now; None where it always needs all.

        Its own pods, spares among them, leave before. Nodes that may only look ready do not count, nor do pods that no
        quota allows.
        """
        if self.policy.sizes is None:
            return None
        capacity, marks = self.cluster.capacity, self.cluster.marks
        closed = {*marks.quarantined, *marks.kept_out, *self.cluster.silent_nodes(), *capacity.not_ready}
        soon = capacity.soon_free_nodes(self.demand, self.job.metadata.uid)
        found = capacity.pods_placeable_on(capacity.free_nodes(self.demand).union(soon).difference(closed))
        for limit in (self.granted_nodes, self._nodes_of_queue):
            found = found if limit is None else min(found, limit)
        refused = self.creation.why_missing
        return min(found, len(self.serving_pods)) if refused is not None and refused.over_quota else found

    @property
    def _nodes_of_queue(self) -> int | None:
        """Return how many nodes its queue of Volcano lets a start have, those that the job has there among them."""
        group, resource = self.pod_group_of_role(names.ROLE_RANK), self.job.spec.accelerator.resource_name
        queue = self.cluster.pod_groups.queues.get(group.queue) if group is not None else None
        if group is None or queue is None:
            return None
        own = (pod for pod in self.pods.pods.values() if pod.group == group.name and pod.node_name)
        has = sum(dict(pod.requests).get(resource, 0) for pod in own if not pod.has_ended)
        left = queue.left_of(resource, has)
        return None if left is None else left // self.layout.chips_per_node

    @property
    def nodes_to_avoid(self) -> tuple[str, ...]:
        """Return the nodes on which no start should go, where there are enough others.

        Computed anew only when nodes, pods or the spec have changed.
        """
        job, capacity, avoided = self.job, self.cluster.capacity, self.cluster.nodes_avoided_now()
        if not avoided and not capacity.not_ready:
            return ()
        seen = (capacity.changes, avoided, job.metadata.generation)
        if seen != self.kept.avoided[0]:
            sizes = self.policy.sizes
            need = (sizes.largest_fitting(self.start_nodes) if sizes else 0) or job.spec.num_nodes
            self.kept.avoided = seen, tuple(sorted(self.cluster.nodes_to_avoid(job, self.demand, need)))
        return self.kept.avoided[1]

    @property
    def may_start(self) -> bool:
        """Whether all pods of the job, which waits, may be scheduled now."""
        return self.cluster.may_start(self.job.metadata.uid)

    @property
    def nodes_not_to_hold(self) -> set[str]:
        """Return the nodes where no spare is made, because it would be given up at once."""
        return set().union(*self._unfit_nodes, self.cluster.nodes_drained_for(self.demand.tolerations))

    @property
    def _unfit_nodes(self) -> tuple[Collection[str], ...]:
        marks = self.cluster.marks
        return marks.quarantined, marks.kept_out, marks.sub_healthy

    def has_room_on(self, node: str) -> bool:
        """Return whether this node could take a rank pod now, chips included."""
        return node in self.cluster.capacity.free_nodes(self.demand)

    def may_hold_spare(self, node: str) -> bool:
        """Return whether a node can be a spare: in service, and free of known trouble."""
        view, excluded = self.nodes.get(node), self.job.spec.scheduling.excluded_node_names
        in_service = view is not None and view.is_usable and not view.is_to_be_emptied
        return in_service and not any(node in listed for listed in (*self._unfit_nodes, excluded))

    def refused_nodes(self, missing: int) -> Collection[str]:
        """Return the nodes where none of this many new pods may be placed."""
        return self.cluster.nodes_to_refuse(self.demand, missing)


class JobSnapshots:
    """Takes the snapshots of one job.

    Args:
        memory: of the job.
        ports: to the world.
        coordinator: what the job's coordinator has reported.

    Attributes:
        pods: of the job, of every incarnation.
        creation: what is remembered of pods that are not created.
        observed: what is remembered of observations.
    """

    def __init__(self, memory: JobMemory, ports: Ports, coordinator: CoordinatorReports) -> None:
        self._memory, self._ports, self._coordinator = memory, ports, coordinator
        self.pods, self.creation, self.observed, self._kept = PodIndex(), CreationMemo(), ObserverMemo(), Kept()

    def take_snapshot(self, answers: ServerAnswers = NOTHING_SAID) -> JobSnapshot:
        """Take a snapshot of what is known now; `answers`: for policies, what the API server has said."""
        memory, ports = self._memory, self._ports
        return JobSnapshot(
            job=memory.job,
            state=memory.state,
            policy=memory.policy,
            layout=memory.layout,
            restart_seen=memory.journal.restart_seen,
            pods=self.pods,
            coordinator=self._coordinator,
            cluster=ports.cluster,
            answers=answers,
            settings=ports.pod_settings,
            now=ports.clock.monotonic(),
            now_ms=memory.time.now(),
            wall_seconds=ports.clock.now_milliseconds() / 1000,
            creation=self.creation,
            observed=self.observed,
            pace=memory.pace,
            kept=self._kept,
        )
