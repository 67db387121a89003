"""What the operator may do: by the roles that its manifests bind, and as an API server answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.control_plane import ControlPlane
from e2e.harness.operator import NAME
from hajob.kube.credentials import ApiCredentials, from_service_account

Right = tuple[str, str]
RIGHTS_FILE = CHECKOUT / "tests/integration/operator/rights.txt"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind", "escalate")
RESOURCES = {
    "": (
        "configmaps",
        "events",
        "namespaces",
        "nodes",
        "persistentvolumeclaims",
        "pods",
        "pods/eviction",
        "pods/exec",
        "pods/log",
        "pods/status",
        "resourcequotas",
        "secrets",
        "serviceaccounts/token",
        "services",
    ),
    "apiextensions.k8s.io": (
        "customresourcedefinitions",
        "customresourcedefinitions/hatrainingjobs.training.hajob.io",
        "customresourcedefinitions/nodequarantines.training.hajob.io",
    ),
    "apps": ("deployments",),
    "authentication.k8s.io": ("tokenreviews",),
    "batch": ("jobs",),
    "certificates.k8s.io": ("certificatesigningrequests",),
    "coordination.k8s.io": ("leases",),
    "events.k8s.io": ("events",),
    "policy": ("poddisruptionbudgets",),
    "rbac.authorization.k8s.io": ("clusterroles", "rolebindings"),
    "training.hajob.io": ("hatrainingjobs", "hatrainingjobs/finalizers", "hatrainingjobs/status", "nodequarantines"),
}
KINDS_THAT_GIVE_RIGHTS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


def rights_bound_to_the_operator(objects: list[dict[str, Any]]) -> dict[Right, str]:
    """List resource and verb of every rule of the roles that these objects bind, with its API group."""
    found: dict[Right, str] = {}
    bound = {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in objects if "roleRef" in each}
    for each in objects:
        for rule in each["rules"] if (each["kind"], each["metadata"]["name"]) in bound else []:
            for resource in rule["resources"]:
                found.update({(resource, verb): group for verb in rule["verbs"] for group in rule["apiGroups"]})
    return found


def allowed_verbs(plane: ControlPlane, operator: str, namespace: str, group: str, resource: str) -> Iterator[str]:
    """Ask what is allowed, in the order of `VERBS`."""
    kind, _, part = resource.partition("/")
    name = ""
    if group == "apiextensions.k8s.io":
        name, part = part, ""
    for verb in VERBS:
        asked = {"namespace": namespace, "verb": verb, "group": group, "resource": kind, "subresource": part}
        spec = {"user": f"system:serviceaccount:{operator}:{NAME}", "resourceAttributes": {**asked, "name": name}}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = plane.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        if answer["status"]["allowed"]:
            yield verb


def rights_table(plane: ControlPlane, operator: str, places: dict[str, str]) -> str:
    """Ask what the service account in the namespace `operator` may do in each place, a line for each resource."""
    lines = []
    for place, namespace in places.items():
        for group, resources in RESOURCES.items():
            for resource in resources:
                allowed = ", ".join(allowed_verbs(plane, operator, namespace, group, resource)) or "-"
                lines.append(f"{place:14}  {f'{group}/{resource}'.lstrip('/'):72}  {allowed}")
    return "\n".join(lines) + "\n"


def operator_credentials(plane: ControlPlane, namespace: str, directory: Path) -> ApiCredentials:
    """Make the credentials of the operator's service account, as its pod has them."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{NAME}/token"
    token = plane.api.create(path, {"spec": {}})["status"]["token"]
    (directory / "token").write_text(token)
    (directory / "ca.crt").write_bytes(plane.ca_file.read_bytes())
    host, _, port = plane.server.removeprefix("https://").rpartition(":")
    return from_service_account(str(directory), {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port})
