"""In the node's network the real scheduler puts pods side by side whose ports differ, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from e2e.cluster.control_plane import ControlPlane
from hajob.api.job import HATrainingJob
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from tests.rigs.jobs_on_server import QUICKSTART

KEY = "hajob-test/host-ports"
SETTINGS = PodSettings("hajob/x:1")
Object = dict[str, Any]


@pytest.fixture
def node(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """A node that only pods of this test bear."""
    name, api = f"only-{namespace}", control_plane.api
    made = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": KEY, "value": namespace, "effect": "NoSchedule"}]},
    }
    api.create("/api/v1/nodes", made)
    resources = {"cpu": "64", "memory": "64Gi", "pods": "100", "huawei.com/Ascend910": "8"}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
    status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
    api.merge(f"/api/v1/nodes/{name}/status", {"status": status})
    yield name
    api.delete(f"/api/v1/nodes/{name}")


def a_job(number: int, *, host_network: bool = True, **network: int) -> HATrainingJob:
    template = {"spec": {**QUICKSTART["spec"]["template"]["spec"], "hostNetwork": host_network}}
    template["spec"]["volumes"] = [{"name": each["name"], "emptyDir": {}} for each in template["spec"]["volumes"]]
    metadata = {"name": f"job-{number}", "namespace": "default", "uid": f"uid-{number}"}
    spec = {**QUICKSTART["spec"], "template": template, "network": network}
    return HATrainingJob.from_object({"metadata": metadata, "spec": spec})


def coordinator(job: HATrainingJob) -> Object:
    return coordinator_pod(job, 1, SETTINGS, apart=False)


def rank(job: HATrainingJob) -> Object:
    return build_rank_pod(job, 0, 1, SETTINGS)


def bound_for(pod: Object, namespace: str, node: str) -> Object:
    """The pod as it is, but for where it belongs and where it may go."""
    metadata, spec = pod["metadata"], pod["spec"]
    del metadata["ownerReferences"]
    metadata["namespace"] = namespace
    spec |= {"tolerations": [{"operator": "Exists"}], "affinity": {}, "nodeSelector": {"kubernetes.io/hostname": node}}
    return pod


ALONE, TOGETHER = 1, 2
CASES: dict[str, tuple[list[Object], int]] = {
    "coordinators of two jobs": ([coordinator(a_job(1)), coordinator(a_job(2))], ALONE),
    "of two with ports of their own": ([coordinator(a_job(1)), coordinator(a_job(2, coordinatorPort=7080))], TOGETHER),
    "in networks of their own": ([coordinator(a_job(each, host_network=False)) for each in (1, 2)], TOGETHER),
    "a coordinator beside its rank": ([rank(a_job(1)), coordinator(a_job(1))], TOGETHER),
    "a coordinator beside another's rank": (
        [rank(a_job(1)), coordinator(a_job(2, agentPort=7171, coordinatorPort=7071))],
        ALONE,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_who_is_put_on_one_node(control_plane: ControlPlane, namespace: str, node: str, case: str) -> None:
    api = control_plane.api
    made, placed = CASES[case]
    pods = [bound_for(pod, namespace, node) for pod in deepcopy(made)]
    for pod in pods:
        api.create(f"/api/v1/namespaces/{namespace}/pods", pod)

    def verdicts() -> list[str] | None:
        found = []
        for pod in pods:
            stored = api.get(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")
            scheduled = next(
                (one for one in stored.get("status", {}).get("conditions", []) if one["type"] == "PodScheduled"), None
            )
            if scheduled is None:
                return None
            found.append("placed" if scheduled["status"] == "True" else scheduled.get("message", ""))
        return found

    found = control_plane.wait("the scheduler's word about both", verdicts)
    assert found.count("placed") == placed, found
    assert placed == TOGETHER or any("free ports" in word for word in found)
