"""Cohorts of the stand-in for Kueue: who borrows, and who has to give back what was lent."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.kueue.world import holds
from tests.rigs.kueue_cluster import CHIPS, Cluster, Object, reason_of


def cohort(own: dict[str, Any] | None = None, lender: dict[str, Any] | None = None, **preemption: str) -> Cluster:
    """Return a cluster of two queues of eight chips: q, and lent of another ClusterQueue in the same cohort."""
    cluster = Cluster()
    cluster.world.local_queues["t", "lent"] = {"metadata": {"name": "lent"}, "spec": {"clusterQueue": "lender"}}
    for name, more in (("cq", own), ("lender", lender)):
        quota = {"name": CHIPS, "nominalQuota": 8, **(more or {})}
        groups = [{"coveredResources": [CHIPS], "flavors": [{"name": "a2", "resources": [quota]}]}]
        rules = {"withinClusterQueue": "LowerPriority", **(preemption if name == "lender" else {})}
        spec = {"cohortName": "all", "resourceGroups": groups, "preemption": rules}
        cluster.world.cluster_queues[name] = {"metadata": {"name": name}, "spec": spec}
    return cluster


def lent(cluster: Cluster, name: str, **more: Any) -> Object:
    """Create a Workload in the lender's queue."""
    return cluster.add(name, spec={"queueName": "lent"}, **more)


def test_a_queue_borrows_what_others_leave() -> None:
    cluster = cohort()
    assert holds(cluster.add("large", count=7), "Admitted")
    assert "maximum capacity (16)" in reason_of(cluster.add("larger", count=9), "QuotaReserved")[2]


@pytest.mark.parametrize(
    ("own", "lender", "most"),
    [({"borrowingLimit": 2}, {}, 10), ({}, {"lendingLimit": 4}, 12), ({}, {"lendingLimit": 0}, 8)],
)
def test_limits_bound_what_is_borrowed(own: dict[str, int], lender: dict[str, int], most: int) -> None:
    cluster = cohort(own, lender)
    assert f"maximum capacity ({most})" in reason_of(cluster.add("large", count=8), "QuotaReserved")[2]


def test_a_lender_takes_back_the_whole_workload() -> None:
    """Six of eight borrowed chips would do for it: the borrower loses all sixteen."""
    cluster = cohort(reclaimWithinCohort="Any")
    borrower = cluster.add("borrower", count=7, priority=100)
    owner = lent(cluster, "owner", count=4)
    assert reason_of(borrower, "Evicted")[1] == "Preempted"
    assert reason_of(borrower, "Preempted")[1] == "InCohortReclamation"
    assert "due to reclamation within the cohort" in reason_of(borrower, "Preempted")[2]
    assert "Pending the preemption of 1 workload(s)" in reason_of(owner, "QuotaReserved")[2]
    cluster.give_back(borrower)
    assert holds(owner, "Admitted")
    assert not holds(borrower, "QuotaReserved"), "14 of 8 are left"


def test_who_has_not_borrowed_keeps_what_it_has() -> None:
    cluster = cohort(reclaimWithinCohort="Any")
    own = cluster.add("own", count=4)
    assert holds(lent(cluster, "first", count=4), "Admitted")
    lent(cluster, "second", count=4)
    assert not holds(own, "Evicted")


def test_nothing_is_taken_back_to_be_borrowed() -> None:
    cluster = cohort(reclaimWithinCohort="Any")
    borrower = cluster.add("borrower", count=5)
    lent(cluster, "large", count=6)
    assert not holds(borrower, "Evicted"), "twelve are more than the lender's own eight"


@pytest.mark.parametrize(
    ("policy", "priority", "evicted"), [("Never", 0, False), ("LowerPriority", 5, False), ("LowerPriority", -5, True)]
)
def test_the_lender_says_of_whom(policy: str, priority: int, evicted: bool) -> None:
    cluster = cohort(reclaimWithinCohort=policy)
    borrower = cluster.add("borrower", count=7, priority=priority)
    lent(cluster, "owner")
    assert holds(borrower, "Evicted") is evicted
