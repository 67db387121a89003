"""Whether one job's missing pods may be created now, and why they are missing.

What the API server refuses is asked for ever later. So is a rank pod that its nodes refuse again and again: each
refused pod is replaced, elsewhere where that is possible, and where only such nodes are left, that would be a loop that
makes and deletes pods as fast as the API server allows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from hajob import metrics
from hajob.backoff import Retry
from hajob.clock import Clock
from hajob.job.pod_index import PodIndex
from hajob.job.pod_reconciler import Difference
from hajob.job.status.announcements import Announcement, of_creation
from hajob.kube.client import ApiError
from hajob.sources.creation import NotCreated, not_created
from hajob.sources.pod import PodView

RETRY_SECONDS: Final = 1.0
"""Before the second try when the API server refuses or cannot be reached."""
LONGEST_RETRY_SECONDS: Final = 30.0
"""A pod that is refused is asked for again after so long at the latest."""
AT_ONCE: Final = 2
"""So many refusals by nodes in a row are answered at once: other nodes may take the pod."""
FORGOTTEN_SECONDS: Final = 600.0
"""A refusal by a node so long after the one before is the first of another row."""


class CreationListener(Protocol):
    """The receiver of results: the job controller."""

    def creation_tried(self, told: Announcement | None, *, news: bool, turned: bool) -> None:
        """Handle that all missing pods were requested, or all exist.

        Args:
            told: the Event to post.
            news: whether the reason for missing pods has changed, or is gone.
            turned: whether creation has begun to fail or to succeed.
        """


class PodCreation(Retry):
    """The creation attempts of one job; the reason of a failure is kept with its pods."""

    def __init__(self, pods: PodIndex, clock: Clock, wake: Callable[[], None], owner: CreationListener) -> None:
        super().__init__(clock, wake, RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        self._pods, self._owner = pods, owner
        self._by_nodes = _RefusedByNodes(clock, wake)
        self._held_back: NotCreated | None = None

    def close(self) -> None:
        """Wake nobody any more."""
        self.cancel()
        self._by_nodes.cancel()

    def pod_refused(self, pod: PodView) -> None:
        """Count a rank pod that its node has refused, once."""
        self._by_nodes.pod_seen(pod)

    def now(self, todo: Difference) -> Difference:
        """Leave out the missing pods that are not to be created yet, and note why."""
        self._held_back = self._by_nodes.why_not_created() if todo.rank_pods else None
        if not todo.lacks_pods:
            self.tried(None)
        elif not self.due:
            return replace(todo, rank_pods=(), coordinators=())
        elif self._held_back is not None:
            self._tell(self._held_back)
            return replace(todo, rank_pods=())
        return todo

    def tried(self, refused: NotCreated | None) -> None:
        """Note that the missing pods were requested, or none is missing."""
        if refused is None:
            self.succeeded()
        else:
            metrics.NOT_CREATED.labels("QuotaExceeded" if refused.over_quota else refused.code).inc()
            self.failed()
        self._tell(refused or self._held_back)

    def not_admitted(self, error: ApiError) -> None:
        """Note that the server refused the job's pods; admission retries by itself."""
        self._tell(not_created(error.status, error.reason, error.message))

    def _tell(self, refused: NotCreated | None) -> None:
        before, self._pods.not_created = self._pods.not_created, refused
        turned = (refused is None) is not (before is None)
        self._owner.creation_tried(of_creation(before, refused), news=refused != before, turned=turned)


class _RefusedByNodes(Retry):
    """The refusals of one job's pods by nodes; that a pod was created is no success, for its node answers later."""

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        super().__init__(clock, wake, RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        self._last: dict[int, str] = {}
        self._row, self._row_seen = 0, float("-inf")
        self._pod: PodView | None = None

    def pod_seen(self, pod: PodView) -> None:
        """Count a pod that its node has refused, once."""
        if self._last.get(pod.node_rank) == pod.uid:
            return
        self._last[pod.node_rank] = pod.uid
        now = self._clock.monotonic()
        if now - self._row_seen > FORGOTTEN_SECONDS:
            self._row = 0
            self.succeeded()
        self._row, self._row_seen, self._pod = self._row + 1, now, pod
        if self._row > AT_ONCE:
            self.failed()

    def why_not_created(self) -> NotCreated | None:
        """Return why no rank pod is created now; None where they may be."""
        if self.due or self._pod is None:
            return None
        told = f"{self._pod.node_name} refuses pods of this job, {self._row} so far: {self._pod.trouble}"
        again = f"the next one is created within {LONGEST_RETRY_SECONDS:.0f} s"
        return NotCreated(f"{told}; {again}", code="NodeRefuses")
