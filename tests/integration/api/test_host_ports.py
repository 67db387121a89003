"""Coordinators in the node's network fight for one port, so the real scheduler puts no two of them on a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster.control_plane import ControlPlane
from hajob.api.job import HATrainingJob
from hajob.objects.coordinator_pod import coordinator_pod
from hajob.objects.settings import PodSettings
from tests.integration.conftest import QUICKSTART

KEY = "hajob-test/host-ports"


@pytest.fixture
def node(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """A node that only pods of this test bear."""
    name, api = f"only-{namespace}", control_plane.api
    made = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"taints": [{"key": KEY, "value": namespace, "effect": "NoSchedule"}]},
    }
    api.create("/api/v1/nodes", made)
    resources = {"cpu": "64", "memory": "64Gi", "pods": "100"}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
    status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
    api.merge(f"/api/v1/nodes/{name}/status", {"status": status})
    yield name
    api.delete(f"/api/v1/nodes/{name}")


def coordinator(number: int, namespace: str, node: str, *, host_network: bool) -> Any:
    template = {"spec": {**QUICKSTART["spec"]["template"]["spec"], "hostNetwork": host_network}}
    metadata = {"name": f"job-{number}", "namespace": namespace, "uid": f"uid-{number}"}
    spec = {**QUICKSTART["spec"], "template": template}
    made = coordinator_pod(HATrainingJob.from_object({"metadata": metadata, "spec": spec}), 1, PodSettings("hajob/x:1"))
    del made["metadata"]["ownerReferences"]
    made["spec"]["tolerations"] = [{"operator": "Exists"}]
    made["spec"]["affinity"] = {}
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return made


@pytest.mark.parametrize("host_network", [True, False])
def test_two_coordinators_on_one_node(
    control_plane: ControlPlane, namespace: str, node: str, host_network: bool
) -> None:
    api = control_plane.api
    api.merge(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"kubernetes.io/hostname": node}}})
    pods = [coordinator(number, namespace, node, host_network=host_network) for number in (1, 2)]
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
        return sorted(found)

    found = control_plane.wait("the scheduler's word about both", verdicts)
    placed = [word for word in found if word == "placed"]
    assert len(placed) == (1 if host_network else 2)
    assert not host_network or any("free ports" in word for word in found)
