"""The pods of one job: those that exist, those that are gone, and those on unreachable nodes.

It only observes and stores; the planner decides, and policies act.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import IntEnum

from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.plan.placements import coordinator_placement, serving_incarnation, turned_node_ranks
from hajob.plan.state import JobState
from hajob.pods.naming import coordinator_pod_name
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView, pod_view_of


@dataclass(frozen=True, slots=True)
class Made:
    """A pod as it was created, and its resourceVersion then."""

    pod: PodView
    version: str


class News(IntEnum):
    """The result of an observation of a pod; falsy when nothing changed."""

    NONE = 0
    DETAIL = 1
    """It is another step on: it has a node, it runs, it is ready."""
    WHETHER = 2
    """Whether it is there: it came without having been made, it goes, has ended, is gone."""

    @property
    def changes_pods(self) -> bool:
        """Whether pods may have to be created or deleted after it."""
        return self is News.WHETHER


@dataclass(slots=True)
class Serving:
    """The pods that serve their node ranks, with derived sets that are updated pod by pod.

    Attributes:
        pods: by node rank.
        node_names: of those that have a node, by node rank.
        unplaced: node ranks for which the scheduler finds no node, or may not look for one yet.
        gated: node ranks whose pods may not ask for a node yet.
        finished: node ranks whose pod's trainer has ended well.
    """

    pods: dict[int, PodView] = field(default_factory=dict)
    node_names: dict[int, str] = field(default_factory=dict)
    unplaced: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    gated: set[int] = field(default_factory=set)

    def put_pod(self, pod: PodView) -> None:
        """Store a serving pod as it is now."""
        self.drop_node_rank(pod.node_rank)
        self.pods[pod.node_rank] = pod
        if pod.node_name:
            self.node_names[pod.node_rank] = pod.node_name
        elif pod.unschedulable or pod.is_gated:
            self.unplaced.add(pod.node_rank)
        if pod.is_gated:
            self.gated.add(pod.node_rank)
        if pod.has_finished:
            self.finished.add(pod.node_rank)

    def put_serving_pods(self, pods: Iterable[PodView], state: JobState) -> None:
        """Store those of these pods that serve in this state."""
        for pod in pods:
            if is_serving_pod(pod, state):
                self.put_pod(pod)

    def drop_node_rank(self, node_rank: int) -> None:
        """Remove the serving pod of this node rank."""
        self.pods.pop(node_rank, None)
        self.node_names.pop(node_rank, None)
        self.unplaced.discard(node_rank)
        self.finished.discard(node_rank)
        self.gated.discard(node_rank)


class PodIndex:
    """The pods of one job.

    Attributes:
        pods: those that exist, by name.
        gone: names of those that existed and have vanished.
        made: those that were created and have not been seen yet, by name.
        silent: UIDs of those whose agent is silent.
        complete: whether a list of all pods was shown to the end.
        listed: resourceVersion of the newest such list.
        node_names: names of the nodes with pods of the job.
    """

    def __init__(self) -> None:
        self.pods: dict[str, PodView] = {}
        self.gone: set[str] = set()
        self.made: dict[str, Made] = {}
        self.silent: set[str] = set()
        self.listed = ""
        self.complete = False
        self._on_node: dict[str, tuple[str, ...]] = {}  # nearly always one: a set would be four times as large
        self.node_names: AbstractSet[str] = self._on_node.keys()
        self._earlier: tuple[int, set[str]] | None = None
        self._serving: Serving | None = None
        self._state: JobState | None = None

    def note_list(self, version: str) -> None:
        """Note that every pod of a list of this resourceVersion has been shown."""
        self.complete, self.listed = True, version

    def note_created(self, raw: Json) -> None:
        """Note that the server has created this pod; the watch may have been faster."""
        pod = pod_view_of(raw)
        if pod.name not in self.pods and pod.name not in self.gone:
            self.made[pod.name] = Made(pod, str(raw["metadata"].get("resourceVersion", "")))

    def missed_pods(self) -> list[PodView]:
        """Return pods that came and went while the watch was away: a newer list does not hold them.

        A pod that is newer than the list may still appear: a list may come from a cache that lags behind.
        """
        return [made.pod for made in self.made.values() if _is_version_within(made.version, self.listed)]

    def store_pod(self, pod: PodView, *, deleted: bool) -> News:
        """Store a pod as it is now, or its deletion."""
        known, made = self.pods.get(pod.name), self.made.pop(pod.name, None)
        self._update_indexes(known, None if deleted else pod)
        if deleted:
            self.pods.pop(pod.name, None)
            self.gone.add(pod.name)
            return News.WHETHER
        self.pods[pod.name] = pod
        if known == pod:
            return News.NONE
        if known is None:
            return News.DETAIL if made is not None and not pod.deleting and not pod.has_ended else News.WHETHER
        same = (known.deleting, known.has_ended, known.uid) == (pod.deleting, pod.has_ended, pod.uid)
        return News.DETAIL if same else News.WHETHER

    def _update_indexes(self, before: PodView | None, now: PodView | None) -> None:
        """Update the indexes by node and by node rank."""
        if before is not None and before.node_name:
            others = tuple(name for name in self._on_node.pop(before.node_name) if name != before.name)
            if others:
                self._on_node[before.node_name] = others
        if now is not None and now.node_name:
            self._on_node[now.node_name] = (*self._on_node.get(now.node_name, ()), now.name)
        if self._earlier is not None:
            base, old = self._earlier
            old.discard(before.name if before is not None else "")
            if now is not None and is_earlier_rank_pod(now, base) and not now.has_ended:
                old.add(now.name)
        if self._serving is None or self._state is None:
            return
        if now is not None and is_serving_pod(now, self._state):
            self._serving.put_pod(now)
        elif before is not None and is_serving_pod(before, self._state):
            self._serving.drop_node_rank(before.node_rank)

    def pods_on_node(self, name: str) -> list[PodView]:
        """Return the job's pods on this node."""
        return [self.pods[pod] for pod in sorted(self._on_node.get(name, ()))]

    def all_pods(self) -> list[PodView]:
        """Return the existing pods."""
        return list(self.pods.values())

    def coordinator_pod(self, job: HATrainingJob, state: JobState) -> PodView | None:
        """Return the coordinator's desired pod, if it exists."""
        return self.pods.get(coordinator_name(job, state))

    def earlier_ranks(self, base: int) -> Collection[str]:
        """Return the names of rank pods of starts before this incarnation's in which processes may run."""
        if self._earlier is None or self._earlier[0] != base:
            self._earlier = base, {pod.name for pod in old_rank_pods(base, self.pods) if not pod.has_ended}
        return self._earlier[1]

    def rank_pods(self) -> list[PodView]:
        """Return the rank pods that have not ended, of every incarnation."""
        return [pod for pod in self.pods.values() if pod.is_rank_pod and not pod.has_ended]

    def serving_pods(self, state: JobState) -> Serving:
        """Return the serving pods: those of the incarnations that should exist in this state."""
        turned = turned_node_ranks(self._state, state) if self._state is not None else None
        if self._serving is None or turned is None:
            self._serving = Serving()
            self._serving.put_serving_pods(self.pods.values(), state)
        elif turned:
            for node_rank in turned:
                self._serving.drop_node_rank(node_rank)
            self._serving.put_serving_pods((pod for pod in self.pods.values() if pod.node_rank in turned), state)
        self._state = state
        return self._serving

    def is_unreachable(self, pod: PodView, nodes: Mapping[str, NodeView]) -> bool:
        """Return whether nothing on the pod's node could end it: the node is not ready, or its agent does not answer.

        A pod without a node may have got one since it was observed: only the server knows, and it waits for no node
        where there is none.
        """
        return is_node_away(pod, nodes) or (bool(pod.node_name) and pod.uid in self.silent)


