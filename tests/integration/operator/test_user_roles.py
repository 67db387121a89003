"""Who has `view`, `edit` or `admin` in a namespace has it of the jobs there, too, without a Role of the admin's own."""

from __future__ import annotations

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.harness.operator import install_rights

READ = {"get", "list", "watch"}
WRITE = {"create", "update", "patch", "delete", "deletecollection"}
GROUP = "training.hajob.io"


def allowed(plane: ControlPlane, namespace: str, user: str, resource: str) -> set[str]:
    kind, _, part = resource.partition("/")
    found = set()
    for verb in READ | WRITE:
        asked = {"namespace": namespace, "verb": verb, "group": GROUP, "resource": kind, "subresource": part}
        spec = {"user": user, "resourceAttributes": asked}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        if plane.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]:
            found.add(verb)
    return found


@pytest.mark.parametrize(("role", "verbs"), [("view", READ), ("edit", READ | WRITE), ("admin", READ | WRITE)])
def test_a_namespaces_roles_hold_for_jobs(
    control_plane: ControlPlane, namespace: str, role: str, verbs: set[str]
) -> None:
    install_rights(control_plane, namespace)
    where = ("--namespace", namespace)
    control_plane.kubectl("create", "rolebinding", "users", f"--clusterrole={role}", "--user=somebody", *where)

    def aggregated() -> bool:
        return allowed(control_plane, namespace, "somebody", "hatrainingjobs") == verbs

    control_plane.wait(f"{role} to hold for jobs", aggregated)
    for kept in ("hatrainingjobs/status", "hatrainingjobs/finalizers", "nodequarantines"):
        assert allowed(control_plane, namespace, "somebody", kept) == set(), kept
