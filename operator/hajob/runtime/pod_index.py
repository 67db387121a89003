"""What is known of one job's pods: those that exist, those that are gone, and those that nobody can reach.

Only looking and remembering; what follows from it is the planner's, what is done about it the pod reconciler's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.objects.naming import coordinator_pod_name
from hajob.plan.placements import coordinator_placement, serving_incarnation
from hajob.plan.state import JobState
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView, view


@dataclass(frozen=True, slots=True)
class Made:
    """A pod as it was created, and the resourceVersion of that."""

    pod: PodView
    version: str


class PodIndex:
    """The pods of one job.

    Attributes:
        pods: those that exist, by name.
        gone: names of those that existed and have vanished.
        made: those that were created and have not been seen yet, by name.
        silent: UIDs of those whose agent has fallen silent.
        complete: whether a list of all pods was shown to the end.
        listed: resourceVersion of the newest such list.
    """

    def __init__(self) -> None:
        self.pods: dict[str, PodView] = {}
        self.gone: set[str] = set()
        self.made: dict[str, Made] = {}
        self.silent: set[str] = set()
        self.listed = ""
        self.complete = False

    def was_listed(self, version: str) -> None:
        """Every pod of a list of this resourceVersion has been shown."""
        self.complete, self.listed = True, version

    def was_made(self, raw: Json) -> None:
        """The server says that it has made this pod; the watch may have been faster."""
        pod = view(raw)
        if pod.name not in self.pods and pod.name not in self.gone:
            self.made[pod.name] = Made(pod, str(raw["metadata"].get("resourceVersion", "")))

    def missed(self) -> list[PodView]:
        """Those that came and went while the watch was away: a list that is newer than they are does not hold them.

        A pod that is newer than the list is still to come: a list may be answered from a cache that lags behind.
        """
        return [made.pod for made in self.made.values() if _is_within(made.version, self.listed)]

    def seen(self, pod: PodView, *, deleted: bool) -> bool:
        """Take over a pod as it is now, or that it is gone; False where that is no news."""
        known = self.pods.get(pod.name)
        self.made.pop(pod.name, None)
        if deleted:
            self.pods.pop(pod.name, None)
            self.gone.add(pod.name)
            return True
        self.pods[pod.name] = pod
        return known != pod

    def all(self) -> list[PodView]:
        """Those that exist."""
        return list(self.pods.values())

    def ranks(self) -> list[PodView]:
        """Rank pods that have not ended, of whatever incarnation."""
        return [pod for pod in self.pods.values() if pod.role == names.ROLE_RANK and not pod.ended]

    def serving(self, state: JobState) -> dict[int, PodView]:
        """Node rank -> the pod that serves it: of the incarnation that should be there."""
        return {pod.node_rank: pod for pod in self.pods.values() if is_serving(pod, state)}

    def unreachable(self, pod: PodView, nodes: Mapping[str, NodeView]) -> bool:
        """Whether nobody on the pod's node could end it: the node is not ready, or its agent does not answer.

        A pod without a node may have got one since it was looked at: only the server knows, and it waits for no node
        where there is none.
        """
        if not pod.node_name:
            return False
        node = nodes.get(pod.node_name)
        return node is None or not node.ready or pod.uid in self.silent

    def coordinator_shares_node(self) -> bool:
        """Whether the coordinator runs on a node of one of its ranks."""
        homes = {pod.node_name for pod in self.pods.values() if pod.role == names.ROLE_RANK and pod.node_name}
        return any(pod.node_name in homes for pod in self.pods.values() if pod.role == names.ROLE_COORDINATOR)


def _is_within(version: str, listed: str) -> bool:
    """Whether a list shows a state in which this version was written already; the versions of one resource count up."""
    return version.isdecimal() and listed.isdecimal() and int(version) <= int(listed)


def is_serving(pod: PodView, state: JobState) -> bool:
    """Whether a pod is the one that is its node rank now."""
    return pod.role == names.ROLE_RANK and pod.incarnation == serving_incarnation(state, pod.node_rank)


def is_coordinator(pod: PodView, job: HATrainingJob, state: JobState) -> bool:
    """Whether a pod is the coordinator's that should be there."""
    desired = coordinator_placement(state)
    return desired is not None and pod.name == coordinator_pod_name(job, desired.incarnation, apart=desired.apart)
