"""Who is there: the pods of the job, the ranks in them, and what each rank should be.

Two things are kept apart. A *view* is what an agent last said about a rank. A *target* is what this coordinator wants
of it: which process (incarnation and start within it), in which pod, running or not, admitted to MindIO or not.
Everything an agent is told is computed from targets, so a stream may break anywhere. Pure; times in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hajob.protocol import sidecar_pb2 as pb

ALIVE = frozenset({pb.STARTING, pb.AT_GATE, pb.LINKED})


@dataclass(frozen=True)
class View:
    """What an agent said about one of its ranks."""

    incarnation: int
    start: int
    pid: int
    phase: pb.RankPhase
    step: int | None  # None: unknown

    @property
    def process(self) -> tuple[int, int]:
        """Names one process of the rank."""
        return (self.incarnation, self.start)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.phase in ALIVE


@dataclass
class Target:
    """What one rank should be. `pod_uid` is empty while the pod it waits for is not there."""

    incarnation: int
    start: int = 0
    pod_uid: str = ""
    run: bool = True
    admitted: bool = False
    stacks: int = 0  # how often its stack was wanted

    @property
    def process(self) -> tuple[int, int]:
        """Names one process of the rank."""
        return (self.incarnation, self.start)


@dataclass
class Pod:
    """A rank pod and what is known of its agent."""

    node_rank: int
    uid: str
    name: str
    address: str
    incarnation: int
    listed: bool = True
    over: bool = False
    connected: bool = False
    reported: bool = False
    launcher_ready: bool = False
    problems: list[pb.Problem] = field(default_factory=list)
    sees_checkpoints: bool = False
    views: dict[int, View] = field(default_factory=dict)

    def any_alive(self) -> bool:
        """Whether a process was running when the agent last spoke."""
        return any(view.alive for view in self.views.values())


class Roster:
    """All pods by UID, the targets by rank."""

    def __init__(self) -> None:
        self.world_size = 0
        self.ranks_per_node = 1
        self.pods: dict[str, Pod] = {}
        self._by_node: dict[int, list[Pod]] = {}  # newest incarnation first
        self.version = 0  # rises when a pod comes, goes or gets an address
        self.targets: dict[int, Target] = {}
        self.spares: dict[int, Target] = {}  # second processes that are to take over from running ones
        self.registered: set[int] = set()

    @property
    def num_nodes(self) -> int:
        """How many rank pods the job has."""
        return -(-self.world_size // self.ranks_per_node)

    def node_of(self, rank: int) -> int:
        """The node rank a rank lives in."""
        return rank // self.ranks_per_node

    def ranks_of(self, node_rank: int) -> range:
        """The ranks of one node rank."""
        first = node_rank * self.ranks_per_node
        return range(first, min(first + self.ranks_per_node, self.world_size))

    def assign(self, assignment: pb.Assignment) -> None:
        """Take in the pods that exist now; one that is gone is kept until nobody can be harmed by it."""
        self.world_size = assignment.world_size
        self.ranks_per_node = max(assignment.ranks_per_node, 1)
        listed = {entry.pod_uid for entry in assignment.pods}
        for pod in self.pods.values():
            pod.listed = pod.uid in listed
        for entry in assignment.pods:
            known = self.pods.get(entry.pod_uid)
            if known is None:
                known = Pod(entry.node_rank, entry.pod_uid, entry.pod_name, entry.address, entry.incarnation)
                self._add(known)
            known.address = entry.address or known.address
        self.version += 1

    def _add(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        pods = self._by_node.setdefault(pod.node_rank, [])
        pods.append(pod)
        pods.sort(key=lambda one: one.incarnation, reverse=True)

    def forget(self, uid: str) -> None:
        """The pod can do no harm any more."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._by_node[pod.node_rank].remove(pod)
            self.version += 1

    def pods_of(self, node_rank: int) -> list[Pod]:
        """Newest incarnation first."""
        return self._by_node.get(node_rank, [])

    def newest(self, node_rank: int, at_least: int = 0) -> Pod | None:
        """The pod a node rank lives in now, of incarnation `at_least` or later."""
        fit = (p for p in self.pods_of(node_rank) if p.listed and not p.over and p.incarnation >= at_least)
        return next(fit, None)

    def pod_of(self, rank: int) -> Pod | None:
        """The pod a rank is meant to live in."""
        target = self.targets.get(rank)
        return self.pods.get(target.pod_uid) if target is not None else None

    def view(self, rank: int) -> View | None:
        """The view of exactly the wanted process; None when it is not there or another one is."""
        target, pod = self.targets.get(rank), self.pod_of(rank)
        view = pod.views.get(rank) if pod is not None else None
        return view if view is not None and target is not None and view.process == target.process else None

    def spare_phase(self, rank: int) -> pb.RankPhase:
        """Of the process that is to take the rank over."""
        spare = self.spares.get(rank)
        pod = self.pods.get(spare.pod_uid) if spare is not None else None
        view = pod.views.get(rank) if pod is not None else None
        if pod is None or not pod.connected or view is None or spare is None or view.process != spare.process:
            return pb.ABSENT
        return view.phase

    def phase(self, rank: int) -> pb.RankPhase:
        """Of exactly the wanted process."""
        view = self.view(rank)
        return view.phase if view is not None else pb.ABSENT

    def is_current(self, pod: Pod, rank: int, process: tuple[int, int]) -> bool:
        """Whether this process in this pod is the wanted one."""
        target = self.targets.get(rank)
        return target is not None and target.pod_uid == pod.uid and target.process == process

    def predecessors(self, rank: int) -> list[Pod]:
        """Pods in which an older process of the rank may still live."""
        target = self.targets[rank]
        return [pod for pod in self.pods_of(self.node_of(rank)) if pod.uid != target.pod_uid]

    def linked(self, ranks: Iterable[int]) -> bool:
        """Whether all of these have reached MindIO."""
        return all(self.phase(rank) in (pb.LINKED, pb.FINISHED) for rank in ranks)
