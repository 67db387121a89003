"""Who is there: the pods of the job, the ranks in them, and what each rank should be. Only this module changes it.

Two things are kept apart. A *view* is what an agent last said about a rank. A *target* is what this coordinator wants
of it: which process (incarnation and start within it), in which pod, running or not, admitted to MindIO or not.
Everything an agent is told is computed from targets, so a stream may break anywhere. Pure; times in seconds.

Asked at every message of up to thousands of agents: what is looked up goes by pod UID or node rank, and what is asked
of every rank remembers the one that it failed on last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.launcher.arguments import HIGH_AVAILABILITY, parse_options

ALIVE = frozenset({pb.STARTING, pb.AT_GATE, pb.LINKED})
ARRIVED = frozenset({pb.LINKED, pb.FINISHED})
STARTED = ALIVE | ARRIVED


@dataclass(frozen=True, slots=True)
class RankView:
    """What an agent said about one of its ranks."""

    incarnation: int
    start: int
    pid: int
    phase: pb.RankPhase
    step: int | None  # None: unknown
    error_line: str = ""  # the newest one that it printed

    @property
    def process_name(self) -> tuple[int, int]:
        """Names one process of the rank."""
        return (self.incarnation, self.start)

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.phase in ALIVE


@dataclass(slots=True)
class RankTarget:
    """What one rank should be. `pod_uid` is empty while the pod it waits for is not there."""

    incarnation: int
    start: int = 0
    pod_uid: str = ""
    run: bool = True
    admitted: bool = False
    stacks: int = 0  # how often its stack was desired

    @property
    def process_name(self) -> tuple[int, int]:
        """Names one process of the rank."""
        return (self.incarnation, self.start)

    def end_process(self) -> bool:
        """End the process; return whether it was to run."""
        ran, self.run, self.admitted = self.run, False, False
        return ran

    def admit_process(self) -> bool:
        """Let the process pass its gate; return whether that is new."""
        new = self.run and not self.admitted
        self.admitted = self.admitted or self.run
        return new

    def hold_process(self) -> None:
        """Hold the process at its gate until MindIO has named its rank."""
        self.admitted = False

    def ask_for_stack(self) -> None:
        """Ask for its stack once more."""
        self.stacks += 1


@dataclass(slots=True, eq=False)
class RankPod:
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
    strangers: int = 0  # connections from outside that its agent has held
    gate: pb.GateState | None = None  # None: it cannot make ranks known to another controller
    launched: tuple[str, ...] = ()  # what node rank 0's script has launched: script or module, its arguments
    environment: Mapping[str, str] = field(default_factory=dict)  # of node rank 0: what its ranks were ordered with
    views: dict[int, RankView] = field(default_factory=dict)
    oldest_alive: int | None = None  # the lowest incarnation of a process that runs
    newest_started: int | None = None  # the highest incarnation of a process that was started
    _state: pb.NodeState | None = None  # made when it is asked for, until something in it is another

    @property
    def is_current(self) -> bool:
        """Whether it is one of the job's pods as they are now."""
        return self.listed and not self.over

    def has_live_process(self) -> bool:
        """Return whether a process was running when the agent last spoke."""
        return self.oldest_alive is not None

    def note_connected(self) -> None:
        """Note that its agent has said hello, and not yet how its ranks are."""
        self.connected, self.reported = True, False

    def note_disconnected(self) -> bool:
        """Note that the stream is gone; return whether there was one."""
        before, self.connected = self.connected, False
        return before

    def apply_report(self, report: pb.AgentReport) -> tuple[bool, bool]:
        """Take in a report of the agent; return whether it is the first, and whether launcher or problems changed."""
        first, changed = not self.reported, self.launcher_ready != report.launcher_ready
        changed = changed or self.problems != list(report.problems)
        self.reported, self.launcher_ready = True, report.launcher_ready
        self.problems = list(report.problems)
        self.strangers = max(self.strangers, report.strangers)
        self.gate = report.gate if report.HasField("gate") else None
        return first, changed

    def apply_view(self, rank: int, view: RankView) -> bool:
        """Take in how a rank is; return whether another process or phase was known."""
        before = self.views.get(rank)
        self.views[rank] = view
        if before != view:
            self._state = None
        if before is not None and (before.process_name, before.phase) == (view.process_name, view.phase):
            return False
        views = self.views.values()
        self.oldest_alive = min((one.incarnation for one in views if one.is_alive), default=None)
        self.newest_started = max((one.incarnation for one in views if one.phase != pb.ABSENT), default=None)
        return True

    def mark_over(self) -> None:
        """Mark the pod as over: its ranks live elsewhere from now on."""
        self.over = True

    def node_state(self, *, connected: bool) -> pb.NodeState:
        """Return its state for the operator; the caller must not change it. `connected`: its agent is heard."""
        state = self._state
        if state is None:
            state = self._state = pb.NodeState(node_rank=self.node_rank, pod_uid=self.uid)
            for rank, view in sorted(self.views.items()):
                state.ranks.add(
                    rank=rank,
                    incarnation=view.incarnation,
                    start=view.start,
                    pid=view.pid,
                    phase=view.phase,
                    step=view.step,
                )
        state.connected, state.launcher_ready = connected, self.launcher_ready
        return state


