"""Keeps the PodDisruptionBudgets of one job at their desired values.

They serve whoever drains nodes and never delay a job: if the server refuses one, that is logged, counted and retried
later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from hajob import metrics
from hajob.api import constants as names
from hajob.api.job import HATrainingJob
from hajob.backoff import Retry
from hajob.capacity.drains import Budgets
from hajob.clock import Clock
from hajob.kube.client import ApiError, Kube
from hajob.pods.disruption_budget import disruption_budget
from hajob.pods.naming import budget_name

log = logging.getLogger(__name__)

RESOURCE: Final = "poddisruptionbudgets"
RETRY_SECONDS: Final = (1.0, 60.0)


class DisruptionBudgets:
    """The budgets of one job.

    Args:
        kube: the API.
        clock: of the machine.
        wake: called when something that failed may be tried again.
    """

    def __init__(self, kube: Kube, clock: Clock, wake: Callable[[], None]) -> None:
        self._kube = kube
        self._retry = Retry(clock, wake, *RETRY_SECONDS)
        self._written: dict[str, int] = {}

    @property
    def are_written(self) -> bool:
        """Whether this operator has written any, or found them as they should be."""
        return bool(self._written)

    def close(self) -> None:
        """Stop retrying."""
        self._retry.cancel()

    async def follow(self, job: HATrainingJob, wanted: Budgets) -> None:
        """Write the budgets that have changed."""
        by_role: Mapping[str, int] = {names.ROLE_RANK: wanted.ranks, names.ROLE_COORDINATOR: wanted.coordinator}
        changed = {role: least for role, least in by_role.items() if self._written.get(role) != least}
        if not changed or not self._retry.due:
            return
        for role, least in changed.items():
            try:
                await self._put(job, role, least)
            except ApiError as error:
                metrics.REFUSED.labels("disruption budget").inc()
                log.warning("%s: PodDisruptionBudget %s: %s", job.metadata.name, budget_name(job, role), error)
                self._retry.failed()
                return
            self._written[role] = least
        self._retry.succeeded()

    async def _put(self, job: HATrainingJob, role: str, least: int) -> None:
        """Create or update a budget: an earlier leader may have made it, anyone may have deleted it."""
        namespace, name = job.metadata.namespace, budget_name(job, role)
        found = await self._kube.find(RESOURCE, namespace, name)
        if found is None:
            await self._kube.create(RESOURCE, namespace, disruption_budget(job, role, least))
        elif found["spec"].get("minAvailable") != least:
            await self._kube.patch(RESOURCE, namespace, name, {"spec": {"minAvailable": least}})
