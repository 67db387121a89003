"""What a kubelet itself does beside starting containers: it gives out chips, and starts anew what answers no probe."""

from __future__ import annotations

import json
import os

import pytest

from e2e.harness.job import Object
from e2e.kubelets.__main__ import why_skipped
from e2e.kubelets.cluster import NAMESPACE, Cluster
from e2e.kubelets.configuration import DIRECTORY
from e2e.kubelets.containers import ContainerFaults
from e2e.nodes.faults import DEVICE_NAMESPACE
from e2e.trainer import proof
from hajob.api import constants as names

pytestmark = [
    pytest.mark.skipif(DIRECTORY not in os.environ, reason=why_skipped()),
    pytest.mark.timeout(600),
]
WEAK, BROKEN = "80E18400", "80E18402"
"""Codes of faults."""
PROBE_SECONDS = 180.0
"""Seven probes in vain, each ten seconds after the other, and the grace period of a process that takes no SIGTERM."""


def allocatable(cluster: Cluster, node: str) -> int:
    """How many chips the kubelet of a node gives away."""
    status = cluster.plane.api.get(f"/api/v1/nodes/{node}")["status"]
    return int(status["allocatable"][names.DEFAULT_RESOURCE_NAME])


def told(cluster: Cluster, node: str) -> dict[str, str]:
    """The lists of chips in the device plugin's ConfigMap of a node."""
    path = f"/api/v1/namespaces/{DEVICE_NAMESPACE}/configmaps/mindx-dl-deviceinfo-{node}"
    found: dict[str, str] = json.loads(cluster.plane.api.get(path)["data"]["DeviceInfoCfg"])["DeviceInfo"]["DeviceList"]
    return found


def test_a_sick_chip_is_left_and_given_to_nobody(hajob: Cluster) -> None:
    """The device plugin tells of it in its ConfigMap, and on the kubelet's socket once it works no more."""
    faults = ContainerFaults(hajob.plane, hajob.nodes)
    faults.repair_everything()
    job = hajob.train("sick", iterations=1500)
    pods = {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in job.pods("rank")}
    node = job.node_of(1)
    seen = hajob.plane.kubectl("exec", pods[node], "--container=trainer", "--", "env").stdout.splitlines()
    assert "ASCEND_VISIBLE_DEVICES=0,1" in seen, "what the kubelet had from the plugin's Allocate"

    hajob.wait_trains(job, 2, int(faults.break_chip(node, 1, code=WEAK, level="SubHealthFault")["time"]))

    (incident,) = job.incidents()
    assert (incident["action"], incident["lostSteps"], incident["cause"]["code"]) == ("Migrate", 0, WEAK)
    assert job.node_of(1) != node
    assert allocatable(hajob, node) == 2, "weak, but it works"
    faults.break_chip(node, 1, code=BROKEN, level="SeparateNPU")
    assert told(hajob, node)[f"{names.DEFAULT_RESOURCE_NAME}-Unhealthy"] == "Ascend910-1"
    hajob.plane.wait("its kubelet to give it to nobody", lambda: allocatable(hajob, node) == 1)
    faults.repair_everything()
    hajob.plane.wait("its kubelet to give it away again", lambda: allocatable(hajob, node) == 2)
    job.delete()


def operator_status(cluster: Cluster, pod: str) -> Object:
    found: Object = cluster.plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}")["status"]
    return found["containerStatuses"][0] if "containerStatuses" in found else {}


def test_an_operator_that_stands_still_is_started_anew(hajob: Cluster) -> None:
    """Its kubelet does, for want of an answer; the standby leads meanwhile, and no training notices."""
    job = hajob.train("unharmed", iterations=3000)
    stands = hajob.leader()
    assert stands is not None
    name = stands["metadata"]["name"]
    ContainerFaults(hajob.plane, hajob.nodes).freeze(namespace=NAMESPACE, pod=name, container="operator")

    def is_another() -> bool:
        leader = hajob.leader()
        return leader is not None and bool(leader["metadata"]["name"] != name)

    hajob.plane.wait("the standby to lead", is_another)
    hajob.wait_trains(job, 2, hajob.nodes.kill(1, job.name))
    assert job.incidents()[0]["action"] == "InPlace"
    hajob.plane.wait("it to run again", lambda: operator_status(hajob, name).get("restartCount", 0) > 0, PROBE_SECONDS)
    hajob.plane.wait("it to be ready", lambda: operator_status(hajob, name).get("ready"), 60)
    job.wait_step(job.common_step() + 5)
    assert len(job.incidents()) == 1
    assert proof.survivors_kept(job.events(), restarted=[1]) == []
    job.delete()
