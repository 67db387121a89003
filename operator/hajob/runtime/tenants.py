"""What the other tenants of the cluster do that concerns jobs: their pods occupy nodes, and quotas get room.

Of other pods only those with chips and a node are kept, and of those only what they occupy. An operator that may not
list them goes on without: it then believes nodes free that are not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from hajob.api import constants as names
from hajob.runtime.clock import Clock, timeout
from hajob.runtime.informer import Change, ChangeType, Informer
from hajob.runtime.kube import Kube
from hajob.sources.pod import ForeignPod, foreign_pod
from hajob.sources.quota import Quota, view

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 10.0
"""So long a start of the operator waits for the pods of others to be listed."""


class Tenants:
    """Caches of everybody else's pods, and of quotas.

    Args:
        kube: the API.
        clock: for backoff.
        namespace: whose quotas matter; empty: all.
        pods_changed: told a pod of somebody as it is now and as it was; None: it occupies nothing.
        quota_changed: told namespace and name of a quota, and it as it is now; None: it is gone.
    """

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        namespace: str,
        pods_changed: Callable[[ForeignPod | None, ForeignPod | None], None],
        quota_changed: Callable[[str, str, Quota | None], None],
    ) -> None:
        self._clock = clock
        self._pods_changed, self._quota_changed = pods_changed, quota_changed
        others = f"!{names.LABEL_JOB_UID}"
        self._pods = Informer(kube, clock, "pods", foreign_pod, self._pod, label_selector=others, large=True)
        self._quotas = Informer(kube, clock, "resourcequotas", view, self._quota, namespace=namespace)

    @property
    def informers(self) -> tuple[Informer[ForeignPod | None], Informer[Quota]]:
        """All of them, to be run."""
        return self._pods, self._quotas

    async def synced(self) -> None:
        """Wait until the pods are known, but not for ever."""
        try:
            async with timeout(self._clock, PATIENCE_SECONDS):
                await self._pods.synced.wait()
        except TimeoutError:
            log.warning("the pods of other tenants cannot be listed: nodes that they occupy count as free")

    def _pod(self, change: Change[ForeignPod | None]) -> None:
        gone = change.type is ChangeType.DELETED
        self._pods_changed(None if gone else change.value, change.previous)

    def _quota(self, change: Change[Quota]) -> None:
        quota, gone = change.value, change.type is ChangeType.DELETED
        self._quota_changed(quota.namespace, quota.name, None if gone else quota)
