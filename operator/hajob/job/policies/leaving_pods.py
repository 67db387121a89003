"""Pods of a job's earlier starts, which must be gone before new pods are created: how long to wait for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hajob.job.memory import JobMemory
from hajob.job.places import JobPlaces
from hajob.job.pod_index import old_ranks
from hajob.job.ports import Ports
from hajob.job.seen_since import SeenSince

GONE_SECONDS: Final = 30.0
"""So long after its grace a pod of an earlier start is waited for: its node may be dead and nobody know it yet."""


class LeavingPods:
    """The leaving pods of one job; `wake` is called when one is overdue."""

    def __init__(self, memory: JobMemory, places: JobPlaces, ports: Ports, wake: Callable[[], None]) -> None:
        self._memory, self._places = memory, places
        self._default_grace_seconds = ports.pod_settings.rank_grace_seconds
        self._ages = SeenSince(ports.clock, wake)

    def overdue(self) -> set[str]:
        """Return the UIDs of those that should have gone long ago; new pods no longer wait for them."""
        old = old_ranks(self._memory.state.base, self._places.pods.pods)
        limit = self._grace_seconds + GONE_SECONDS
        return {uid for uid, age in self._ages.look((pod.uid for pod in old), limit).items() if age >= limit}

    @property
    def _grace_seconds(self) -> int:
        given = self._memory.job.spec.template["spec"].get("terminationGracePeriodSeconds")
        return given if isinstance(given, int) else self._default_grace_seconds
