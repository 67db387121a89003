"""Whom the stand-in for Kueue asks to give back: in the queue by priority, in the cohort who has borrowed. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from e2e.kueue.quota import Assigner, Usage, usage_of_workload
from e2e.kueue.world import (
    JOB_UID,
    Object,
    StatusWrite,
    World,
    holds,
    priority_of_workload,
    queue_of_admission,
)


@dataclass(frozen=True)
class Preemption:
    """The search for victims of one Workload."""

    world: World
    assigner: Assigner
    usage: Usage
    workload: Object

    def find_victims(self) -> list[Object]:
        """Return those whose quota would do; none: it waits. What is lent is asked back first."""
        lent = self._choose_victims([*self._borrowers(), *self._lower_ones()], may_borrow=False)
        return lent or self._choose_victims(self._lower_ones(), may_borrow=True)

    def preempt_victim(self, victim: Object) -> StatusWrite:
        """Return the write that asks a victim to give back."""
        same = queue_of_admission(victim) == self._queue_name
        reason, why = (
            ("InClusterQueue", "prioritization in the ClusterQueue")
            if same
            else ("InCohortReclamation", "reclamation within the cohort")
        )
        metadata = self.workload["metadata"]
        job = (metadata.get("labels") or {}).get(JOB_UID, "UNKNOWN")
        told = f"Preempted to accommodate a workload (UID: {metadata['uid']}, JobUID: {job}) due to {why}"
        return StatusWrite(victim, (("Evicted", "True", "Preempted", told), ("Preempted", "True", reason, told)))

    @property
    def _queue_name(self) -> str:
        return str(self.assigner.queue["metadata"]["name"])

    def _policy(self, name: str) -> str:
        return str((self.assigner.queue["spec"].get("preemption") or {}).get(name, "Never"))

    def _lower_ones(self) -> list[Object]:
        if self._policy("withinClusterQueue") == "Never":
            return []
        own = priority_of_workload(self.workload)
        return self._ordered(
            one
            for one in self.world.workloads.values()
            if queue_of_admission(one) == self._queue_name and priority_of_workload(one) < own
        )

    def _borrowers(self) -> list[Object]:
        """Those of other queues of the cohort: whole Workloads, not the part that was borrowed."""
        policy, cohort = self._policy("reclaimWithinCohort"), self.assigner.queue["spec"].get("cohortName")
        if policy == "Never" or not cohort:
            return []
        own, others = priority_of_workload(self.workload), self.world.cluster_queues
        return self._ordered(
            one
            for one in self.world.workloads.values()
            if (name := queue_of_admission(one)) != self._queue_name
            and name in others
            and others[name]["spec"].get("cohortName") == cohort
            and (policy == "Any" or priority_of_workload(one) < own)
        )

    @staticmethod
    def _ordered(found: Iterable[Object]) -> list[Object]:
        """What is asked back already first, then the lowest and newest."""
        newest = sorted(found, key=lambda one: str(one["metadata"]["creationTimestamp"]), reverse=True)
        return sorted(newest, key=lambda one: (not holds(one, "Evicted"), priority_of_workload(one)))

    def _choose_victims(self, candidates: list[Object], *, may_borrow: bool) -> list[Object]:
        left, chosen = self.usage.copied(), list[Object]()
        for victim in candidates:
            name = queue_of_admission(victim)
            if name != self._queue_name and not self._is_borrowing(left, victim, name):
                continue
            chosen.append(victim)
            left.add_workload(victim, -1)
            found = self.assigner.assign_workload(self.workload, left)
            if found.pod_sets is not None and (
                may_borrow or self.assigner.stays_within_own(self.workload, found.pod_sets, left)
            ):
                return chosen
        return []

    def _is_borrowing(self, usage: Usage, victim: Object, name: str) -> bool:
        return any(usage.borrowed_by_queue(self.world, name, *key) > 0 for key in usage_of_workload(victim))