def is_node_away(pod: PodView, nodes: Mapping[str, NodeView]) -> bool:
    """Return whether the API server reports that nothing on the pod's node could end it."""
    node = nodes.get(pod.node_name)
    return bool(pod.node_name) and (node is None or not node.ready)


def _is_version_within(version: str, listed: str) -> bool:
    """Whether a list includes this version; the versions of one resource count up."""
    return version.isdecimal() and listed.isdecimal() and int(version) <= int(listed)


def is_serving_pod(pod: PodView, state: JobState) -> bool:
    """Return whether a pod is the current pod of its node rank."""
    return pod.is_rank_pod and pod.incarnation == serving_incarnation(state, pod.node_rank)


def is_coordinator_pod(pod: PodView, job: HATrainingJob, state: JobState) -> bool:
    """Return whether a pod is the coordinator's desired pod."""
    return pod.name == coordinator_name(job, state)


def coordinator_name(job: HATrainingJob, state: JobState) -> str:
    """Return the name of the coordinator's desired pod; empty where there should be none."""
    desired = coordinator_placement(state)
    return "" if desired is None else coordinator_pod_name(job, desired.incarnation, apart=desired.apart)


def old_rank_pods(base: int, pods: Mapping[str, PodView]) -> list[PodView]:
    """Return the rank pods of earlier starts that may still have a node."""
    return [pod for pod in pods.values() if is_earlier_rank_pod(pod, base)]


def is_earlier_rank_pod(pod: PodView, base: int) -> bool:
    """Return whether it is a rank pod of an earlier start that has a node, and that a kubelet may still end."""
    return pod.is_rank_pod and pod.incarnation < base and bool(pod.node_name) and not pod.left_over
