"""The Kubernetes API as the leader may use it: no write begins, or is still under way, once another operator may lead.

Every write is aborted at the latest when another operator could take the Lease, and none begins after the leader is no
longer sure of it: a queued write checks the Lease when its turn comes, and waits briefly for a late renewal. Writes
that a proxy still delivers then do no harm either: statuses carry the fence, deletes a UID, and a pod's name its
incarnation (docs/decisions/0012-requests-of-a-late-leader.md). Reads are not limited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hajob.api.base import Json
from hajob.clock import Clock, timeout
from hajob.kube.client import ApiError, Kube
from hajob.kube.request_limiter import RequestLimiter
from hajob.leader.leadership import Leadership

NOT_LEADING: Final = "NotLeading"
WRITES_AT_ONCE: Final = 60
"""At most. Below the connections that there are (http_kube): a write that has begun waits for the server only, and none
is given up for the others before it. Above the pods that are made at a time (batches): a recovery finds a place.
"""
WRITES_ALWAYS: Final = 8
"""So many at once however slow the server is."""
LATE_SECONDS: Final = 3.0
"""So long a write waits for a Lease that is not sure: a busy server answers renewals late, too, and who failed at once
would come back much later and ask for all of it again.
"""


class LeaderKube(Kube):
    """A `Kube` with writes bounded by a Lease; a refused or aborted one is an `ApiError` that may pass."""

    def __init__(self, kube: Kube, clock: Clock, leadership: Leadership) -> None:
        super().__init__(kube.transport)
        self._kube = kube
        self._clock = clock
        self._leadership = leadership
        self._turns = RequestLimiter(clock, WRITES_ALWAYS, WRITES_AT_ONCE)

    async def send_write(
        self,
        method: str,
        resource: str,
        path: str,
        body: Json | Sequence[Json],
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Send a changing request; a dry run is not limited."""
        async with self._turns.hold_turn():
            left = await self._seconds_left()
            try:
                async with timeout(self._clock, left):
                    return await self._kube.send_write(
                        method, resource, path, body, query=query, content_type=content_type
                    )
            except TimeoutError:
                late = f"no answer within the {left:.1f} s that were left of the Lease"
                raise ApiError(0, NOT_LEADING, late) from None

    async def _seconds_left(self) -> float:
        """Return for how long it may write.

        Raises:
            ApiError: it may not.
        """
        leadership = self._leadership
        if leadership.seconds_left <= 0:
            try:
                async with timeout(self._clock, LATE_SECONDS):
                    await leadership.wait_until_writable()
            except TimeoutError:
                raise ApiError(0, NOT_LEADING, "the Lease is not held for sure: nothing is written") from None
        return leadership.seconds_left
