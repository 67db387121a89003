"""Watches Volcano's PodGroups and Queues, where the installation says that there are any.

All PodGroups of the cluster: those of others tell what waits before a job in its queue.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from hajob.api import constants as names
from hajob.app.core import OperatorCore
from hajob.clock import Clock, timeout
from hajob.kube.client import Kube
from hajob.kube.informer import Change, ChangeType, Informer, Selection
from hajob.sources.pod_group import PodGroupView, VolcanoQueue, pod_group_view_of, queue_view_of

log = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 10.0
"""So long a start of the operator waits for them to be listed: their CRDs may not be installed yet."""


class VolcanoWatch:
    """Caches of PodGroups and Queues.

    Args:
        kube: the API.
        clock: for backoff.
        core: is told of every change.
        enabled: whether there is anything to watch.
    """

    def __init__(self, kube: Kube, clock: Clock, core: OperatorCore, *, enabled: bool) -> None:
        self._clock, self._core, self._enabled = clock, core, enabled
        self._groups = Informer(kube, clock, Selection(names.POD_GROUPS), pod_group_view_of, self._handle_changed_group)
        self._queues = Informer(kube, clock, Selection(names.VOLCANO_QUEUES), queue_view_of, self._handle_changed_queue)
        self._queues.on_list = lambda _: core.note_listed_queues()

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """Return all of them, to be run."""
        return (self._groups, self._queues) if self._enabled else ()

    async def wait_until_synced(self) -> None:
        """Wait until they are known, for a limited time."""
        if not self._enabled:
            return
        try:
            async with timeout(self._clock, PATIENCE_SECONDS):
                await self._groups.synced.wait()
                await self._queues.synced.wait()
        except TimeoutError:
            log.warning("PodGroups or Queues of Volcano cannot be listed: is it installed?")

    def _handle_changed_group(self, change: Change[PodGroupView]) -> None:
        self._core.handle_changed_pod_group(change.value, deleted=change.type is ChangeType.DELETED)

    def _handle_changed_queue(self, change: Change[VolcanoQueue]) -> None:
        self._core.handle_changed_queue(change.value, deleted=change.type is ChangeType.DELETED)
