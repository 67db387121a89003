"""Other tenants of the cluster as far as they concern jobs: their pods occupy nodes, and quotas get room.

Of other pods only those with chips and a node are cached, and of those only what they occupy. They are listed in the
whole cluster even if only some namespaces are served: otherwise the free nodes are unknown. An operator that may not
list them goes on without, and takes occupied nodes for free.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.app.core import OperatorCore
from hajob.clock import Clock
from hajob.kube.client import Kube
from hajob.kube.informer import Change, ChangeType, Informer, Selection, wait_for_lists
from hajob.sources.pod import ForeignPod, view_of_foreign_pod
from hajob.sources.quota import Quota, quota_view_of

log = logging.getLogger(__name__)


class Tenants:
    """Caches of other tenants' pods, and of quotas.

    Args:
        kube: the API.
        clock: for backoff.
        namespaces: whose jobs are served; one without a name: all. Pods of jobs elsewhere are somebody else's.
        core: is told of every change.

    Attributes:
        quotas: the caches of quotas, one of each namespace.
    """

    def __init__(self, kube: Kube, clock: Clock, namespaces: Collection[str], core: OperatorCore) -> None:
        self._clock, self._namespaces, self._core = clock, frozenset(namespaces), core
        others = f"!{names.LABEL_JOB_UID}" if "" in namespaces else ""
        self._pods = Informer(
            kube,
            clock,
            Selection("pods", label_selector=others, large=True),
            self._view_of_other,
            self._handle_changed_pod,
        )
        self.quotas = [
            Informer(kube, clock, Selection("resourcequotas", namespace), quota_view_of, self._handle_changed_quota)
            for namespace in namespaces
        ]

    @property
    def informers(self) -> tuple[Informer[ForeignPod | None], *tuple[Informer[Quota], ...]]:
        """Return all of them, to be run."""
        return self._pods, *self.quotas

    def _view_of_other(self, raw: Json) -> ForeignPod | None:
        """Return what is kept of a pod: None, if it belongs to a served job."""
        metadata = raw["metadata"]
        is_of_job = names.LABEL_JOB_UID in (metadata.get("labels") or {})
        return None if is_of_job and metadata.get("namespace") in self._namespaces else view_of_foreign_pod(raw)

    async def wait_until_synced(self) -> None:
        """Wait until the pods are known, for a limited time."""
        if not await wait_for_lists(self._clock, [self._pods.synced]):
            log.warning("the pods of other tenants cannot be listed: nodes that they occupy count as free")

    def _handle_changed_pod(self, change: Change[ForeignPod | None]) -> None:
        gone = change.type is ChangeType.DELETED
        self._core.handle_changed_foreign_pod(None if gone else change.value, change.previous)

    def _handle_changed_quota(self, change: Change[Quota]) -> None:
        quota, gone = change.value, change.type is ChangeType.DELETED
        self._core.handle_changed_quota(quota.namespace, quota.name, None if gone else quota)
