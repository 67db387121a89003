"""MindCluster's components and a job of theirs share the nodes: a fault counts once, nobody's pods are touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from e2e.harness.images import TRAINER_IMAGE
from e2e.harness.rig import RIG_LABEL, Rig, RigLayout
from e2e.nodes.faults import DEVICE_NAMESPACE
from e2e.scenarios.proofs import assert_recovered
from e2e.volcano.install import make_queue
from e2e.volcano.scheduler import API, API_VERSION
from hajob.api.base import format_time
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


def apply_gang_of_theirs(rig: Rig, name: str, pods: int, queue: str) -> list[str]:
    """An AscendJob's PodGroup and pods as its operator makes them, placed by Volcano; the paths of the pods."""
    owner = {"queue": queue, "minMember": pods, "minResources": {"huawei.com/Ascend910": str(pods * CHIPS)}}
    labels, policy = {"fault-scheduling": "force"}, {"huawei.com/schedule_policy": "chip8-node8"}
    metadata = {"name": name, "namespace": rig.namespace, "labels": labels, "annotations": policy}
    rig.plane.apply({"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": owner})
    paths = []
    for number in range(pods):
        trainer = {
            "name": "ascend",
            "image": TRAINER_IMAGE,
            "command": ["sleep", "1000"],
            "resources": {side: {"huawei.com/Ascend910": str(CHIPS)} for side in ("requests", "limits")},
        }
        spec = {
            "containers": [trainer],
            "nodeSelector": {RIG_LABEL: rig.name},
            "schedulerName": "volcano",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
        }
        named = {"name": f"{name}-{number}", "namespace": rig.namespace, "labels": {**THEIRS, **labels}}
        annotations = {"scheduling.k8s.io/group-name": name, "hccl/rankIndex": str(number)}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**named, "annotations": annotations}, "spec": spec}
        rig.plane.apply(pod)
        paths.append(f"/api/v1/namespaces/{rig.namespace}/pods/{name}-{number}")
    return paths


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


def test_gangs_of_theirs_share_queue_and_nodes_of_volcano(start_rig: Callable[[RigLayout], Rig]) -> None:
    """One trains beside ours and is left alone; one waits, and holds up a job of ours but no replacement."""
    rig = start_rig(RigLayout(chip_nodes=6, chips=CHIPS, volcano=True))
    queue = f"q-{rig.name}"
    make_queue(rig.plane, queue)
    (theirs,) = apply_gang_of_theirs(rig, "llama", 1, queue)
    rig.plane.wait("their pod to run", lambda: rig.plane.api.get(theirs)["status"].get("phase") == "Running")
    before = rig.plane.api.get(theirs)
    place = before["spec"]["nodeName"]
    spec = {"scheduling": {"queueName": queue}}
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=200.0, spec=spec)
    job.wait_step(10)
    assert place not in {job.node_of(rank) for rank in range(4)}, "its chips are taken"
    # More than the free node and the one that will be lost, which is called ready for 40 s and whose chips are free.
    waiting = apply_gang_of_theirs(rig, "llama-large", 3, queue)
    group = f"{API}/namespaces/{rig.namespace}/podgroups/llama-large"
    # Let in where nodes of other rigs have chips for it, for the plugin counts those of the whole cluster.
    phases = {"Pending", "Inqueue"}
    rig.plane.wait("it to wait", lambda: (rig.plane.api.get(group).get("status") or {}).get("phase") in phases)
    # Who was made first is known to the second.
    made = rig.plane.api.get(group)["metadata"]["creationTimestamp"]
    rig.plane.wait("the next second", lambda: format_time(datetime.now(UTC).replace(microsecond=0)) > made)
    late = rig.submit("late", iterations=ITERATIONS, spec=spec)
    ahead = f"before it wait {rig.namespace}/llama-large"
    rig.plane.wait("who comes first", lambda: ahead in late.condition("Scheduled").get("message", ""))
    assert late.condition("Scheduled")["message"].startswith(f"queue {queue} of Volcano: ")
    rig.nodes.control.power_off(job.node_of(1))
    assert job.wait_incident(2)["action"] == "Replace"
    assert job.node_of(1) != place, "there is one free node, and theirs is none"
    assert not any(rig.plane.api.get(each)["spec"].get("nodeName") for each in waiting)
    late.delete()
    after = rig.plane.api.get(theirs)
    assert (after["metadata"]["uid"], after["status"]["phase"]) == (before["metadata"]["uid"], "Running")
    assert "deletionTimestamp" not in after["metadata"]
    assert_recovered(job, [2, 3], ITERATIONS)
