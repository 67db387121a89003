"""Pods that their nodes refuse again and again: the next ones are created ever later, and the node is named.

Each refused pod is replaced, elsewhere where that is possible. Where only such nodes are left, that would be a loop
that makes and deletes pods as fast as the API server allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hajob.runtime.backoff import Retry
from hajob.runtime.clock import Clock
from hajob.sources.creation import NotCreated
from hajob.sources.pod import PodView

AT_ONCE: Final = 2
"""So many refusals in a row are answered at once: other nodes may take the pod."""
FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0
"""As for pods that the API server refuses to create."""
FORGOTTEN_SECONDS: Final = 600.0
"""A refusal so long after the one before is the first of another row."""


class RefusedPods(Retry):
    """The refusals of one job's pods by nodes."""

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        super().__init__(clock, wake, FIRST_SECONDS, LONGEST_SECONDS)
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
        return NotCreated(f"{told}; the next one is created within {LONGEST_SECONDS:.0f} s", code="NodeRefuses")
