"""The ports of a job controller: the Kubernetes API, the coordinators, the clock.

Tests put a simulated world behind the same ports. A job controller has no other access (docs/decisions/0003 and
0004).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Protocol

from hajob.api.job import HATrainingJob
from hajob.capacity.avoided_nodes import AvoidedNodes
from hajob.capacity.demand import Demand, is_kept_off
from hajob.capacity.drains import Openings
from hajob.capacity.nodes import Capacity
from hajob.capacity.quotas import Quotas
from hajob.capacity.start_queue import StartQueue
from hajob.clock import Clock
from hajob.coordinator_link.channel import ChannelListener, CoordinatorCredentials
from hajob.domain.hardware import ClusterFact
from hajob.job.dry_run_cache import DryRunCache
from hajob.job.status_publisher import StatusPace
from hajob.job.status_writer import StatusWriter
from hajob.kube.batches import AT_ONCE
from hajob.kube.client import Kube
from hajob.kube.events import Announcer
from hajob.pki.authority_store import AuthorityStore
from hajob.pods.settings import PodSettings
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.node import NodeView


class Link(Protocol):
    """A connection to one coordinator (hajob.coordinator_link.channel.Channel)."""

    address: str

    def start(self) -> None:
        """Start dialling."""

    async def close(self) -> None:
        """Close the link for good."""

    def hurry(self) -> None:
        """Dial at once again, if the coordinator has not answered."""

    def assign(self, assignment: wire.Assignment) -> None:
        """Send the job's description and the addresses of its pods."""

    def order(self, order: wire.Order) -> None:
        """Send the action that is wanted now."""

    def acknowledge(self, sequence: int) -> None:
        """Acknowledge that the effects of a report are in the status."""


class Dial(Protocol):
    """A factory of links to coordinators."""

    def __call__(
        self, address: str, job_uid: str, credentials: CoordinatorCredentials, listener: ChannelListener
    ) -> Link:
        """Make a link that is not started yet."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports, and the state that all job controllers share.

    Attributes:
        faults_on: faults of a node that are believed, each with its age in milliseconds.
        why_held: why faults of nodes and chips are not believed now; empty: they are.
        standing: faults that stand on a node, believed or not; None while that cannot be said.
        kept_out: nodes with isolated chips, on which rather nothing new should be placed.
        sub_healthy: nodes that work, but not well.
        quarantined: nodes on which nothing new is placed.
        changes: another value after each change of a node or pod.
    """

    kube: Kube
    clock: Clock
    dial: Dial
    status_writer: Callable[[HATrainingJob], StatusWriter]
    announcer: Announcer
    pod_settings: PodSettings
    authorities: AuthorityStore
    fence: Callable[[], int]
    capacity: Callable[[], Capacity]
    faults_on: Callable[[str], list[tuple[ClusterFact, int]]] = lambda _: []
    why_held: Callable[[], str] = str
    standing: Callable[[str], Collection[ClusterFact] | None] = lambda _: None
    kept_out: Callable[[], Collection[str]] = frozenset
    sub_healthy: Callable[[], Collection[str]] = frozenset
    quarantined: Callable[[], Collection[str]] = frozenset
    crd_is_older: Callable[[], str] = str
    """What the installed CRD lacks, in a sentence; empty: nothing."""
    avoided_nodes: AvoidedNodes = field(default_factory=AvoidedNodes)
    cut_off: Callable[[], str] = str
    """Why this operator is taken to be cut off from the coordinators; empty while it is not."""
    creations: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    """So many pods are made at a time, for all jobs: what is not sent yet is not built yet."""
    capacity_watchers: set[str] = field(default_factory=set)
    """UIDs of the jobs that wait for nodes: they are told of each change."""

    dry_runs: DryRunCache = field(default_factory=DryRunCache)
    starts: StartQueue = field(default_factory=StartQueue)
    pace: StatusPace = field(default_factory=StatusPace)
    openings: Openings = field(default_factory=Openings)
    quotas: Quotas = field(default_factory=Quotas)

    def may_start(self, job_uid: str) -> bool:
        """Return whether all pods of a waiting job may be scheduled now."""
        return self.starts.lets_in(job_uid, self.clock.monotonic(), self.capacity(), self.quarantined())

    def room_to_grow(self, job_uid: str) -> int | None:
        """Return how many nodes a shrunk job may have after the jobs ahead of it; None: it wants none.

        Nodes with isolated chips do not count, nor do those that fell silent: a job that grows onto one shrinks again.
        """
        closed = {*self.quarantined(), *self.kept_out(), *self.silent_nodes()}
        return self.starts.room_to_grow(job_uid, self.capacity(), closed, self.quotas)

    def avoid(self, node: str) -> None:
        """Avoid this node for starts for a while, because of trouble there."""
        self.avoided_nodes.add(node, self.clock.monotonic(), self._boot_of(node))

    def silent_nodes(self) -> set[str]:
        """Return nodes that may only look ready: they had trouble a moment ago, and have not restarted since."""
        return self.avoided_nodes.unturned(self.clock.monotonic(), self._boot_of)

    def _boot_of(self, name: str) -> str:
        node = self.nodes().get(name)
        return node.boot if node is not None else ""

    def nodes(self) -> dict[str, NodeView]:
        """Return nodes by name."""
        return self.capacity().nodes

    def avoided(self) -> list[str]:
        """Return nodes that a start takes only if it finds no others, the likeliest to be well first.

        A job had trouble with them a moment ago (the longest ago first), or they are sub-healthy, or have bad chips.
        """
        troubled = self.avoided_nodes.names(self.clock.monotonic())
        return list(dict.fromkeys((*troubled, *sorted(self.sub_healthy()), *sorted(self.kept_out()))))

    def free_nodes(
        self, job: HATrainingJob, demand: Demand, own_nodes: AbstractSet[str], closed: Collection[str] = ()
    ) -> int:
        """Return how many nodes could take a rank pod of this job now, beyond those that it has and `closed`."""
        return self.capacity().free_for(demand, job.metadata.uid, own_nodes, {*self.kept_out(), *closed})

    def nodes_to_avoid(self, job: HATrainingJob, demand: Demand, need: int) -> set[str]:
        """Return the names of the nodes on which no start of this job should go."""
        return self.capacity().to_avoid(demand, job.metadata.uid, need, self.avoided())

    def nodes_to_refuse(self, demand: Demand, missing: int) -> set[str]:
        """Return the names of the nodes on which none of this many new pods may be placed.

        Quarantined ones in any case; sub-healthy ones, and those with bad chips, only where there are enough others.
        """
        refused = {*self.quarantined(), *self.drained_for(demand.tolerations)}
        weak = {*self.kept_out(), *self.sub_healthy()}
        capacity = self.capacity()
        if weak - refused and capacity.pods_on(capacity.free(demand) - weak) >= missing:
            refused |= weak
        return refused

    def drained_for(self, tolerations: Collection[Mapping[str, Any]]) -> set[str]:
        """Return the nodes that are to be emptied and off which only Hajob keeps pods that tolerate this."""
        capacity = self.capacity()
        return {name for name in capacity.to_be_emptied if not is_kept_off(capacity.nodes[name], tolerations)}

    def free_names(self, demand: Demand) -> set[str]:
        """Return the names of the nodes that could take a rank pod now, chips included."""
        return self.capacity().free(demand).difference(self.kept_out())
