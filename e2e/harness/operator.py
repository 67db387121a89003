"""Installing CRD and operator from the files a cluster admin would apply.

Tests put an operator of their own into each test's namespace, bound to serve that namespace only: the same manifests,
with names changed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.control_plane import ControlPlane

MANIFEST = CHECKOUT / "deploy/hajob.yaml"
MINDCLUSTER = CHECKOUT / "deploy/mindcluster.yaml"
"""Process nodes write where NodeD and ClusterD do."""
VOLCANO = CHECKOUT / "deploy/volcano.yaml"
SERVES_VOLCANO = "HAJOB_VOLCANO_ENABLED"
KUEUE = CHECKOUT / "deploy/kueue.yaml"
SERVES_KUEUE = "HAJOB_KUEUE_ENABLED"
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
    command: Sequence[str] = (),
) -> list[Object]:
    """The operator's objects for `namespace`.

    Args:
        namespace: Where it runs; the cluster-wide objects are named after it when it is not the usual one.
        watch_namespace: The only namespace it serves; empty: all.
        replicas: How many there are, one of them leading.
        environment: More settings.
        node_selector: Where its pods run, and the nodes that are its own: other tests have theirs beside them.
        command: What its pods run instead of the image's entry point.
    """
    settings = dict(environment or {})
    more = [path for setting, path in ((SERVES_VOLCANO, VOLCANO), (SERVES_KUEUE, KUEUE)) if setting in settings]
    paths = (MANIFEST, MINDCLUSTER, *more)
    texts = (path.read_text() for path in paths)
    objects = [each for text in texts for each in yaml.safe_load_all(text) if each]
    found = [moved(each, namespace) for each in objects if each["kind"] != "Namespace" or namespace == NAMESPACE]
    spec = next(each for each in found if each["kind"] == "Deployment")["spec"]
    spec["replicas"] = replicas
    pod = spec["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = 5
    if node_selector:
        pod["nodeSelector"] = dict(node_selector)
    if command:
        pod["containers"][0]["command"] = list(command)
    if node_selector:
        settings["HAJOB_FAULT_NODE_SELECTOR"] = ",".join("=".join(pair) for pair in node_selector.items())
    if watch_namespace:
        settings["HAJOB_WATCH_NAMESPACES"] = watch_namespace
        found.append(many_may_break(namespace))
    pod["containers"][0]["env"] += [{"name": name, "value": value} for name, value in settings.items()]
    return found


def many_may_break(namespace: str) -> Object:
    """Settings for a rig of few nodes: a test breaks more of them within a minute than an operator would believe."""
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


def install_rights(plane: ControlPlane, namespace: str) -> None:
    """Apply all but the Deployment: what the operator's service account may do."""
    place = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mindx-dl"}}  # NodeD's
    plane.apply(place, *(each for each in manifests(namespace) if each["kind"] != "Deployment"))


def uninstall(plane: ControlPlane, objects: list[Object], namespace: str) -> None:
    """Delete what `manifests(namespace)` has outside of its namespace; the rest goes with that."""
    for each in objects:
        where = each["metadata"].get("namespace")
        if where != namespace:
            kind = each["kind"].lower()
            place = f"namespaces/{where}/" if where else ""
            plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
            plane.api.delete(f"/apis/{each['apiVersion']}/{place}{plural}/{each['metadata']['name']}")


def moved(original: Object, namespace: str) -> Object:
    """A manifest for another namespace; what is elsewhere, or cluster-wide, gets a name of its own: two can exist."""
    made = copy.deepcopy(original)
    if namespace == NAMESPACE:
        return made
    metadata = made["metadata"]
    here = metadata.get("namespace") == NAMESPACE
    if here:
        metadata["namespace"] = namespace
    else:
        metadata["name"] += f"-{namespace}"
    if made["kind"] == "Deployment":
        made["spec"]["template"]["spec"]["priorityClassName"] += f"-{namespace}"
    if "roleRef" in made and not (here and made["roleRef"]["kind"] == "Role"):
        made["roleRef"]["name"] += f"-{namespace}"
    for subject in made.get("subjects", []):
        subject["namespace"] = namespace
    return made
