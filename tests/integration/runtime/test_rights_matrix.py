"""What the operator's service account may do on a real server, asked of the server and held against a kept table.

HAJOB_UPDATE_GOLDEN=1 writes the table; read the difference as what an attacker with the operator's token gains.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.harness.operator import NAME, install_rights

TABLE = Path(__file__).parent / "rights.txt"
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


@pytest.fixture
def installed(control_plane: ControlPlane, namespace: str) -> str:
    """The rights as an admin installs them, in a namespace of this test."""
    install_rights(control_plane, namespace)
    return namespace


def verbs(plane: ControlPlane, operator: str, namespace: str, group: str, resource: str) -> Iterator[str]:
    """What is allowed, in the order of `VERBS`."""
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


def table(plane: ControlPlane, operator: str, places: dict[str, str]) -> str:
    """What the service account in the namespace `operator` may do in each place, a line for each resource."""
    lines = []
    for place, namespace in places.items():
        for group, resources in RESOURCES.items():
            for resource in resources:
                allowed = ", ".join(verbs(plane, operator, namespace, group, resource)) or "-"
                lines.append(f"{place:14}  {f'{group}/{resource}'.lstrip('/'):72}  {allowed}")
    return "\n".join(lines) + "\n"


def test_the_rights_are_those_of_the_table(control_plane: ControlPlane, installed: str) -> None:
    places = {"where it runs": installed, "kube-system": "kube-system", "elsewhere": "default"}
    found = table(control_plane, installed, places)
    if os.environ.get("HAJOB_UPDATE_GOLDEN"):
        TABLE.write_text(found)
    assert found == TABLE.read_text()
