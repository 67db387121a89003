"""Nodes without kubelets for tests about the scheduler: they are ready and stay it, nothing runs on them, pods go."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.cluster.control_plane import ControlPlane
from hajob.api import constants as names

RENEW_SECONDS = 5.0
LOOK_SECONDS = 0.3
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@contextmanager
def bare_nodes(plane: ControlPlane, pool: str, count: int, chips: int = 2) -> Iterator[list[str]]:
    """So many nodes with a label `pool`, free of taints when this begins, and deleted in the end.

    `pool` is the namespace of their pods, too: one that is asked to go is gone a moment later.
    """
    made = [f"{pool}-{number}" for number in range(count)]
    for name in made:
        plane.api.create("/api/v1/nodes", _node(name, pool, chips))
        plane.api.create(LEASES, {"metadata": {"name": name}, "spec": _heard(name)})
    stop = threading.Event()
    threads = [threading.Thread(target=act, args=(plane, pool, made, stop)) for act in (_beat, _end_pods)]
    for thread in threads:
        thread.start()
    try:
        plane.wait("the nodes to be free of taints", lambda: not any(_taints(plane, name) for name in made))
        yield made
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for name in made:
            plane.api.delete(f"/api/v1/nodes/{name}")


def _beat(plane: ControlPlane, _: str, made: list[str], stop: threading.Event) -> None:
    while not stop.wait(RENEW_SECONDS):
        for name in made:
            plane.api.merge(f"{LEASES}/{name}", {"spec": _heard(name)})


def _end_pods(plane: ControlPlane, namespace: str, _: list[str], stop: threading.Event) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    while not stop.wait(LOOK_SECONDS):
        for pod in plane.api.items(path):
            if "deletionTimestamp" in pod["metadata"] and pod["spec"].get("nodeName"):
                plane.api.delete(f"{path}/{pod['metadata']['name']}", gracePeriodSeconds=0)


def _heard(name: str) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}


def _node(name: str, pool: str, chips: int) -> dict[str, Any]:
    room = {"cpu": "64", "memory": "256Gi", "pods": "110", names.DEFAULT_RESOURCE_NAME: str(chips)}
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
    ready |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
    labels = {"pool": pool, "kubernetes.io/hostname": name}
    status = {"allocatable": room, "capacity": room, "conditions": [ready]}
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def _taints(plane: ControlPlane, name: str) -> object:
    return plane.api.get(f"/api/v1/nodes/{name}")["spec"].get("taints")
