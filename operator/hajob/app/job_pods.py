"""The pods of all served jobs: one cache of the whole cluster, or one of each namespace in the list.

A namespace may refuse access, because its Role is not there yet, or was deleted. It is read again periodically, and
does not delay the others. If all refuse, nothing is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from hajob.api import constants as names
from hajob.clock import Clock
from hajob.kube.client import Kube
from hajob.kube.informer import Change, Informer, Selection
from hajob.sources.pod import PodView, pod_view_of


class JobPods:
    """The caches of these pods.

    Args:
        kube: the API.
        clock: for backoff.
        namespaces: to be read; one without a name: all.
        changed: called with every change.
        listed: called with resourceVersion and namespace of every list after `changed` was called for all of it.

    Attributes:
        informers: to be run.
    """

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        namespaces: Collection[str],
        changed: Callable[[Change[PodView]], None],
        listed: Callable[[str, str], None],
    ) -> None:
        self._listed = listed
        self._one_is_listed = asyncio.Event()
        self.informers = [self._build_informer(kube, clock, namespace, changed) for namespace in namespaces]

    def _build_informer(
        self, kube: Kube, clock: Clock, namespace: str, changed: Callable[[Change[PodView]], None]
    ) -> Informer[PodView]:
        def is_listed(version: str) -> None:
            self._one_is_listed.set()
            self._listed(version, namespace)

        selection = Selection("pods", namespace, names.LABEL_JOB_UID, large=True)
        informer = Informer(kube, clock, selection, pod_view_of, changed)
        informer.on_list = is_listed
        return informer

    async def wait_until_synced(self) -> None:
        """Wait until every namespace has been read or refused, and one at least has been read."""
        await asyncio.gather(*(informer.answered.wait() for informer in self.informers))
        await self._one_is_listed.wait()

    @property
    def is_synced(self) -> bool:
        """Whether `wait_until_synced` would return at once."""
        return self._one_is_listed.is_set() and all(informer.answered.is_set() for informer in self.informers)

    def seconds_since_answer(self) -> float:
        """Return seconds since the server last answered the cache that has waited longest."""
        return max(informer.seconds_since_answer() for informer in self.informers)

    def seconds_since_activity(self) -> float:
        """Return seconds since the cache that has been idle longest was active."""
        return max(informer.seconds_since_activity() for informer in self.informers)
