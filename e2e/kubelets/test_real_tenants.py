"""What containers of real kubelets meet besides faults: other users, Pod Security, quotas, registries, host ports."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.harness.fixtures import a_namespace
from e2e.harness.job import CHECKPOINT_MOUNT, Job, Object
from e2e.kubelets.__main__ import why_skipped
from e2e.kubelets.cluster import NAMESPACE, Cluster
from e2e.kubelets.configuration import BRIDGE, DIRECTORY
from e2e.trainer.faults import Fault

pytestmark = [
    pytest.mark.skipif(DIRECTORY not in os.environ, reason=why_skipped()),
    pytest.mark.timeout(600),
]
USER = 1000
STEPS, INTERVAL = 600, 30
RESTART_ONLY = [{"name": name, "maxCount": 0} for name in ("Retry", "InPlace", "Replace", "Shrink", "Checkpoint")]


def pod_spec(content: Object) -> dict[str, Any]:
    found: dict[str, Any] = content["spec"]["template"]["spec"]
    return found


def as_user(content: Object) -> None:
    """The training image runs as a user of its own."""
    pod_spec(content)["securityContext"] = {"runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}


def condition_that(job: Job, test: Callable[[str], object], seconds: float = 60.0) -> Object:
    """The first condition whose reason and message pass."""

    def found() -> Object | None:
        told = job.status().get("conditions", [])
        return next((each for each in told if test(f"{each['reason']}: {each['message']}")), None)

    return job.plane.wait(f"a condition of {job.name}", found, seconds)


def test_checkpoints_of_another_user_are_restarted_from(hajob: Cluster) -> None:
    """The newest is damaged: the tracker in the user's directory is set back, by a process of the user."""
    volume = hajob.volume("users")
    volume.mkdir(parents=True)
    shutil.chown(volume, USER, USER)
    standing = Fault.parse(f"rank=0 step={2 * INTERVAL + 4} do=hang")  # so that no newer one is saved
    arguments = ["--save-interval", str(INTERVAL), "--fault", standing.line]
    content = hajob.manifest(
        "users", iterations=STEPS, arguments=arguments, spec={"recovery": {"actions": RESTART_ONLY}}
    )
    as_user(content)
    job = hajob.apply(content)
    hajob.plane.wait("the training to stand still", standing.mark(job.logs, rank=0).exists, 120)
    damaged = volume / f"iter_{2 * INTERVAL:07d}" / "mp_rank_01" / "distrib_optim.pt"
    damaged.write_bytes(damaged.read_bytes()[:1000])
    hajob.nodes.kill(3, "users")

    incident = job.wait_incident(2, seconds=120)

    assert (incident["action"], incident["loadedStep"]) == ("Restart", INTERVAL)
    job.wait_step(2 * INTERVAL + 10, seconds=120)
    assert [str(path) for path in volume.rglob("*") if path.stat().st_uid != USER] == []
    job.delete()


@contextmanager
def restricted(cluster: Cluster, name: str) -> Iterator[str]:
    """A namespace of Pod Security `restricted`, with a quota of memory, so that every container must limit it."""
    with a_namespace(cluster.plane, name) as namespace:
        cluster.plane.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
        hard = {"limits.memory": "32Gi", "requests.memory": "16Gi"}
        cluster.plane.apply(
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "memory", "namespace": namespace}}
            | {"spec": {"hard": hard}}
        )
        yield namespace


