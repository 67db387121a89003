"""MindCluster's components and a job of theirs share the nodes: a fault counts once, nobody's pods are touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from e2e.harness.images import TRAINER_IMAGE
from e2e.harness.rig import RIG_LABEL, Rig, RigLayout
from e2e.nodes.faults import DEVICE_NAMESPACE
from e2e.scenarios.proofs import assert_recovered
from hajob.sources import registry

pytestmark = pytest.mark.slow

ITERATIONS = 1500
CHIPS = 2
THEIRS: Mapping[str, str] = {
    "job-name": "llama",
    "replica-type": "worker",
    "training.kubeflow.org/job-name": "llama",
    "training.kubeflow.org/operator-name": "ascendjob-controller",
    "training.kubeflow.org/replica-index": "0",
}
"""What the Ascend Operator puts on the pods of an AscendJob; some of it is on Hajob's, too."""


def start_job_of_theirs(rig: Rig) -> str:
    """A pod of an AscendJob takes a node; its path."""
    trainer = {
        "name": "ascend",
        "image": TRAINER_IMAGE,
        "command": ["sleep", "1000"],
        "resources": {"limits": {"huawei.com/Ascend910": str(CHIPS)}},
    }
    metadata = {"name": "llama-worker-0", "namespace": rig.namespace, "labels": dict(THEIRS)}
    spec = {"containers": [trainer], "nodeSelector": {RIG_LABEL: rig.name}, "restartPolicy": "Never"}
    rig.plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    path = f"/api/v1/namespaces/{rig.namespace}/pods/{metadata['name']}"
    rig.plane.wait("their pod to run", lambda: rig.plane.api.get(path)["status"].get("phase") == "Running")
    return path


def repeat_as_clusterd(rig: Rig, node: str) -> Callable[[], None]:
    """ClusterD gathers what the device plugin of a node says; what is returned takes it back."""
    told = rig.plane.api.get(f"/api/v1/namespaces/{DEVICE_NAMESPACE}/configmaps/mindx-dl-deviceinfo-{node}")
    info: dict[str, Any] = json.loads(told["data"]["DeviceInfoCfg"])["DeviceInfo"]
    name = "cluster-info-device-7"
    gathered = {f"mindx-dl-deviceinfo-{node}": {**info, "CmName": f"mindx-dl-deviceinfo-{node}"}}
    label, _, value = registry.VOLCANO.partition("=")
    metadata = {"name": name, "namespace": DEVICE_NAMESPACE, "labels": {label: value}}
    rig.plane.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {name: json.dumps(gathered)}}
    )
    return lambda: rig.plane.api.delete(f"/api/v1/namespaces/{DEVICE_NAMESPACE}/configmaps/{name}")


def test_a_fault_counts_once_and_their_job_stays(start_rig: Callable[[RigLayout], Rig]) -> None:
    rig = start_rig(RigLayout(chip_nodes=6, chips=CHIPS))
    theirs = start_job_of_theirs(rig)
    before = rig.plane.api.get(theirs)
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=200.0)
    job.wait_step(10)
    place = before["spec"]["nodeName"]
    assert place not in {job.node_of(rank) for rank in range(4)}, "its chips are taken"

    node = job.node_of(1)
    rig.nodes.control.break_chip(node, 1, code="40F84E00", level="RestartNPU")
    take_back = repeat_as_clusterd(rig, node)
    try:
        assert job.wait_incident(2)["action"] == "Replace"
        assert job.node_of(1) not in {node, place}, "there is one free node, and theirs is none"
        rig.nodes.control.break_chip(place, 0, code="40F84E00", level="RestartNPU")
        quarantine = f"/apis/training.hajob.io/v1alpha1/nodequarantines/{node}"
        rig.plane.wait("the node to be left alone", lambda: rig.plane.api.find(quarantine))
        job.wait_step(job.common_step() + 20)
    finally:
        take_back()
    job.wait_step(job.common_step() + 20)
    assert len(job.incidents()) == 1, "one fault, told by two writers, and one that is not the job's"
    after = rig.plane.api.get(theirs)
    assert (after["metadata"]["uid"], after["status"]["phase"]) == (before["metadata"]["uid"], "Running")
    assert "deletionTimestamp" not in after["metadata"]
    assert_recovered(job, [2, 3], ITERATIONS)
