"""What the webhooks of the stand-in for Kueue refuse, and which pods they take."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from e2e.kueue.webhook import GATE, QUEUE, verdict_on_pod, verdict_on_workload
from e2e.kueue.world import Configuration, World

Object = dict[str, Any]
RESERVED: Object = {
    "spec": {
        "queueName": "q",
        "podSets": [{"name": "rank", "count": 4, "template": {}}],
        "priorityClassRef": {"name": "c"},
    },
    "status": {
        "conditions": [{"type": "QuotaReserved", "status": "True"}],
        "admission": {"clusterQueue": "cq"},
        "reclaimablePods": [{"name": "rank", "count": 1}],
    },
}
OWNED: Object = {"ownerReferences": [{"kind": "HATrainingJob", "name": "job", "controller": True}]}


def changed(**changes: Any) -> Object:
    """Return a reserved Workload with other values, by their paths."""
    made = copy.deepcopy(RESERVED)
    for path, value in changes.items():
        part, _, name = path.partition("_")
        if value is None:
            del made[part][name]
        else:
            made[part][name] = value
    return made


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"spec_podSets": [{"name": "rank", "count": 5, "template": {}}]}, 403, "spec.podSets: Forbidden"),
        ({"spec_podSets": [{"name": "rank", "count": 4, "template": {"x": 1}}]}, 403, "spec.podSets: Forbidden"),
        ({"spec_podSets": [{"name": "rank", "count": 3, "template": {}}]}, 403, ""),
        ({"spec_queueName": "other"}, 422, "immutable while workload quota reserved"),
        ({"spec_priorityClassRef": None}, 422, "immutable while workload quota reserved"),
        ({"spec_priority": 7}, 403, ""),
        ({"status_admission": None}, 403, "must be set while the QuotaReserved condition is true"),
        ({"status_admission": {"clusterQueue": "x"}}, 403, "status.admission: Forbidden"),
        ({"status_reclaimablePods": [{"name": "rank", "count": 0}]}, 403, "cannot be less than 1"),
        ({"status_reclaimablePods": []}, 403, "cannot be removed"),
    ],
)
def test_what_is_reserved_is_hardly_changed(change: dict[str, Any], code: int, words: str) -> None:
    found = verdict_on_workload({"object": changed(**change), "oldObject": RESERVED})
    assert words in found.refusal
    assert bool(found.refusal) is bool(words)
    assert found.code == (code if words else 403)


def test_a_give_back_may_clear_everything() -> None:
    given_back = {**RESERVED, "status": {"conditions": [{"type": "QuotaReserved", "status": "False"}]}}
    assert not verdict_on_workload({"object": given_back, "oldObject": RESERVED}).refusal


@pytest.mark.parametrize(
    ("knows", "job_label", "pod_label", "default", "taken"),
    [
        (False, True, False, False, False),
        (False, True, True, False, True),
        (False, True, False, True, True),
        (True, True, False, True, False),
        (True, True, True, True, False),
        (True, False, False, True, True),
    ],
)
def test_which_pods_kueue_takes(knows: bool, job_label: bool, pod_label: bool, default: bool, taken: bool) -> None:
    world = World(local_queues={("t", "default"): {}} if default else {})
    pod = {"metadata": {**OWNED, "labels": {QUEUE: "q"} if pod_label else {}}, "spec": {}}
    jobs = {"job": {"metadata": {"labels": {QUEUE: "q"} if job_label else {}}}}
    request = {"namespace": "t", "object": pod}
    found = verdict_on_pod(request, world, Configuration(knows_jobs=knows), jobs)
    assert bool(found.patch) is taken
    assert not taken or found.patch[-1]["value"] == [{"name": GATE}]


def test_a_pod_without_its_job_is_refused() -> None:
    request = {"namespace": "t", "object": {"metadata": OWNED, "spec": {}}}
    found = verdict_on_pod(request, World(), Configuration(knows_jobs=True), {})
    assert (found.code, bool(found.refusal)) == (404, True)
    assert not verdict_on_pod(request, World(), Configuration(), {}).refusal


def test_nodes_of_a_topology_may_change() -> None:
    """The webhook cannot tell who asks, and lets the nodes of an assignment change."""
    old, new = changed(), changed()
    for made, node in ((old, "n0"), (new, "n1")):
        made["status"]["admission"]["podSetAssignments"] = [{"name": "rank", "topologyAssignment": {"slices": [node]}}]
    assert not verdict_on_workload({"object": new, "oldObject": old}).refusal
    new["status"]["admission"]["podSetAssignments"][0]["count"] = 7
    assert verdict_on_workload({"object": new, "oldObject": old}).refusal
