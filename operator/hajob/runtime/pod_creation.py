"""Whether one job's missing pods may be created now, and why they are missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from hajob.runtime import metrics
from hajob.runtime.backoff import Retry
from hajob.runtime.clock import Clock
from hajob.runtime.kube import ApiError
from hajob.runtime.pod_index import PodIndex
from hajob.sources.creation import NotCreated, not_created
from hajob.status.announcements import Announcement, of_creation

RETRY_SECONDS: Final = 1.0
"""Before the second try when the API server refuses or cannot be reached."""
LONGEST_RETRY_SECONDS: Final = 30.0
"""A pod that is refused is asked for again after so long at the latest."""


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

    def tried(self, refused: NotCreated | None) -> None:
        """Note that the missing pods were requested, or none is missing."""
        if refused is None:
            self.succeeded()
        else:
            metrics.NOT_CREATED.labels("QuotaExceeded" if refused.over_quota else refused.code).inc()
            self.failed()
        self._tell(refused)

    def not_admitted(self, error: ApiError) -> None:
        """Note that the server refused the job's pods; admission retries by itself."""
        self._tell(not_created(error.status, error.reason, error.message))

    def held_back(self, refusal: NotCreated) -> None:
        """Note why the missing pods are not requested now."""
        self._tell(refusal)

    def _tell(self, refused: NotCreated | None) -> None:
        before, self._pods.not_created = self._pods.not_created, refused
        turned = (refused is None) is not (before is None)
        self._owner.creation_tried(of_creation(before, refused), news=refused != before, turned=turned)
