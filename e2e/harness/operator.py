"""Installing CRD and operator from the files a cluster admin would apply.

Tests put an operator of their own into each test's namespace, bound to serve that namespace only: the same manifests,
with names changed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.control_plane import ControlPlane

MANIFEST = CHECKOUT / "deploy/hajob.yaml"
MINDCLUSTER = CHECKOUT / "deploy/mindcluster.yaml"
"""Process nodes write where NodeD and ClusterD do."""
CRDS = CHECKOUT / "crds"
NAMESPACE = "hajob-system"
NAME = "hajob-operator"

Object = dict[str, Any]


def install_crd(plane: ControlPlane) -> None:
    """Apply the CRD and wait until the API server serves it."""
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    path = "/apis/training.hajob.io/v1alpha1/hatrainingjobs"
    plane.wait("the API server to serve HATrainingJobs", lambda: plane.api.find(path))


def manifests(
    namespace: str = NAMESPACE,
    *,
    watch_namespace: str = "",
    replicas: int = 1,
    environment: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
) -> list[Object]:
    """The operator's objects for `namespace`.

    Args:
        namespace: Where it runs; the cluster-wide objects are named after it when it is not the usual one.
        watch_namespace: The only namespace it serves; empty: all.
        replicas: How many there are, one of them leading.
        environment: More settings.
        node_selector: Where its pods run.
    """
    texts = (path.read_text() for path in (MANIFEST, MINDCLUSTER))
    objects = [each for text in texts for each in yaml.safe_load_all(text) if each]
    found = [_moved(each, namespace) for each in objects if each["kind"] != "Namespace" or namespace == NAMESPACE]
    spec = next(each for each in found if each["kind"] == "Deployment")["spec"]
    spec["replicas"] = replicas
    pod = spec["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = 5
    if node_selector:
        pod["nodeSelector"] = dict(node_selector)
    settings = dict(environment or {})
    if watch_namespace:
        settings["HAJOB_WATCH_NAMESPACE"] = watch_namespace
        found.append(_many_may_break(namespace))
    pod["containers"][0]["env"] += [{"name": name, "value": value} for name, value in settings.items()]
    return found


def _many_may_break(namespace: str) -> Object:
    """Settings for an operator beside others: the broken nodes of one rig must not look like a flood to the next."""
    metadata = {"name": "hajob-faults", "namespace": namespace, "labels": {"training.hajob.io/settings": "faults"}}
    data = {"breaker": "{minimumNodes: 1000}", "quarantine": "{minimumNodes: 1000}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def install(plane: ControlPlane, objects: list[Object], seconds: float = 60.0) -> None:
    """Apply the operator and wait until its pods are ready."""
    plane.apply(*objects)
    namespace = next(each for each in objects if each["kind"] == "Deployment")["metadata"]["namespace"]
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{NAME}"

    def ready() -> bool:
        deployment = plane.api.get(path)
        return bool(deployment.get("status", {}).get("readyReplicas", 0) >= deployment["spec"]["replicas"])

    plane.wait(f"the operator in {namespace} to be ready", ready, seconds)


def _moved(original: Object, namespace: str) -> Object:
    """A manifest for another namespace; what is elsewhere, or cluster-wide, gets a name of its own: two can exist."""
    moved = copy.deepcopy(original)
    if namespace == NAMESPACE:
        return moved
    metadata = moved["metadata"]
    if metadata.get("namespace") == NAMESPACE:
        metadata["namespace"] = namespace
    else:
        metadata["name"] += f"-{namespace}"
    if moved["kind"] == "Deployment":
        moved["spec"]["template"]["spec"]["priorityClassName"] += f"-{namespace}"
    if moved.get("roleRef", {}).get("kind") == "ClusterRole":
        moved["roleRef"]["name"] += f"-{namespace}"
    for subject in moved.get("subjects", []):
        subject["namespace"] = namespace
    return moved
