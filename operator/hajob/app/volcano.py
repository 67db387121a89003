"""Watches Volcano's PodGroups and Queues. Only where it is switched on.

All PodGroups of the cluster: those of others tell what waits before a job in its queue.
"""

from __future__ import annotations

import logging
from typing import Any

from hajob.api import constants as names
from hajob.app.core import OperatorCore
from hajob.clock import Clock
from hajob.kube.client import Kube
from hajob.kube.informer import Change, ChangeType, Informer, Selection, wait_for_lists
from hajob.sources.pod_group import PodGroupView, VolcanoQueue, pod_group_view_of, queue_view_of

log = logging.getLogger(__name__)


class VolcanoWatch:
    """Caches of PodGroups and Queues.

    Args:
        kube: the API.
        clock: for backoff.
        core: is told of every change.

    Attributes:
        informers: to be run.
    """

    def __init__(self, kube: Kube, clock: Clock, core: OperatorCore) -> None:
        self._clock, self._core = clock, core
        groups = Informer(kube, clock, Selection(names.POD_GROUPS), pod_group_view_of, self._handle_changed_group)
        queues = Informer(kube, clock, Selection(names.VOLCANO_QUEUES), queue_view_of, self._handle_changed_queue)
        queues.on_list = lambda _: core.note_listed_queues()
        self.informers: tuple[Informer[Any], ...] = (groups, queues)

    async def wait_until_listed(self) -> None:
        """Wait until they are known, for a limited time."""
        if not await wait_for_lists(self._clock, [one.synced for one in self.informers]):
            log.warning("PodGroups or Queues of Volcano cannot be listed: is it installed?")

    def _handle_changed_group(self, change: Change[PodGroupView]) -> None:
        self._core.handle_changed_pod_group(change.value, deleted=change.type is ChangeType.DELETED)

    def _handle_changed_queue(self, change: Change[VolcanoQueue]) -> None:
        self._core.handle_changed_queue(change.value, deleted=change.type is ChangeType.DELETED)
