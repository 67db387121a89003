"""Nodes without kubelets for tests about the scheduler: they are ready and stay it, nothing runs on them, pods go."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.rest import ApiError
from hajob.api import constants as names

RENEW_SECONDS = 10.0
LOOK_SECONDS = 0.3
THREADS = 8
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

Object = dict[str, Any]


@contextmanager
def bare_nodes(plane: ControlPlane, pool: str, count: int, chips: int = 2, *, first: int = 0) -> Iterator[list[str]]:
    """So many nodes with a label `pool`, free of taints when this begins, and deleted in the end.

    `pool` is the namespace of their pods, too: one that is asked to go is gone a moment later.
    """
    made = [bare_node(f"{pool}-{number}", {"pool": pool}, chips) for number in range(first, first + count)]
    with living_nodes(plane, pool, made) as named, _repeated(LOOK_SECONDS, lambda: _end_pods(plane, pool)):
        yield named


@contextmanager
def living_nodes(plane: ControlPlane, pool: str, bodies: Sequence[Object]) -> Iterator[list[str]]:
    """These nodes, all with a label `pool`: made, heard of all the time, and deleted in the end."""
    named = [str(body["metadata"]["name"]) for body in bodies]
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda body: _register(plane, body), bodies))
    try:
        with _repeated(RENEW_SECONDS, lambda: _renew(plane, named)):
            plane.wait("the nodes to be free of taints", lambda: not _tainted(plane, pool))
            yield named
    finally:
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(lambda name: plane.api.delete(f"/api/v1/nodes/{name}"), named))


@contextmanager
def _repeated(seconds: float, act: Callable[[], object]) -> Iterator[None]:
    stop = threading.Event()

    def again() -> None:
        while not stop.wait(seconds):
            act()

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _register(plane: ControlPlane, body: Object) -> None:
    plane.api.create("/api/v1/nodes", body)
    name = body["metadata"]["name"]
    plane.api.create(LEASES, {"metadata": {"name": name}, "spec": _heard(name)})


def _renew(plane: ControlPlane, named: Sequence[str]) -> None:
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda name: _renew_one(plane, name), named))


def _renew_one(plane: ControlPlane, name: str) -> None:
    with suppress(ApiError):  # a test may have deleted the node, and its Lease went with it
        plane.api.merge(f"{LEASES}/{name}", {"spec": _heard(name)})


def _end_pods(plane: ControlPlane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    for pod in plane.api.items(path):
        if "deletionTimestamp" in pod["metadata"] and pod["spec"].get("nodeName"):
            plane.api.delete(f"{path}/{pod['metadata']['name']}", gracePeriodSeconds=0)


def _heard(name: str) -> Object:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}


def bare_node(name: str, labels: dict[str, str], chips: int = 2) -> Object:
    """A node as its kubelet would register it."""
    room = {"cpu": "64", "memory": "256Gi", "pods": "250", names.DEFAULT_RESOURCE_NAME: str(chips)}
    labels = {"kubernetes.io/hostname": name, **labels}
    status = {"allocatable": room, "capacity": room, "conditions": [ready_condition()]}
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def ready_condition(status: str = "True") -> Object:
    """What a kubelet, or in its place the controller manager, says of a node."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": status, "reason": "Test", "message": ""}
    return ready | {"lastHeartbeatTime": now, "lastTransitionTime": now}


def _tainted(plane: ControlPlane, pool: str) -> list[str]:
    nodes = plane.api.items("/api/v1/nodes", labelSelector=f"pool={pool}")
    return [node["metadata"]["name"] for node in nodes if node["spec"].get("taints")]
