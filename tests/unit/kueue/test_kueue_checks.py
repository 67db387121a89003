"""Admission checks, stops, back-off and topologies of the stand-in for Kueue."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.kueue.world import holds, timestamp
from tests.rigs.kueue_cluster import CHIPS, Cluster, Object, reason_of


def checked(*, active: bool = True) -> Cluster:
    """Return a cluster whose queue has an admission check."""
    cluster = Cluster()
    cluster.world.cluster_queues["cq"]["spec"]["admissionChecksStrategy"] = {"admissionChecks": [{"name": "budget"}]}
    status = {"conditions": [{"type": "Active", "status": "True" if active else "False"}]}
    cluster.world.checks["budget"] = {"status": status}
    return cluster


def answer(cluster: Cluster, raw: Object, state: str, **more: Any) -> None:
    """Answer the check as its controller does."""
    told = {"name": "budget", "state": state, "message": "", "lastTransitionTime": timestamp(cluster.now), **more}
    raw["status"]["admissionChecks"] = [told]
    cluster.settle()


def test_quota_is_reserved_until_the_check_is_ready() -> None:
    cluster = checked()
    raw = cluster.add("w")
    assert holds(raw, "QuotaReserved")
    assert raw["status"]["admissionChecks"][0]["state"] == "Pending"
    assert not holds(raw, "Admitted")
    assert not holds(cluster.add("second"), "QuotaReserved"), "what is reserved is gone"
    answer(cluster, raw, "Ready")
    assert holds(raw, "Admitted")


def test_a_check_that_is_pending_again_evicts_nobody() -> None:
    cluster = checked()
    raw = cluster.add("w")
    answer(cluster, raw, "Ready")
    answer(cluster, raw, "Pending")
    assert holds(raw, "Admitted")
    assert not holds(raw, "Evicted")


@pytest.mark.parametrize("before", ["Pending", "Ready"])
def test_a_check_is_tried_again_after_an_eviction(before: str) -> None:
    cluster = checked()
    raw = cluster.add("w")
    answer(cluster, raw, before)
    answer(cluster, raw, "Retry", message="no nodes yet", podSetUpdates=[{"name": "rank"}])
    told = 'Evicted due to AdmissionCheck in Retry state: "budget" (no nodes yet)'
    assert reason_of(raw, "Evicted") == ("True", "AdmissionCheck", told)
    (check,) = raw["status"]["admissionChecks"]
    assert check["message"] == "Reset to Pending after eviction. Previously: Retry"
    assert "podSetUpdates" not in check, "what it added to pods is gone while the owner still runs"
    cluster.give_back(raw, Requeued=("True", "AdmissionCheck"))
    answer(cluster, raw, "Ready")
    assert holds(raw, "Admitted")


def test_a_retry_with_a_time_evicts_only_then() -> None:
    cluster = checked()
    raw = cluster.add("w")
    answer(cluster, raw, "Ready")
    answer(cluster, raw, "Retry", requeueAfterSeconds=30)
    assert not holds(raw, "Evicted")
    cluster.wait(31)
    cluster.settle()
    assert holds(raw, "Evicted")


@pytest.mark.parametrize("before", ["Pending", "Ready"])
def test_a_rejected_check_deactivates(before: str) -> None:
    cluster = checked()
    raw = cluster.add("w")
    answer(cluster, raw, before)
    answer(cluster, raw, "Rejected", message="no budget")
    assert raw["spec"]["active"] is False
    assert reason_of(raw, "Evicted")[1] == "DeactivatedDueToAdmissionCheck"
    assert "no budget" in reason_of(raw, "Evicted")[2]
    assert holds(raw, "QuotaReserved")
    cluster.give_back(raw, Requeued=("True", "DeactivatedDueToAdmissionCheck"))
    assert not holds(raw, "QuotaReserved")
    raw["spec"]["active"] = True
    cluster.settle()
    assert holds(raw, "QuotaReserved")


def test_a_check_without_its_controller_closes_the_queue() -> None:
    assert reason_of(checked(active=False).add("w"), "QuotaReserved")[2] == "ClusterQueue cq is inactive"


def test_a_stopped_queue_takes_what_is_only_reserved() -> None:
    """Without a word of eviction: there is nothing that the owner would have to give back."""
    cluster = checked()
    raw = cluster.add("w")
    cluster.world.cluster_queues["cq"]["spec"]["stopPolicy"] = "Hold"
    cluster.settle()
    assert reason_of(raw, "QuotaReserved")[0] == "False"
    assert not holds(raw, "Evicted")
    assert "admission" not in raw["status"]


@pytest.mark.parametrize(("policy", "evicted"), [("Hold", False), ("HoldAndDrain", True)])
def test_a_stopped_local_queue_is_named(policy: str, evicted: bool) -> None:
    cluster = Cluster()
    raw = cluster.add("w", count=1)
    cluster.world.local_queues["t", "q"]["spec"]["stopPolicy"] = policy
    cluster.settle()
    assert holds(raw, "Evicted") is evicted
    assert reason_of(raw, "Evicted")[1] == ("LocalQueueStopped" if evicted else "")
    assert reason_of(cluster.add("later", count=1), "QuotaReserved")[2] == "LocalQueue q is inactive"


def test_what_was_late_is_not_queued_for_a_while() -> None:
    cluster = Cluster(pods_ready_seconds=300, backoff_seconds=60, backoff_limit=1)
    raw = cluster.add("w")
    cluster.wait(301)
    cluster.settle()
    cluster.give_back(raw, Requeued=("True", "PodsReadyTimeout"), PodsReady=("False", "WaitForStart"))
    assert not holds(raw, "QuotaReserved")
    cluster.wait(61)
    cluster.settle()
    assert holds(raw, "Admitted")
    cluster.wait(301)
    cluster.settle()
    assert reason_of(raw, "Evicted")[1] == "DeactivatedDueToRequeuingLimitExceeded"
    assert raw["spec"]["active"] is False


def test_nobody_is_admitted_beside_pods_that_are_not_ready() -> None:
    cluster = Cluster(pods_ready_seconds=300, blocks_admission=True)
    first, second = cluster.add("first", count=1), cluster.add("second", count=1)
    assert "waiting for all admitted workloads" in reason_of(second, "QuotaReserved")[2]
    cluster.put(first, "PodsReady", "True")
    cluster.settle()
    assert holds(second, "Admitted")


@pytest.mark.parametrize(
    ("toleration", "of_flavor", "fits"),
    [
        ({}, {}, False),
        ({"key": "npu", "operator": "Exists"}, {}, True),
        ({"key": "npu", "value": "x", "effect": "NoSchedule"}, {}, True),
        ({"key": "npu", "value": "y"}, {}, False),
        ({"key": "npu", "operator": "Exists", "effect": "NoExecute"}, {}, False),
        ({}, {"key": "npu", "operator": "Exists"}, True),
    ],
)
def test_a_tainted_flavor_needs_a_toleration(toleration: Object, of_flavor: Object, fits: bool) -> None:
    cluster = Cluster()
    taint = {"key": "npu", "value": "x", "effect": "NoSchedule"}
    cluster.world.flavors["a2"]["spec"] |= {"nodeTaints": [taint], "tolerations": [of_flavor] if of_flavor else []}
    raw = cluster.add("w", pod={"tolerations": [toleration] if toleration else []})
    assert holds(raw, "Admitted") is fits
    assert fits or "untolerated taint {npu x NoSchedule <nil>} in flavor a2" in reason_of(raw, "QuotaReserved")[2]


def of_nodes(count: int) -> Cluster:
    """Return a cluster with a topology-aware flavor and so many nodes of two chips."""
    cluster = Cluster()
    cluster.world.topologies["rack"] = {}
    cluster.world.flavors["a2"]["spec"]["topologyName"] = "rack"
    for number in range(count):
        cluster.world.nodes[f"n{number}"] = {
            "metadata": {"name": f"n{number}", "labels": {"pool": "a2"}},
            "spec": {},
            "status": {"allocatable": {CHIPS: "2"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }
    return cluster


def nodes_of(raw: Object) -> list[str]:
    """Return the assigned nodes."""
    (given,) = raw["status"]["admission"]["podSetAssignments"]
    roots: list[str] = given["topologyAssignment"]["slices"][0]["valuesPerLevel"][0]["individual"]["roots"]
    return roots


def test_a_topology_counts_nodes_of_its_own() -> None:
    told = reason_of(of_nodes(3).add("w"), "QuotaReserved")[2]
    assert 'topology "rack" allows to fit only 3 out of 4 pod(s)' in told
    assert nodes_of(of_nodes(5).add("w")) == ["n0", "n1", "n2", "n3"]


def test_a_pod_set_without_a_flavor_is_refused_beside_a_topology() -> None:
    """A coordinator asks for no chips, and the queue covers nothing else."""
    ranks = {"containers": [{"resources": {"limits": {CHIPS: 2}}}]}
    bare: Object = {"containers": [{"resources": {}}]}
    pod_sets = [
        {"name": name, "count": count, "template": {"spec": spec}}
        for name, count, spec in (("rank", 4, ranks), ("coordinator", 1, bare))
    ]
    told = reason_of(of_nodes(5).add("w", spec={"podSets": pod_sets}), "QuotaReserved")[2]
    assert told == "failed to assign flavors to pod set coordinator: no TAS flavor assigned"
    assert holds(Cluster().add("w", spec={"podSets": pod_sets}), "Admitted")


@pytest.mark.parametrize("trouble", [{"spec": {"unschedulable": True}}, {"status": {"conditions": []}}])
def test_a_lost_node_of_a_topology_is_replaced(trouble: Object) -> None:
    cluster = of_nodes(5)
    raw = cluster.add("w")
    cluster.world.nodes["n1"] |= trouble
    cluster.settle()
    assert nodes_of(raw) == ["n0", "n2", "n3", "n4"]
    assert not holds(raw, "Evicted")


def test_without_another_node_a_topology_evicts() -> None:
    cluster = of_nodes(4)
    raw = cluster.add("w")
    del cluster.world.nodes["n1"]
    cluster.settle()
    assert reason_of(raw, "Evicted") == ("True", "NodeFailures", "no replacement for unhealthy node(s): n1")
