"""The nodes that could take a rank pod of a job now: updated event by event, never counted anew.

Every pod on a node occupies its chips and host ports there, whatever its owner, until it is gone or has ended.
`Capacity` caches the set of nodes that satisfy each queried demand, and the nodes that each querying job would leave
free. An event adds one entry to a log; a query checks again only the nodes that the log names since the query before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, Self

from hajob.api.constants import LABEL_HOSTNAME
from hajob.capacity.demand import Demand
from hajob.sources.host_ports import HostPorts, do_ports_collide
from hajob.sources.node import NodeView
from hajob.sources.pod import ForeignPod, PodView, Requests

LOG_LIMIT: Final = 20_000
"""Changes kept in the log; a query that has missed more checks all nodes."""
KEPT_LIMIT: Final = 1_000
"""Sets of nodes in the cache; those not queried for longest are dropped."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod on a node: its job, its chips there by resource name, its priority, and its ports of the node.

    Attributes:
        untold: nobody has noted on the pod which chips it has.
    """

    job_uid: str
    chips: Requests
    priority: int = 0
    ports: HostPorts = ()
    untold: bool = False


@dataclass(slots=True)
class _Kept:
    """Cached nodes for one demand, or those that a job would leave free for it, at one position of the log."""

    may_take: Callable[[NodeView], bool]
    names: set[str] = field(default_factory=set)
    seen: int = -1


class Capacity:
    """Nodes, and the pods that occupy their chips and ports.

    Args:
        topology: the label of nodes by which pods of one job keep apart: nodes with one value take one of them. A node
            without the label stands for itself.

    Attributes:
        nodes: by name.
        changes: rises with every change of a node or of what occupies one.
        node_changes: rises with every change of a node.
        not_ready: names of the nodes that are not ready.
        to_be_emptied: names of the nodes that are to be emptied.
    """

    def __init__(self, topology: str = LABEL_HOSTNAME) -> None:
        self._topology = topology
        self._domains: Counter[str] = Counter()
        self.nodes: dict[str, NodeView] = {}
        self.changes = self.node_changes = 0
        self.not_ready: set[str] = set()
        self.to_be_emptied: set[str] = set()
        self._told: set[str] = set()
        self._kept_out: frozenset[str] = frozenset()
        self._occupants: dict[str, dict[str, Occupant]] = {}
        self._places: dict[str, str] = {}
        self._foreign: dict[tuple[Requests, int, HostPorts, bool], Occupant] = {}
        self._priorities: Counter[int] = Counter()
        self._log: list[str] = []
        self._forgotten = 0
        self._kept: dict[tuple[Demand, str], _Kept] = {}

    @classmethod
    def from_nodes_and_pods(cls, nodes: Iterable[NodeView], pods: Iterable[PodView | ForeignPod]) -> Self:
        """Return the capacity of these nodes with these pods on them."""
        made = cls()
        for node in nodes:
            made.store_node(node)
        for pod in pods:
            made.store_pod(pod)
        return made

    def store_node(self, node: NodeView) -> None:
        """Record a node as it is now."""
        self._leave_domain(node.name)
        self.nodes[node.name] = node
        self.node_changes += 1
        self._domains[self._domain_of_node(node.name)] += 1
        (self.not_ready.discard if node.ready else self.not_ready.add)(node.name)
        (self.to_be_emptied.add if node.is_to_be_emptied else self.to_be_emptied.discard)(node.name)
        self._note_told(node.name, told=bool(node.devices))
        self._note_change(node.name)

    def remove_node(self, name: str) -> None:
        """Remove a node that is gone."""
        self._leave_domain(name)
        self.nodes.pop(name, None)
        self.node_changes += 1
        self.not_ready.discard(name)
        self.to_be_emptied.discard(name)
        self._note_told(name, told=False)
        self._note_change(name)

    def _note_told(self, name: str, *, told: bool) -> None:
        """Note whether the device plugin tells the chips of a node. The first one and the last one count for all."""
        before = bool(self._told)
        (self._told.add if told else self._told.discard)(name)
        if bool(self._told) is not before:
            for other in self.nodes:
                self._note_change(other)

    def _domain_of_node(self, name: str) -> str:
        node = self.nodes.get(name)
        return (node.labels.get(self._topology) if node is not None else None) or f"node/{name}"

    def _leave_domain(self, name: str) -> None:
        if name in self.nodes:
            domain = self._domain_of_node(name)
            self._domains[domain] -= 1
            if not self._domains[domain]:
                del self._domains[domain]

    @property
    def shares_domains(self) -> bool:
        """Whether some nodes have the same value of the topology label."""
        return len(self._domains) < len(self.nodes)

    def pods_placeable_on(self, names: AbstractSet[str], beside: AbstractSet[str] = frozenset()) -> int:
        """Return how many pods of one job the scheduler would place on these nodes: one for each domain.

        Args:
            names: of the nodes.
            beside: names of the nodes that have a pod of the job already: their domains take no other.
        """
        if not self.shares_domains:
            return len(names) - len(names & beside)
        return len({self._domain_of_node(name) for name in names} - {self._domain_of_node(name) for name in beside})

    def set_kept_out(self, names: Iterable[str]) -> None:
        """Set the nodes that take no pod from now on, in place of those set before."""
        before, self._kept_out = self._kept_out, frozenset(names)
        for name in before ^ self._kept_out:
            self._note_change(name)

    def store_pod(self, pod: PodView | ForeignPod) -> bool:
        """Record any owner's pod as it is now; return whether that changes what is occupied."""
        if not pod.node_name or pod.has_ended or not (pod.requests or pod.ports or pod.job_uid):
            return self.remove_pod(pod.key)
        now, key = self._occupant_of_pod(pod), pod.key
        there = self._occupants.setdefault(pod.node_name, {})
        if there.get(key) == now:
            return False
        self.remove_pod(key)
        self._occupants.setdefault(pod.node_name, {})[key] = now
        self._places[key] = pod.node_name
        self._priorities[pod.priority] += 1
        self._note_change(pod.node_name)
        return True

    def _occupant_of_pod(self, pod: PodView | ForeignPod) -> Occupant:
        """Return the pod's occupant; foreign pods with equal requests share one: there may be ten thousand."""
        if pod.job_uid:
            return Occupant(pod.job_uid, pod.requests, pod.priority, pod.ports, pod.has_untold_chips)
        # Frozen and shared, so it must hold nothing that differs from pod to pod.
        alike = pod.requests, pod.priority, pod.ports, pod.has_untold_chips
        return self._foreign.get(alike) or self._foreign.setdefault(alike, Occupant("", *alike))

    def remove_pod(self, key: str) -> bool:
        """Remove a pod that is gone, by namespace and name; return whether it occupied anything."""
        name = self._places.pop(key, None)
        if name is None:
            return False
        there = self._occupants[name]
        priority = there.pop(key).priority
        self._priorities[priority] -= 1
        if not self._priorities[priority]:
            del self._priorities[priority]
        if not there:
            del self._occupants[name]
        self._note_change(name)
        return True

    def free_nodes(self, demand: Demand) -> set[str]:
        """Return the names of the nodes that have room for one such pod; not to be changed."""
        kept = self._cache_entry(demand)
        for name in self._changed_nodes_for(kept):
            (kept.names.add if self._fits_on_node(kept, demand, name) else kept.names.discard)(name)
        return kept.names

    def count_free_for(
        self, demand: Demand, job_uid: str, own_nodes: AbstractSet[str], closed: AbstractSet[str] = frozenset()
    ) -> int:
        """Return how many nodes could take one more rank pod of this job, not counting nodes that run one already.

        Args:
            demand: of its rank pods.
            job_uid: of the job.
            own_nodes: names of the nodes of its pods.
            closed: names of nodes that do not count.
        """
        free = self.free_nodes(demand)
        if closed:
            free = free - closed
        near = own_nodes if self.shares_domains else free & own_nodes  # else the others keep no pod off a free node
        return self.pods_placeable_on(free, {name for name in near if self._has_pod_of(name, job_uid)})

    def soon_free_nodes(self, demand: Demand, job_uid: str) -> set[str]:
        """Return the names of nodes with room for one such pod once this job's pods have left; not to be changed."""
        free, kept = self.free_nodes(demand), self._cache_entry(demand, job_uid)
        for name in self._changed_nodes_for(kept):
            # Nodes that are free already are in the other set: this one holds what only this job's leaving makes free.
            leaves = name not in free and self._has_pod_of(name, job_uid)
            fits = leaves and self._fits_on_node(kept, demand, name, stays=lambda one: one.job_uid != job_uid)
            (kept.names.add if fits else kept.names.discard)(name)
        return kept.names

    def nodes_taken_by_lower(self, demand: Demand, priority: int) -> set[str]:
        """Return the names of nodes with room for one such pod only without the pods of a lower priority."""
        if not any(one < priority for one in self._priorities):
            return set()
        free, kept = self.free_nodes(demand), self._cache_entry(demand)
        return {
            name
            for name in self._occupants
            if name not in free and self._fits_on_node(kept, demand, name, stays=lambda one: one.priority >= priority)
        }

    def nodes_to_avoid(self, demand: Demand, job_uid: str, need: int, avoided: Sequence[str]) -> set[str]:
        """Return the nodes that the pods of a whole start must avoid; it uses no more of `avoided` than it needs.

        Args:
            demand: of its rank pods.
            job_uid: of the job; its own pods leave before the new ones are placed.
            need: rank pods of the job.
            avoided: names of nodes with a recent fault, the oldest fault first: those are the likeliest to be healthy
                again.
        """
        if not avoided:
            return set(self.not_ready)
        free, soon_free = self.free_nodes(demand), self.soon_free_nodes(demand, job_uid)
        could_take = [name for name in avoided if name in free or name in soon_free]
        missing = need - self.pods_placeable_on((free | soon_free).difference(could_take))
        return self.not_ready | (set(avoided) - set(could_take[: max(missing, 0)]))

    def users_of_node(self, name: str, resource: str) -> list[tuple[str, str]]:
        """Return who has chips of this kind on a node: namespace and name of each pod, and its job's UID."""
        there = self._occupants.get(name, {})
        return [(key, one.job_uid) for key, one in there.items() if any(held == resource for held, _ in one.chips)]

    def chips_used_on(self, name: str) -> Counter[str]:
        """Return the chips of a node that pods have, by resource name."""
        used: Counter[str] = Counter()
        for one in self._occupants.get(name, {}).values():
            used.update(dict(one.chips))
        return used

    def has_other_tenants(self, name: str) -> bool:
        """Return whether a pod that is none of Hajob's has chips of the node."""
        return any(not one.job_uid and one.chips for one in self._occupants.get(name, {}).values())

    def _has_pod_of(self, name: str, job_uid: str) -> bool:
        return any(one.job_uid == job_uid for one in self._occupants.get(name, {}).values())

    def _fits_on_node(
        self, kept: _Kept, demand: Demand, name: str, stays: Callable[[Occupant], bool] | None = None
    ) -> bool:
        """Whether one such pod fits on a node; `stays` selects the occupants that count."""
        node = self.nodes.get(name)
        if node is None or name in self._kept_out or not kept.may_take(node):
            return False
        # Volcano's Ascend plugin, where there is one, gives no chips that the device plugin has not told.
        if demand.by_volcano and self._told and not node.devices:
            return False
        room = (node.chips or {}).get(demand.resource, 0)
        for one in self._occupants.get(name, {}).values():
            if stays is None or stays(one):
                if do_ports_collide(one.ports, demand.ports):
                    return False
                taken = sum(count for resource, count in one.chips if resource == demand.resource)
                if taken and one.untold and demand.by_volcano:
                    return False  # to Volcano's Ascend plugin the rest of such a node is not stable
                room -= taken
        return room >= demand.chips

    def _cache_entry(self, demand: Demand, job_uid: str = "") -> _Kept:
        """Return the cache entry of this demand and job; the entry not queried for longest is dropped."""
        key = demand, job_uid
        # Taken out and put in again, so that the dictionary's order is that of the newest query.
        self._kept[key] = kept = self._kept.pop(key) if key in self._kept else _Kept(demand.node_filter())
        if len(self._kept) > KEPT_LIMIT:
            del self._kept[next(iter(self._kept))]
        return kept

    def _changed_nodes_for(self, kept: _Kept) -> Iterable[str]:
        """Return the names of the nodes whose membership in the entry may have changed."""
        forgotten, seen = kept.seen < self._forgotten, kept.seen
        kept.seen = self._forgotten + len(self._log)
        if forgotten:
            kept.names.clear()
            return self.nodes
        # A node may stand in it several times: checking it again costs less than finding that out.
        return self._log[seen - self._forgotten :]

    def _note_change(self, name: str) -> None:
        self.changes += 1
        self._log.append(name)
        if len(self._log) > LOG_LIMIT:
            # Half at a time: cutting off one entry for each new one would move the whole list at every event.
            half = LOG_LIMIT // 2
            del self._log[:half]
            self._forgotten += half
