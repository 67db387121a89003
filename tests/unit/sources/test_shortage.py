"""What pods wait for, out of the scheduler's own words (kube-scheduler 1.29 to 1.36)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.facts import Origin
from hajob.sources.creation import parse_refused_creation
from hajob.sources.pod import fact_of_lost_pod, facts_of_pod, pod_view_of
from hajob.sources.shortage import shortage_of_pods, summarize_reasons, volume_wait_of_pods

SAYS = {
    "0/5 nodes are available: 5 Insufficient huawei.com/Ascend910. preemption: 0/5 nodes are available: 5 No "
    "preemption victims found for incoming pod.": "of 5 nodes 5 lack huawei.com/Ascend910",
    "0/6 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }, 2 node(s) didn't "
    "match Pod's node affinity/selector, 3 Insufficient huawei.com/Ascend910. preemption: 0/6 nodes are available: 6 "
    "Preemption is not helpful for scheduling.": "of 6 nodes 1 had untolerated taint "
    "{node.kubernetes.io/unreachable: }, "
    "2 didn't match Pod's node affinity/selector, 3 lack huawei.com/Ascend910",
    "0/1 nodes are available: 1 node(s) were unschedulable.": "of 1 node 1 was unschedulable",
    "no nodes available to schedule pods": "no nodes available to schedule pods",
    "0/2 nodes are available: 2 Too many pods.": "of 2 nodes 2 Too many pods",
}


@pytest.mark.parametrize("message", SAYS)
def test_the_schedulers_words_in_short(message: str) -> None:
    assert summarize_reasons(message) == SAYS[message]


@pytest.mark.parametrize(
    ("reason", "message", "waits"),
    [
        ("Unschedulable", "1/4 tasks in gang unschedulable: pod group is not ready, 1 Pending, 4 minAvailable", False),
        (
            "Unschedulable",
            "2/4 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 Running, 4 minAvailable; 2 X",
            True,
        ),
        ("Schedulable", "Pod team-a/l8-0-0 can possibly be assigned to npu-5", True),
    ],
)
def test_volcanos_words_about_a_pod_without_a_node(reason: str, message: str, waits: bool) -> None:
    """While pods of the gang are still being made, it says the same of them as of a gang that finds no nodes."""
    told = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    view = pod_view_of({"metadata": {"name": "p"}, "status": {"conditions": [told]}})
    assert view.unschedulable == (message if waits else "")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            '0/14 nodes are available: persistentvolumeclaim "no-claim" not found. not found',
            'pod p waits for its volume: persistentvolumeclaim "no-claim" not found',
        ),
        (
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
            "pod p waits for its volume: unbound immediate PersistentVolumeClaims",
        ),
        ("0/5 nodes are available: 5 Insufficient huawei.com/Ascend910.", ""),
        (
            "0/5 nodes are available: 2 Insufficient a.b/c, 3 node(s) didn't find available persistent volumes.",
            "",
        ),
    ],
)
def test_a_missing_volume_is_no_missing_node(message: str, said: str) -> None:
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    view = pod_view_of({"metadata": {"name": "p"}, "status": {"conditions": [told]}})
    assert volume_wait_of_pods([view]) == said
    assert volume_wait_of_pods([replace(view, node_name="node-1")]) == ""


def test_nodes_that_a_pod_is_kept_off_are_named() -> None:
    words = "0/2 nodes are available: 1 Insufficient a.b/c, 1 node(s) didn't match Pod's node affinity/selector."
    waits = {"conditions": [{"type": "PodScheduled", "reason": "Unschedulable", "message": words}]}
    not_in = [{"key": "metadata.name", "operator": "NotIn", "values": ["node-3", "node-1"]}]
    terms = {"nodeSelectorTerms": [{"matchFields": not_in}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    kept_off = pod_view_of({"metadata": {"name": "p"}, "spec": {"affinity": affinity}, "status": waits})
    free = pod_view_of({"metadata": {"name": "p"}, "status": waits})
    assert "affinity/selector; avoids node-1, node-3 (p: 0/2" in shortage_of_pods([kept_off], None)
    assert "kept off" not in shortage_of_pods([free], None)


def test_an_evicted_pod_is_no_failure_of_its_program() -> None:
    ended = {"name": "trainer", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    status = {"phase": "Failed", "reason": "Evicted", "message": "disk pressure", "containerStatuses": [ended]}
    labels = {"training.hajob.io/role": "rank"}
    raw = {"metadata": {"name": "p", "uid": "u", "labels": labels}, "status": status}
    pod = pod_view_of(raw)
    assert (pod.trouble_code, pod.failed_by_itself) == ("Evicted", False)
    for fact in facts_of_pod(pod, 1):
        assert (fact.origin, fact.code, fact.message) == (Origin.INFRASTRUCTURE, "Evicted", "disk pressure")


def test_a_full_quota_is_a_shortage_and_a_refusal_is_none() -> None:
    words = 'pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    assert shortage_of_pods([], parse_refused_creation(403, "Forbidden", words)) == words
    assert shortage_of_pods([], parse_refused_creation(403, "Forbidden", "violates PodSecurity")) == ""


def test_a_drained_pod_says_why_it_goes() -> None:
    taken = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    pod = pod_view_of(
        {"metadata": {"name": "p", "deletionTimestamp": "2026-11-22T12:00:00Z"}, "status": {"conditions": [taken]}}
    )
    assert fact_of_lost_pod(pod, 1).code == "EvictionByEvictionAPI"
    assert fact_of_lost_pod(pod_view_of({"metadata": {"name": "p"}}), 1).code == "PodDeleted"
