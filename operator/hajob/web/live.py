"""What one person may see of a cluster, kept current by watches with that person's rights.

Jobs and pods are watched from the beginning, nodes and what tells of their faults once somebody asks for them. A watch
that is refused leaves its part unknown; nothing is read with anybody else's rights.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Self

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.cli.objects import path_of_config_maps
from hajob.clock import Clock, timeout
from hajob.faults.rules import settings as fault_settings
from hajob.kube.client import ApiError, Kube
from hajob.kube.informer import Change, Informer, Selection
from hajob.sources import lease, registry
from hajob.web.cached import CachedObjects, slim_object, slim_pod
from hajob.web.steps import StepHistory

log = logging.getLogger(__name__)

_FIRST_ANSWER_SECONDS: Final = 10.0
"""What has not been listed by then is shown as unknown until it is there."""
_OLD_SECONDS: Final = 75.0
"""A server that is well sends a bookmark at least every minute."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which part of a cluster is shown.

    Attributes:
        namespace: of the jobs; empty: all.
        fallback: the namespace that is taken where all may not be read; empty: none.
        resource: name of the chips.
        operator_namespace: of the operator.
        fault_namespaces: of MindCluster's ConfigMaps.
    """

    namespace: str = ""
    fallback: str = ""
    resource: str = names.DEFAULT_RESOURCE_NAME
    operator_namespace: str = "hajob-system"
    fault_namespaces: tuple[str, ...] = tuple(names.FAULT_NAMESPACES.split(","))

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Return those that tell of faults, the operator's first."""
        return (self.operator_namespace, *self.fault_namespaces)


class LiveCluster:
    """A cluster as one person sees it; use it as an async context manager.

    Attributes:
        objects: what is known, for the readings of the commands.
        steps: how the steps of the jobs went since this began.
        scope: what is shown; its namespace is known once this has begun.
        version: grows with every change.
        streams: pages that follow it now.
        is_over: whoever looked has left; no stream goes on.
    """

    def __init__(self, kube: Kube, clock: Clock, scope: Scope) -> None:
        self.objects, self.steps, self.scope, self.version = CachedObjects(), StepHistory(), scope, 0
        self.streams, self.is_over = 0, False
        self._kube, self._clock = kube, clock
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._nodes_wanted = False

    async def __aenter__(self) -> Self:
        if not self.scope.namespace and self.scope.fallback and not await self._may_list_everywhere():
            self.scope = replace(self.scope, namespace=self.scope.fallback)
        self._watch_selection(Selection(names.PLURAL, self.scope.namespace), slim_object, self._note_job)
        # Whose the chips of a node are, only all pods tell; where those may not be read, those of the jobs will do.
        everywhere = not self.scope.namespace
        self._watch_selection(Selection("pods", self.scope.namespace, large=everywhere), slim_pod, self._note_change)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._wake_everybody()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _may_list_everywhere(self) -> bool:
        try:
            async for _ in self._kube.list_pages(names.PLURAL):
                break
        except ApiError as error:
            return error.status != 403
        return True

    async def watch_nodes(self) -> None:
        """Watch nodes and what tells of their faults, from the first call on; return once all have answered."""
        if not self._nodes_wanted:
            self._nodes_wanted = True
            await self._read_settings()
            for selection in _selections_of_nodes(self.scope):
                self._watch_selection(selection, slim_object, self._note_change)
            if self.scope.namespace:
                self._watch_selection(Selection("pods", large=True), slim_pod, self._note_change)
        await self.wait_for_answers()

    async def wait_for_answers(self) -> None:
        """Return once every watch has listed what it selects or was refused, or after some seconds."""
        caches = list(self.objects.caches.values())
        with suppress(TimeoutError):
            async with timeout(self._clock, _FIRST_ANSWER_SECONDS):
                for cache in caches:
                    await cache.answered.wait()

    async def wait_for_change(self, seen: int, seconds: float) -> None:
        """Return once something has changed since the version that was seen, or after some seconds."""
        with suppress(TimeoutError):
            async with timeout(self._clock, seconds):
                while self.version == seen:
                    await self._changed.wait()

    def seconds_without_answer(self) -> int:
        """Return for how long the server has not answered; 0 while it does as often as it should."""
        silent = [cache.seconds_since_answer() for cache in self.objects.caches.values() if not cache.refused]
        worst = max(silent, default=0.0)
        return int(worst) if worst > _OLD_SECONDS else 0

    def resources_not_heard(self) -> Iterator[str]:
        """Yield what has not been listed yet, for whatever reason but a missing right."""
        for selection, cache in self.objects.caches.items():
            if not cache.synced.is_set() and not cache.refused:
                yield selection.resource

    async def _read_settings(self) -> None:
        """Read the admin's settings of faults; without them those by default count, as for the operator."""
        namespace = self.scope.operator_namespace
        path = f"{path_of_config_maps(namespace)}/{fault_settings.NAME}"
        try:
            self.objects.still[path] = await self._kube.find_object("configmaps", namespace, fault_settings.NAME)
        except ApiError as error:
            self.objects.unread[path] = error

    def _watch_selection(
        self, selection: Selection, project: Callable[[Json], Json], note: Callable[[Change[Json]], None]
    ) -> None:
        # Each watch has an end of its own: one that is refused does not keep the others from being shown.
        cache = Informer(self._kube, self._clock, selection, project, note)
        # An empty list changes nothing, and yet whoever waits for it must hear of it.
        cache.on_list = lambda _: self._wake_everybody()
        self.objects.caches[selection] = cache
        task = asyncio.create_task(cache.list_and_watch(), name=f"watch of {selection.resource}")
        self._tasks.add(task)

    def _note_job(self, change: Change[Json]) -> None:
        self.steps.note_job(change.value, self._clock.now_milliseconds())
        self._wake_everybody()

    def _note_change(self, _: Change[Json]) -> None:
        self._wake_everybody()

    def _wake_everybody(self) -> None:
        self.version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _selections_of_nodes(scope: Scope) -> Iterator[Selection]:
    """Yield everything that tells of nodes and their faults, as `hajob.cli.doctor.Gatherer` asks for it."""
    yield Selection("nodes")
    yield Selection(names.QUARANTINES)
    yield Selection("leases", lease.NAMESPACE)
    selectors = dict.fromkeys(row.selector for row in registry.SOURCES if row.kind == "ConfigMap")
    for namespace in scope.fault_namespaces:
        for selector in selectors:
            yield Selection("configmaps", namespace, selector)
