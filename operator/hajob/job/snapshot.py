"""One job as it is at one moment, for the policies: what is seen, remembered and asked for, read-only.

What is dear to compute is computed when it is asked for, once. A snapshot is used up within the call that made it: what
it refers to goes on changing after that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from hajob.api.job import HATrainingJob
from hajob.capacity.demand import Demand
from hajob.capacity.quotas import Ask
from hajob.domain.layout import Layout
from hajob.job.cluster import Cluster
from hajob.job.memory import JobMemory
from hajob.job.places import JobPlaces
from hajob.job.pod_index import PodIndex
from hajob.job.ports import Ports
from hajob.kube.client import ApiError
from hajob.plan.placements import Placements
from hajob.plan.policy import Policy
from hajob.plan.state import ENDED, JobState
from hajob.pods.settings import PodSettings
from hajob.sources import observe
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView


@dataclass(frozen=True)
class JobSnapshot:
    """One job at one moment.

    Attributes:
        job: the CR.
        state: the planner's.
        policy: allowed actions and limits, for the size of the attempt.
        layout: of the attempt.
        desired: pods that should exist.
        pods: those that exist.
        now: seconds of the monotonic clock.
        now_ms: job time in milliseconds.
        wall_seconds: wall time since the epoch.
        admitted: the server accepts the job's pods.
        completed: when the job ended, as its status on the server says; None: it has not.
        restart_asked: a restart is requested and not handled yet.
        pause_answer: newest request of a pause about which the server was asked, and why it refuses the pods of its
            work; empty: it does not.
        refusals: the server's last words on changes that are still wanted, by their keys.
        settings: of the installation, for pods.
    """

    job: HATrainingJob
    state: JobState
    policy: Policy
    layout: Layout
    desired: Placements
    pods: PodIndex
    now: float
    now_ms: int
    wall_seconds: float
    admitted: bool
    completed: datetime | None
    restart_asked: bool
    pause_answer: tuple[str, str]
    refusals: Mapping[tuple[str, ...], ApiError]
    settings: PodSettings
    _places: JobPlaces
    _cluster: Cluster

    @classmethod
    def of(
        cls,
        memory: JobMemory,
        places: JobPlaces,
        ports: Ports,
        *,
        admitted: bool,
        completed: datetime | None,
        pause_answer: tuple[str, str],
        refusals: Mapping[tuple[str, ...], ApiError],
    ) -> JobSnapshot:
        """Take a snapshot of what is known now."""
        restart = observe.restart_asked(memory.job.spec)
        return cls(
            job=memory.job,
            state=memory.state,
            policy=memory.policy,
            layout=memory.layout,
            desired=memory.desired,
            pods=places.pods,
            now=ports.clock.monotonic(),
            now_ms=memory.time.now(),
            wall_seconds=ports.clock.now_milliseconds() / 1000,
            admitted=admitted,
            completed=completed,
            restart_asked=bool(restart) and restart != memory.journal.restart_seen,
            pause_answer=pause_answer,
            refusals=refusals,
            settings=ports.pod_settings,
            _places=places,
            _cluster=ports.cluster,
        )

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self.state.phase in ENDED

    @property
    def pods_are_known(self) -> bool:
        """Whether the job's pods may be made, and all that exist have been seen."""
        return self.admitted and self.pods.complete

    @cached_property
    def serving(self) -> Mapping[int, PodView]:
        """Return node rank to the pod that serves it."""
        return self.pods.serving(self.state).pods

    @cached_property
    def drained(self) -> list[PodView]:
        """Return the serving pods, the coordinator's included, on nodes that are to be emptied; by name of the node."""
        return self._places.drained()

    @cached_property
    def coordinator_pod(self) -> PodView | None:
        """Return the coordinator's desired pod, if it exists."""
        return self._places.coordinator_pod()

    @cached_property
    def nodes(self) -> Mapping[str, NodeView]:
        """Return all nodes by name."""
        return self._cluster.nodes

    @cached_property
    def free_nodes(self) -> int:
        """Return how many more nodes could take a rank pod now."""
        return self._places.free_nodes()

    @cached_property
    def ready_spares(self) -> list[PodView]:
        """Return the pods of the spare nodes that could take a rank pod now."""
        return self._places.spares()

    @cached_property
    def quarantined(self) -> Collection[str]:
        """Return the nodes on which nothing new is placed."""
        return self._cluster.marks.quarantined

    @cached_property
    def not_to_hold(self) -> Collection[str]:
        """Return the nodes where no spare is made, because it would be given up at once."""
        return self._places.not_to_hold()

    @cached_property
    def demand(self) -> Demand:
        """Return what each rank pod needs of its node."""
        return self._places.demand()

    @cached_property
    def quota_use(self) -> Ask:
        """Return what one more rank pod uses of the quotas."""
        return self._places.ask()

    @cached_property
    def free_names(self) -> AbstractSet[str]:
        """Return the names of the nodes that could take a rank pod now, chips included."""
        return self._places.free_names()

    @cached_property
    def kept_out(self) -> Collection[str]:
        """Return the nodes with isolated chips, on which rather nothing new is placed."""
        return self._cluster.marks.kept_out

    @cached_property
    def may_start(self) -> bool:
        """Whether all pods of the job, which waits, may be scheduled now."""
        return self._cluster.may_start(self.job.metadata.uid)

    def refused_nodes(self, missing: int) -> Collection[str]:
        """Return the nodes where none of this many new pods may be placed."""
        return self._places.refused(missing)

    def may_hold(self, node: str) -> bool:
        """Return whether a node can be a spare: in service, and free of known trouble."""
        return self._places.may_hold(node)