@contextmanager
def claimed(cluster: Cluster, namespace: str, name: str) -> Iterator[str]:
    """A claim on the checkpoint volume of a job, which belongs to the training's user."""
    volume = cluster.volume(name)
    volume.mkdir(parents=True)
    shutil.chown(volume, USER, USER)
    shared = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    whole: Object = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    whole["spec"] = {**shared, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(volume)}}
    claim: Object = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    claim["metadata"] = {"name": name, "namespace": namespace}
    claim["spec"] = {**shared, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    cluster.plane.apply(whole, claim)
    try:
        yield name
    finally:
        cluster.plane.kubectl("delete", "persistentvolume", name, "--wait=false")


def test_a_restricted_namespace_with_a_quota_trains(hajob: Cluster) -> None:
    """The chart says what Hajob's containers may take, the job what the MindIO controller may."""
    limits = "sidecar.resources.limits.memory=512Mi,sidecar.resources.requests.memory=64Mi"
    hajob.install("--set", limits)
    with restricted(hajob, "tight") as namespace:
        mine = {"limits": {"memory": "1Gi"}, "requests": {"memory": "128Mi"}}
        content = hajob.manifest("tight", namespace, iterations=STEPS, spec={"coordinator": {"resources": mine}})
        pod = pod_spec(content)
        as_user(content)
        pod["securityContext"] |= {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        (container,) = pod["containers"]
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        container["resources"] = {"limits": {"memory": "2Gi"}, "requests": {"memory": "128Mi"}}
        with claimed(hajob, namespace, "tight") as claim:  # host paths are not allowed there
            pod["volumes"] = [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": claim}}]
            job = hajob.apply(content)
            job.wait_condition("Running", seconds=120)
            hajob.nodes.kill(1, "tight")
            assert job.wait_incident(2, seconds=120)["action"] == "InPlace"
            job.delete()


@pytest.mark.parametrize("host", [f"{BRIDGE}:5000", "registry.invalid"], ids=["refuses", "unknown"])
def test_an_image_that_cannot_be_pulled_is_told(hajob: Cluster, host: str) -> None:
    """Not a coordinator that does not answer, but the image by its name."""
    name = f"no-image-{host.split('.', maxsplit=1)[0]}"
    content = hajob.manifest(name)
    image = f"{host}/nothing:1"
    pod_spec(content)["containers"][0]["image"] = image
    job = hajob.apply(content)
    found = condition_that(job, lambda words: image in words and "Pull" in words, 90)
    print(f"{found['type']}={found['status']} {found['reason']}: {found['message']}")
    job.delete()


def in_the_nodes_network(hajob: Cluster, name: str, **spec: object) -> Job:
    content = hajob.manifest(name, nodes=1, tensor=1, iterations=STEPS, spec=spec)
    pod_spec(content)["hostNetwork"] = True
    return hajob.apply(content)


def test_jobs_in_the_nodes_network_do_not_collide(hajob: Cluster) -> None:
    """Two coordinators never share a node's port; with a port of its own, one may be sent to another's node."""
    jobs = [in_the_nodes_network(hajob, f"host-{number}") for number in (1, 2)]
    for job in jobs:
        job.wait_step(10, seconds=120)
    first, second = (job.pods("coordinator")[0]["spec"]["nodeName"] for job in jobs)
    assert first != second
    beside = {"nodeSelector": {"kubernetes.io/hostname": first}}
    jobs.append(in_the_nodes_network(hajob, "host-3", coordinator=beside, network={"coordinatorPort": 7080}))
    jobs[-1].wait_step(10, seconds=120)
    assert jobs[-1].pods("coordinator")[0]["spec"]["nodeName"] == first
    for job in (jobs[0], jobs[-1]):
        hajob.wait_trains(job, 2, hajob.nodes.kill(0, job.name))
    for job in jobs:
        job.delete()


def test_metrics_are_reached_by_port_forward(hajob: Cluster) -> None:
    command = hajob.plane.kubectl_command("--namespace", NAMESPACE, "port-forward", "deploy/hajob-operator", ":8080")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=hajob.plane.run.environment({})
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = re.search(r"127\.0\.0\.1:(\d+)", line)
        try:
            assert port, line
            connection = http.client.HTTPConnection("127.0.0.1", int(port[1]), timeout=10)
            connection.request("GET", "/metrics")
            assert "hajob_" in connection.getresponse().read().decode()
        finally:
            process.terminate()


def test_helms_own_test_passes(hajob: Cluster) -> None:
    assert "Succeeded" in hajob.helm("test", "hajob", "--timeout=60s")


def test_the_mount_of_checkpoints_is_the_jobs_volume(hajob: Cluster) -> None:
    """A user's shell in the container sees what the ranks write: `kubectl exec` goes to the kubelet."""
    job = hajob.train("shell", iterations=STEPS)
    pod = job.pods("rank")[0]["metadata"]["name"]
    listed = hajob.plane.kubectl("exec", pod, "-c", "trainer", "--", "ls", f"{CHECKPOINT_MOUNT}/log").stdout
    assert "rank" in listed
    job.delete()
