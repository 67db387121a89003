"""What the operator reads of Kueue: the Workloads of jobs, flavors, priority classes. Only where it is switched on."""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from typing import Any

from hajob.api import constants as names
from hajob.app.core import OperatorCore
from hajob.capacity.queues import Queues
from hajob.clock import Clock
from hajob.kube.client import Kube
from hajob.kube.informer import Change, ChangeType, Informer, Selection, wait_for_lists
from hajob.sources.workload import (
    Flavor,
    QueuePriority,
    WorkloadView,
    flavor_view_of,
    priority_class_view_of,
    workload_view_of,
)

log = logging.getLogger(__name__)


class QueueWatch:
    """The caches of Kueue's objects.

    Args:
        kube: the API.
        clock: for backoff.
        namespaces: whose jobs are served; one without a name: all.
        core: is told of every change.
        queues: what is known, kept up to date here.

    Attributes:
        informers: to be run.
    """

    def __init__(
        self, kube: Kube, clock: Clock, namespaces: Collection[str], core: OperatorCore, queues: Queues
    ) -> None:
        self._clock, self._core, self._queues = clock, core, queues
        # From here on a job with the label waits for Kueue, even before the first list is read.
        queues.served = True
        flavors = Informer(kube, clock, Selection("resourceflavors"), flavor_view_of, self._handle_changed_flavor)
        classes = Informer(
            kube, clock, Selection("workloadpriorityclasses"), priority_class_view_of, self._handle_changed_class
        )
        self.informers: list[Informer[Any]] = [flavors, classes]
        for namespace in namespaces:
            selection = Selection("workloads", namespace, names.LABEL_JOB_UID)
            workloads = Informer(kube, clock, selection, workload_view_of, self._handle_changed_workload)
            workloads.on_list = partial(self._note_list, namespace)
            self.informers.append(workloads)

    async def wait_until_listed(self) -> None:
        """Wait for a limited time until everything was read or refused: before, no queued job is started or stopped."""
        if not await wait_for_lists(self._clock, [one.answered for one in self.informers]):
            log.warning("Kueue's objects cannot be listed yet: queued jobs are neither started nor stopped")

    def _note_list(self, namespace: str, _version: str) -> None:
        if namespace not in self._queues.listed:
            self._queues.listed.add(namespace)
            self._core.handle_changed_kueue()

    def _handle_changed_workload(self, change: Change[WorkloadView]) -> None:
        self._core.handle_changed_workload(change.value, deleted=change.type is ChangeType.DELETED)

    def _handle_changed_flavor(self, change: Change[Flavor]) -> None:
        _keep_object_current(self._queues.flavors, change)
        self._core.handle_changed_kueue()

    def _handle_changed_class(self, change: Change[QueuePriority]) -> None:
        _keep_object_current(self._queues.classes, change)
        self._core.handle_changed_kueue()


def _keep_object_current(known: dict[str, Any], change: Change[Any]) -> None:
    """Store a named object as it is now, or forget it."""
    if change.type is ChangeType.DELETED:
        known.pop(change.value.name, None)
    else:
        known[change.value.name] = change.value