class Roster:
    """All pods by UID, the targets by rank."""

    def __init__(self) -> None:
        self.world_size = 0
        self.ranks_per_node = 1
        self.pods: dict[str, RankPod] = {}
        self._by_node: dict[int, list[RankPod]] = {}  # newest incarnation first
        self._failed_on: dict[str, int] = {}  # question -> the number that it was false for last
        self.version = 0  # rises when a pod comes, goes or gets an address
        self.targets: dict[int, RankTarget] = {}
        self.spares: dict[int, RankTarget] = {}  # second processes that are to take over from running ones
        self.seeing: set[str] = set()  # UIDs of pods whose agents see the checkpoints
        self.answering: set[str] = set()  # UIDs of pods that are over and not told so: MindIO asks their ranks to stop
        self.strangers = 0  # connections from outside that agents have held
        self.launched: tuple[str, ...] = ()  # by the start script: script or module, its arguments
        self.switches_mindio_on = False  # by these arguments, whatever the job's environment says
        self.registered: set[int] = set()
        self.dropped: set[int] = set()  # left out since a shrink

    # -- pods ---------------------------------------------------------------------------------------------------------

    @property
    def number_of_nodes(self) -> int:
        """How many rank pods the job has."""
        return -(-self.world_size // self.ranks_per_node)

    @property
    def number_in_training(self) -> int:
        """Ranks that take part."""
        return max(self.world_size - len(self.dropped), 1)

    def node_rank_of(self, rank: int) -> int:
        """Return the node rank that a rank lives in."""
        return rank // self.ranks_per_node

    def ranks_of_node(self, node_rank: int) -> range:
        """Return the ranks of one node rank."""
        first = node_rank * self.ranks_per_node
        return range(first, min(first + self.ranks_per_node, self.world_size))

    def ranks_of_nodes(self, node_ranks: Iterable[int]) -> set[int]:
        """Return the ranks of all of these node ranks."""
        return {rank for node_rank in node_ranks for rank in self.ranks_of_node(node_rank)}

    def apply_assignment(self, assignment: pb.Assignment) -> None:
        """Take in the pods that exist now; one that is gone is kept until nobody can be harmed by it."""
        self.world_size = assignment.world_size
        self.ranks_per_node = max(assignment.ranks_per_node, 1)
        listed = {entry.pod_uid for entry in assignment.pods}
        for pod in self.pods.values():
            pod.listed = pod.uid in listed
        for entry in assignment.pods:
            known = self.pods.get(entry.pod_uid)
            if known is None:
                known = RankPod(entry.node_rank, entry.pod_uid, entry.pod_name, entry.address, entry.incarnation)
                self._add_pod(known)
            known.address = entry.address or known.address
        self.version += 1

    def _add_pod(self, pod: RankPod) -> None:
        self.pods[pod.uid] = pod
        pods = self._by_node.setdefault(pod.node_rank, [])
        pods.append(pod)
        pods.sort(key=lambda one: one.incarnation, reverse=True)

    def forget_pod(self, uid: str) -> None:
        """Forget the pod: it can do no harm."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._by_node[pod.node_rank].remove(pod)
            self.seeing.discard(uid)
            self.answering.discard(uid)
            self.version += 1

    def pods_of_node(self, node_rank: int) -> list[RankPod]:
        """Return the pods of a node rank, newest incarnation first."""
        return self._by_node.get(node_rank, [])

    def retire_pod(self, pod: RankPod, *, answers: bool) -> None:
        """Mark the pod as over; `answers`: it is not told until nobody asks its ranks anything."""
        pod.mark_over()
        if answers:
            self.answering.add(pod.uid)

    def take_answering(self) -> set[str]:
        """Return the UIDs of pods that are to be told now that they are over: nobody asks their ranks anything."""
        told, self.answering = self.answering, set()
        return told

    def newest_pod(self, node_rank: int, at_least: int = 0) -> RankPod | None:
        """Return the pod that a node rank lives in now, of incarnation `at_least` or later."""
        for pod in self._by_node.get(node_rank, ()):
            if pod.listed and not pod.over and pod.incarnation >= at_least:
                return pod
        return None

    def apply_report(self, pod: RankPod, report: pb.AgentReport) -> tuple[bool, bool]:
        """Take in a report, without ranks, facts and steps; return whether it is the first, and whether it has news."""
        self.strangers += max(0, report.strangers - pod.strangers)
        first, changed = pod.apply_report(report)
        pod.launched = tuple(report.launched)
        pod.environment = report.environment
        if pod.launched and pod.launched != self.launched:  # all launch the same, and only node rank 0 tells of it
            self.launched = pod.launched
            self.switches_mindio_on = HIGH_AVAILABILITY in parse_options(pod.launched)
        (self.seeing.add if report.sees_checkpoints else self.seeing.discard)(pod.uid)
        return first, changed

    # -- targets ------------------------------------------------------------------------------------------------------

    def set_target(self, rank: int, target: RankTarget) -> None:
        """Set what the rank should be from now on."""
        self.targets[rank] = target

    def set_all_targets(self, targets: dict[int, RankTarget]) -> None:
        """Set what every rank should be from now on."""
        self.targets = targets

    def adopt_running(self, pod: RankPod) -> None:
        """Set ranks that this coordinator never started as desired, so that they can be ended."""
        for rank, view in pod.views.items():
            self.targets.setdefault(rank, RankTarget(view.incarnation, view.start, pod.uid))

    def set_spare(self, rank: int, target: RankTarget) -> None:
        """Set the second process of a rank."""
        self.spares[rank] = target

    def is_relieved(self, uid: str, rank: int) -> bool:
        """Return whether the rank's process in this pod is a first one: a second process is to take its place."""
        spare = self.spares.get(rank)
        return spare is not None and spare.pod_uid != uid

    def promote_spares(self) -> set[str]:
        """Make the second processes the ranks; the pods of the first ones are over.

        Returns the UIDs of the pods that are told so.
        """
        touched = set()
        for rank, spare in self.spares.items():
            touched |= self._retire_by_uid(self.targets[rank].pod_uid) | {spare.pod_uid}
            self.targets[rank] = spare
        self.spares.clear()
        return touched

    def retire_spares(self) -> set[str]:
        """Give up the second processes, for which nobody waits; return the UIDs of their pods."""
        touched = set()
        for spare in self.spares.values():
            touched |= self._retire_by_uid(spare.pod_uid)
        self.spares.clear()
        return touched

    def _retire_by_uid(self, uid: str) -> set[str]:
        pod = self.pods.get(uid)
        if pod is None:
            return set()
        pod.mark_over()
        return {uid}

    def targets_told_to(self, pod: RankPod) -> Iterator[tuple[int, RankTarget]]:
        """Yield what this pod's agent is told: first and second processes, by rank."""
        for rank in self.ranks_of_node(pod.node_rank):
            for target in (self.targets.get(rank), self.spares.get(rank)):
                if target is not None and target.pod_uid == pod.uid:
                    yield rank, target

    # -- who takes part -----------------------------------------------------------------------------------------------

    def register_rank(self, rank: int) -> None:
        """Note that MindIO knows the rank."""
        self.registered.add(rank)

    def register_only(self, ranks: set[int]) -> None:
        """Note that MindIO knows these ranks and no other."""
        self.registered = ranks

    def leave_out_ranks(self, ranks: Iterable[int]) -> None:
        """Set the ranks that take no part; none: everybody takes part."""
        self.dropped = set(ranks)

    # -- questions ----------------------------------------------------------------------------------------------------

    def pod_of_rank(self, rank: int) -> RankPod | None:
        """Return the pod that a rank is meant to live in."""
        target = self.targets.get(rank)
        return self.pods.get(target.pod_uid) if target is not None else None

    def error_line_of(self, rank: int) -> str:
        """Return the newest line with which the rank told of a fault; empty: it printed none."""
        pod = self.pod_of_rank(rank)
        view = pod.views.get(rank) if pod is not None else None
        return view.error_line if view is not None else ""

    def phase_of_rank(self, rank: int) -> pb.RankPhase:
        """Return the phase of exactly the desired process; absent when it is not there or another one is."""
        target = self.targets.get(rank)
        return self._phase_of_target(target, self.pods.get(target.pod_uid), rank) if target is not None else pb.ABSENT

    def phase_of_spare(self, rank: int) -> pb.RankPhase:
        """Return the phase of the process that is to take the rank over."""
        spare = self.spares.get(rank)
        pod = self.pods.get(spare.pod_uid) if spare is not None else None
        return (
            self._phase_of_target(spare, pod, rank)
            if spare is not None and pod is not None and pod.connected
            else pb.ABSENT
        )

    @staticmethod
    def _phase_of_target(target: RankTarget, pod: RankPod | None, rank: int) -> pb.RankPhase:
        view = pod.views.get(rank) if pod is not None else None
        same = view is not None and (view.incarnation, view.start) == (target.incarnation, target.start)
        return view.phase if view is not None and same else pb.ABSENT

    def is_desired_process(self, pod: RankPod, rank: int, process: tuple[int, int]) -> bool:
        """Return whether this process in this pod is the desired one."""
        target = self.targets.get(rank)
        return target is not None and target.pod_uid == pod.uid and target.process_name == process

    def predecessor_pods(self, rank: int) -> list[RankPod]:
        """Return the pods in which an older process of the rank may still live."""
        target = self.targets[rank]
        return [pod for pod in self.pods_of_node(self.node_rank_of(rank)) if pod.uid != target.pod_uid]

    def are_linked(self, ranks: Iterable[int]) -> bool:
        """Return whether all of these have reached MindIO."""
        return all(self.phase_of_rank(rank) in ARRIVED for rank in ranks)

    def are_all_linked(self) -> bool:
        """Return whether every rank has reached MindIO."""
        return self._holds_for_all("linked", self.world_size, lambda rank: self.phase_of_rank(rank) in ARRIVED)

    def are_all_running(self) -> bool:
        """Return whether every rank has a process that runs, or has ended in order."""
        return self._holds_for_all("run", self.world_size, lambda rank: self.phase_of_rank(rank) in STARTED)

    def are_all_reported(self) -> bool:
        """Return whether every node rank has a pod whose agent has said how its ranks are."""
        return self._holds_for_all("there", self.number_of_nodes, self._has_pod_reported)

    def _has_pod_reported(self, node_rank: int) -> bool:
        pod = self.newest_pod(node_rank)
        return pod is not None and pod.connected and pod.reported

    def _holds_for_all(self, question: str, size: int, holds: Callable[[int], bool]) -> bool:
        """Whether it holds for 0 … size - 1. The number that it failed for last is asked first, those after it next."""
        begin = self._failed_on.get(question, 0)
        failed = next((number for number in chain(range(begin, size), range(begin)) if not holds(number)), None)
        self._failed_on[question] = failed if failed is not None else 0
        return failed is None

    def reported_pods(self) -> list[RankPod]:
        """Return the newest pods whose agents have said how their ranks are."""
        pods = (self.newest_pod(node_rank) for node_rank in range(self.number_of_nodes))
        return [pod for pod in pods if pod is not None and pod.connected and pod.reported]
