"""The Kubernetes API as the leader may use it: no write begins, or is still on its way, once another one may lead.

Every write is given up at the latest when the Lease could be taken by somebody else, and none begins after the leader
stopped being sure of it. What a proxy still delivers after that does no harm either: statuses carry the fence, deletes
a UID, and a pod's name its incarnation (docs/decisions/0012-requests-of-a-late-leader.md). Questions are not limited.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from hajob.api.base import Json
from hajob.runtime.clock import Clock, timeout
from hajob.runtime.kube import ApiError, Kube, Page, PatchKind, TokenIdentity, WatchEvent

NOT_LEADING: Final = "NotLeading"

T = TypeVar("T")


class Leadership(Protocol):
    """What is asked of the Lease (hajob.runtime.lease.LeaseHolder)."""

    @property
    def seconds_left(self) -> float:
        """For how long nobody else can begin to lead."""


class LeaderKube:
    """`Kube`, with writes bounded by a Lease; a refused or given up one is an `ApiError` that may pass."""

    def __init__(self, kube: Kube, clock: Clock, leadership: Leadership) -> None:
        self._kube = kube
        self._clock = clock
        self._leadership = leadership

    async def get(self, resource: str, namespace: str, name: str) -> Json:
        """One object."""
        return await self._kube.get(resource, namespace, name)

    def pages(self, resource: str, namespace: str = "", label_selector: str = "") -> AsyncIterator[Page]:
        """A list in parts."""
        return self._kube.pages(resource, namespace, label_selector)

    def watch(
        self, resource: str, namespace: str = "", label_selector: str = "", resource_version: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """What changes after a version."""
        return self._kube.watch(resource, namespace, label_selector, resource_version)

    async def create(self, resource: str, namespace: str, body: Json, *, dry_run: bool = False) -> Json:
        """Create an object; a dry run changes nothing and is not limited."""
        creation = partial(self._kube.create, resource, namespace, body, dry_run=dry_run)
        return await (creation() if dry_run else self._limited(creation))

    async def replace(self, resource: str, namespace: str, body: Json) -> Json:
        """Put an object."""
        return await self._limited(partial(self._kube.replace, resource, namespace, body))

    async def patch(
        self,
        resource: str,
        namespace: str,
        name: str,
        body: Json | Sequence[Json],
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
    ) -> Json:
        """Change an object."""
        return await self._limited(
            partial(self._kube.patch, resource, namespace, name, body, kind=kind, subresource=subresource)
        )

    async def delete(
        self, resource: str, namespace: str, name: str, *, uid: str = "", grace_seconds: int | None = None
    ) -> None:
        """Delete an object."""
        await self._limited(partial(self._kube.delete, resource, namespace, name, uid=uid, grace_seconds=grace_seconds))

    async def token_review(self, token: str, audience: str) -> TokenIdentity | None:
        """Whose token it is."""
        return await self._kube.token_review(token, audience)

    async def _limited(self, write: Callable[[], Awaitable[T]]) -> T:
        left = self._leadership.seconds_left
        if left <= 0:
            raise ApiError(0, NOT_LEADING, "the Lease is not held for sure: nothing is written")
        try:
            async with timeout(self._clock, left):
                return await write()
        except TimeoutError:
            raise ApiError(0, NOT_LEADING, f"no answer within the {left:.1f} s that were left of the Lease") from None
