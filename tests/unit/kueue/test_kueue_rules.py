"""The stand-in for Kueue does what the real manager was seen to do (docs/internals/kueue-stand-in.md)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from e2e.kueue.requests import requests_of_pod
from e2e.kueue.world import find_condition, holds, timestamp
from tests.rigs.kueue_cluster import CHIPS, Cluster, Object, reason_of


def test_what_fits_is_admitted_and_what_does_not_is_told() -> None:
    cluster = Cluster()
    first, second = cluster.add("first"), cluster.add("second")
    assert holds(first, "Admitted")
    assert first["status"]["admission"]["podSetAssignments"][0]["flavors"] == {CHIPS: "a2"}
    assert find_condition(second, "Admitted") is None, "no condition at all"
    assert reason_of(second, "QuotaReserved")[2] == (
        f"couldn't assign flavors to pod set rank: insufficient unused quota for {CHIPS} in flavor a2, 8 more needed"
    )
    assert "> maximum capacity (8)" in reason_of(cluster.add("third", count=5), "QuotaReserved")[2]


def preempted(cluster: Cluster) -> tuple[Object, Object]:
    """Return a Workload that is asked to give back, and the one that wants its quota."""
    low = cluster.add("low")
    cluster.put(low, "PodsReady", "True")
    return low, cluster.add("high", priority=10)


def test_a_preemptor_waits_for_its_victim_without_limit() -> None:
    cluster = Cluster()
    low, high = preempted(cluster)
    assert reason_of(low, "Evicted")[1] == "Preempted"
    assert "JobUID: job-high" in reason_of(low, "Preempted")[2]
    assert holds(low, "QuotaReserved")
    assert holds(low, "Admitted")
    cluster.wait(3600)
    cluster.settle()
    assert "Pending the preemption of 1 workload(s)" in reason_of(high, "QuotaReserved")[2]
    cluster.give_back(low, PodsReady=("False", "WaitForStart"))
    assert holds(high, "Admitted")


def test_what_was_given_back_is_admitted_again() -> None:
    cluster = Cluster()
    low, high = preempted(cluster)
    cluster.give_back(low, PodsReady=("False", "WaitForStart"))
    cluster.put(high, "Finished", "True")
    cluster.settle()
    assert holds(low, "Admitted")
    assert reason_of(low, "Evicted")[0] == "False"
    assert reason_of(low, "Preempted")[2].startswith("Previously: ")


def test_the_eviction_stays_when_the_preemptor_goes() -> None:
    cluster = Cluster()
    low, _ = preempted(cluster)
    del cluster.world.workloads["t", "high"]
    cluster.settle()
    assert holds(low, "Evicted")


@pytest.mark.parametrize(
    ("without", "other"),
    [("Admitted", {}), ("", {"Requeued": ("False", "Preempted")}), ("", {"Requeued": ("False", "DeactivatedDueToX")})],
)
def test_three_give_backs_look_right_and_are_lost(without: str, other: dict[str, tuple[str, str]]) -> None:
    cluster = Cluster()
    low, high = preempted(cluster)
    cluster.give_back(low, without=without, **other)
    assert holds(high, "Admitted"), "the quota is free"
    cluster.put(high, "Finished", "True")
    cluster.settle()
    assert not holds(low, "QuotaReserved"), "it is never queued again"


def test_an_old_wait_for_recovery_evicts_at_once() -> None:
    cluster = Cluster(pods_ready_seconds=300, recovery_seconds=60)
    raw = cluster.add("w")
    old = timestamp(cluster.now - timedelta(seconds=120))
    cluster.put(raw, "PodsReady", "False", "WaitForRecovery", old)
    cluster.settle()
    assert reason_of(raw, "Evicted")[1] == "PodsReadyTimeout"


def test_pods_that_are_never_ready_are_evicted() -> None:
    cluster = Cluster(pods_ready_seconds=300)
    silent, told = cluster.add("silent", count=1), cluster.add("told", count=1)
    cluster.put(told, "PodsReady", "False", "Starting")
    cluster.wait(301)
    cluster.settle()
    assert reason_of(silent, "Evicted")[1] == "PodsReadyTimeout"
    assert not holds(told, "Evicted"), "a reason of one's own is never late"


def test_what_was_reclaimed_is_missing_after_an_eviction() -> None:
    cluster = Cluster()
    low, high = preempted(cluster)
    low["status"]["reclaimablePods"] = [{"name": "rank", "count": 1}]
    cluster.give_back(low, PodsReady=("False", "WaitForStart"))
    cluster.put(high, "Finished", "True")
    cluster.settle()
    assert low["status"]["admission"]["podSetAssignments"][0]["count"] == 3


def test_a_label_without_an_owner_is_an_end() -> None:
    raw = Cluster().add("w", ownerReferences=[])
    assert reason_of(raw, "Finished")[1] == "OwnerNotFound"


def test_what_is_deactivated_is_evicted_even_while_it_waits() -> None:
    cluster = Cluster()
    running, waiting = cluster.add("running"), cluster.add("waiting", spec={"active": False})
    assert reason_of(waiting, "Evicted")[1] == "Deactivated"
    running["spec"]["active"] = False
    cluster.settle()
    assert holds(running, "Evicted")
    assert holds(running, "QuotaReserved")


def test_a_drained_queue_evicts_and_takes_nothing_back() -> None:
    cluster = Cluster()
    raw, queue = cluster.add("w"), cluster.world.cluster_queues["cq"]["spec"]
    queue["stopPolicy"] = "HoldAndDrain"
    cluster.settle()
    assert reason_of(raw, "Evicted")[1] == "ClusterQueueStopped"
    queue["stopPolicy"] = "None"
    cluster.settle()
    assert holds(raw, "Evicted")
    cluster.give_back(raw, Requeued=("True", "ClusterQueueStopped"))
    assert not holds(raw, "Evicted")
    assert holds(raw, "Admitted")


def test_a_lowered_quota_evicts_nobody() -> None:
    cluster = Cluster()
    raw = cluster.add("w")
    cluster.world.cluster_queues["cq"]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = 0
    cluster.settle()
    assert not holds(raw, "Evicted")


def test_a_finished_workload_is_deleted_after_its_time() -> None:
    cluster = Cluster(retention_seconds=2)
    cluster.put(cluster.add("w"), "Finished", "True")
    cluster.wait(3)
    cluster.settle()
    assert not cluster.world.workloads


def test_fewer_pods_are_admitted_where_that_is_allowed() -> None:
    cluster = Cluster()
    cluster.add("first", count=1)
    raw = cluster.add("second", pod_set={"minCount": 2})
    assert raw["status"]["admission"]["podSetAssignments"][0]["count"] == 3


def test_a_resource_that_nobody_covers_refuses_the_job() -> None:
    asks = {"containers": [{"resources": {"requests": {CHIPS: 1, "cpu": "500m"}}}]}
    assert holds(Cluster().add("w", pod=asks), "Admitted"), "the configuration leaves it out"
    told = reason_of(Cluster(excluded_prefixes=()).add("w", pod=asks), "QuotaReserved")[2]
    assert told == "couldn't assign flavors to pod set rank: resource cpu unavailable in ClusterQueue"


def test_a_flavor_follows_the_selector_for_its_own_keys() -> None:
    cluster = Cluster()
    assert holds(cluster.add("other", count=1, pod={"nodeSelector": {"zone": "z"}}), "Admitted")
    raw = cluster.add("wrong", count=1, pod={"nodeSelector": {"pool": "a3"}})
    assert "flavor a2 doesn't match node affinity" in reason_of(raw, "QuotaReserved")[2]


@pytest.mark.parametrize(("queue", "told"), [("nowhere", "LocalQueue nowhere doesn't exist"), ("lost", "ClusterQueue")])
def test_a_queue_that_does_not_exist_is_named(queue: str, told: str) -> None:
    cluster = Cluster()
    cluster.world.local_queues["t", "lost"] = {"spec": {"clusterQueue": "gone"}}
    assert told in reason_of(cluster.add("w", spec={"queueName": queue}), "QuotaReserved")[2]


def test_sidecars_count_and_init_containers_as_their_maximum() -> None:
    asks = [
        {"resources": {"requests": {"cpu": "4"}}},
        {"resources": {"requests": {"cpu": "1"}}, "restartPolicy": "Always"},
    ]
    found = requests_of_pod({"initContainers": asks, "containers": [{"resources": {"limits": {"cpu": "500m"}}}]})
    assert found == {"cpu": 4000}
